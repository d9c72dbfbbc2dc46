"""Simulates days of work in virtual time with the real engine, also with failures.

Schedules, claims, limits, windows, decisions and rescues are those of a worker, on an own store and a clock that jumps
from event to event. Only the outside world is a model. It decides how each call ends, by random numbers from a seed, so
the same seed gives the same days again. By default handlers are not called at all; an app may instead provide a
stand-in for its upstream and have its own handler called.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Literal, cast

from msgspec import Struct

from duly.core.clock import ManualClock
from duly.core.errors import InputError
from duly.core.model import Ask, Change, Done, Failed, Grant, Item, Revision, Schedule
from duly.core.policy.limits import period
from duly.engine.calls import Verdicts
from duly.engine.rescuer import Detector, Rescuer
from duly.engine.work import Work
from duly.facade.app import Duly
from duly.store.contract import Plan, Store
from duly.tasks.checks import when
from duly.tasks.task import Task
from duly.verbs.read import Read
from duly.virtual.story import SimulationResult, tell
from duly.virtual.world import World

LATE_AFTER = 60.0  # seconds after its time from which an item counts as late
_SPAN = re.compile(r"(?P<at>[^/@]+)/(?P<long>[^/@]+)(?:@(?P<value>[0-9.]+))?")


class Interval(Struct, frozen=True):
    """A stretch of time, and a number for it where one is needed: `2026-01-03T10:00/6h`, `…/1h@0.8`."""

    start: datetime
    end: datetime
    value: float = 1.0

    def __contains__(self, time: datetime) -> bool:
        return self.start <= time < self.end


def interval(field: str, text: str) -> Interval:
    if not (match := _SPAN.fullmatch(text.strip())):
        raise InputError(field, f"must be like 2026-01-03T10:00/6h, got {text!r:.80}")
    at = match["at"]
    with suppress(ValueError):
        if datetime.fromisoformat(at).tzinfo is None:
            at += "+00:00"
    start = when(at, None, lambda: datetime.now(UTC))
    try:
        return Interval(start, start + timedelta(seconds=period(match["long"])), float(match["value"] or 1))
    except (ValueError, OverflowError) as error:
        raise InputError(field, f"{text!r:.80}: {error}") from None


class Conditions(Struct, frozen=True, kw_only=True):
    """How the outside world behaves in a simulation. Rates are from 0 to 1."""

    failure_rate: float = 0.0  # the part of the items that fail
    outages: tuple[Interval, ...] = ()  # when every call fails
    bursts: tuple[Interval, ...] = ()  # when there is another failure rate
    downtimes: tuple[Interval, ...] = ()  # when no worker is running
    slow: float = 0.0  # seconds that a call takes
    crash_rate: float = 0.0  # the part of the calls whose worker dies
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("failure_rate", "crash_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(name, f"must be a share from 0 to 1, got {getattr(self, name)!r}")
        for burst in self.bursts:
            if not 0 <= burst.value <= 1:
                raise InputError("burst", f"must have a share from 0 to 1 after its @, got {burst.value:g}")
        if not 0 <= self.slow <= 86_400:
            raise InputError("slow", f"must be between 0 and 86,400 seconds, got {self.slow!r}")


class Upstream:
    """The other side of the handlers' calls. It draws by the model whether it answers, and which items fail."""

    def __init__(self, model: Conditions, clock: ManualClock) -> None:
        self._model = model
        self._clock = clock
        self._chance = random.Random(model.seed)  # noqa: S311 - a simulation is to be repeated

    def is_out(self) -> bool:
        return self.out_for() > 0

    def out_for(self) -> float:
        """Seconds until the outage of now is over; 0: there is none."""
        now = self._clock.now()
        return max(((outage.end - now).total_seconds() for outage in self._model.outages if now in outage), default=0.0)

    def fails(self) -> bool:
        """Whether the next item fails."""
        now = self._clock.now()
        rate = next((burst.value for burst in self._model.bursts if now in burst), self._model.failure_rate)
        return self._chance.random() < rate

    def crashes(self) -> bool:
        return self._model.crash_rate > 0 and self._chance.random() < self._model.crash_rate

    def answer(self, _: Task[..., Any], items: Sequence[Item]) -> Verdicts:
        """How a call ends, for tasks whose handler is not called."""
        if self.is_out():
            return [Failed("simulated outage", ("duly.Simulated",))] * len(items)
        return [Failed("simulated failure", ("duly.Simulated",)) if self.fails() else Done() for _ in items]


Responder = Callable[[Task[..., Any], Sequence[Item]], Verdicts]


class Ledger:
    """A store that records what happens in a simulation. It has more detail than the result, for checks.

    All other calls go straight to the store of the app.
    """

    def __init__(self, app: Duly) -> None:
        self._app = app
        self._store = app.internals.store
        self.made: Counter[tuple[datetime, int | None]] = Counter()
        self.members: dict[tuple[datetime, int], int] = {}
        self.retried: dict[datetime, list[Item]] = {}
        self.waiting: dict[datetime, int] = {}
        self.calls: list[datetime] = []
        self.attempts: list[tuple[datetime, Item]] = []
        self.failures: dict[int, list[datetime]] = {}  # when tries of an item that failed began
        self.broke: set[int] = set()  # items whose failure deactivated their schedule
        self.ends: list[tuple[datetime, Change]] = []
        self.crashes = 0
        self.skipped = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def revise(self, which: Sequence[int] | None, now: datetime, most: int, plan: Plan, **more: Any) -> int:
        def noted(schedules: Sequence[Schedule], live: Mapping[int, list[Item]]) -> Sequence[Revision]:
            revisions = plan(schedules, live)
            self._count_members(revisions)
            for revision in revisions:
                self.skipped += revision.schedule.skipped
                for at in revision.occurrences:
                    self.made[at, revision.schedule.slot] += 1
            for before in schedules:
                self.skipped -= before.skipped
            return revisions

        return self._store.revise(which, now, most, noted, **more)

    def _count_members(self, revisions: Sequence[Revision]) -> None:
        """How many active members each slot has at the moment it is dispatched."""
        slots = {(at, each.schedule.slot) for each in revisions for at in each.occurrences}
        fresh = {(at, slot) for at, slot in slots if slot is not None} - self.members.keys()
        if fresh:
            loads = {each.slot: each.members for each in self._app.schedules.slots()}
            self.members.update({(at, slot): loads[slot] for at, slot in fresh})

    def claim(self, *given: Any) -> list[Item]:
        items = self._store.claim(*given)
        self._started(items)
        return items

    def claim_metered(self, asks: Sequence[Ask], *more: Any) -> list[Grant]:
        for ask in asks:
            for meter in ask.meters:
                if meter.since is not None and meter.most and meter.since not in self.waiting:
                    self.waiting[meter.since] = self._due_retries(ask.share.line.queue)
        grants = self._store.claim_metered(asks, *more)
        for ask, grant in zip(asks, grants, strict=True):
            self._started(grant.items)
            for opened in (meter.since for meter in ask.meters if meter.since is not None):
                # An item whose worker died is started again in its window, which counts it once.
                self.retried.setdefault(opened, []).extend(item for item in grant.items if item.id in grant.seats)
        return grants

    def _due_retries(self, queue: str) -> int:
        depths = Read(self._store, self._app.clock).depths()
        return sum(each.due for each in depths if (each.queue, each.lane) == (queue, "retry"))

    def _started(self, items: Sequence[Item]) -> None:
        now = self._app.clock.now()
        self.attempts.extend((now, item) for item in items)

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        refused = self._store.settle(changes, closed, connection)
        now = self._app.clock.now()
        for change in changes:
            if change.id in refused:
                continue
            self.ends.append((now, change))
            if change.tried is not None:
                self.failures.setdefault(change.id, []).append(change.tried.started_at or now)
            if change.member is not None and change.member.is_broken:
                self.broke.add(change.id)
            elif change.member is not None and change.member.is_excused:
                self.broke.discard(change.id)
        return refused


class _ByTheClock(Detector):
    """A detector that goes by the clock alone: in a simulation a lease that ran out is always dead."""

    def look(self, leases: Iterable[tuple[int, datetime]], now: datetime, asked: float, answered: float) -> list[int]:
        return [fence for fence, until in leases if until < now]


class Simulation(World):
    """A world in which a model decides how long calls take, whether they fail, and when workers are lost."""

    most = 10_000_000

    def __init__(
        self, app: Duly, clock: ManualClock, runner: asyncio.Runner, model: Conditions, until: datetime | None = None
    ) -> None:
        # Until when it will run: apps fill this time with work.
        self.until = until or clock.now() + timedelta(days=1)
        self.upstream = Upstream(model, clock)
        self.answer: Responder = self.upstream.answer
        self._model = model
        self._slow: list[tuple[datetime, int, Work, Verdicts]] = []
        self._lost: list[datetime] = []  # when leases of dead workers run out
        self._turn = 0
        super().__init__(app, clock, runner)
        self._rescuer = Rescuer(self._store, app.internals.all_tasks, _ByTheClock(0), sweep=app.settings.sweep_seconds)

    def _observed(self, app: Duly) -> Store:
        self.ledger = Ledger(app)
        return app.internals.telemetry.observe(cast(Store, self.ledger))

    def free_calls(self) -> int:
        return self.app.settings.concurrency - len(self._slow)

    def _next(self) -> datetime | None:
        times = [time for time in (super()._next(), *self._lost[:1]) if time is not None]
        if self._slow:
            times.append(self._slow[0][0])
        if self._down(self.clock.now()) is not None:  # nothing runs before the downtime is over
            times.append(self.clock.now())
        next_at = min(times, default=None)
        if next_at is None:
            return None
        down = self._down(next_at)
        return next_at if down is None else down.end

    def _down(self, moment: datetime) -> Interval | None:
        """The downtime that this moment is in."""
        return next((each for each in self._model.downtimes if moment in each), None)

    def run(self) -> int:
        now = self.clock.now()
        if self._down(now) is not None:
            return 0
        while self._slow and self._slow[0][0] <= now:
            _, _, work, verdicts = heappop(self._slow)
            self._finish(work, verdicts)
        while self._lost and self._lost[0] <= now:
            heappop(self._lost)
            self._rescuer.tick(now)
        return super().run()

    def _do(self, work: Work) -> None:
        now = self.clock.now()
        self._begin(work)
        self.ledger.calls.append(now)
        if self.upstream.crashes():
            self.ledger.crashes += 1
            self._in_flight.take(work)
            self._in_flight.let_go(work.items)
            lease = timedelta(seconds=self.app.settings.lease_seconds)
            heappush(self._lost, now + lease + timedelta(seconds=1))
            return
        verdicts = self.answer(work.task, work.items)
        if not self._model.slow:
            self._finish(work, verdicts)
            return
        ends = now + timedelta(seconds=self._model.slow)
        # A real worker would extend its lease for as long as the call takes.
        lease = timedelta(seconds=self.app.settings.lease_seconds)
        self._store.extend({work.items[0].fence: [item.id for item in work.items]}, now, ends + lease)
        self._turn += 1
        heappush(self._slow, (ends, self._turn, work, verdicts))

    def call(self, task: Task[..., Any], items: Sequence[Item]) -> Verdicts:
        """Call the real handler, for apps that provide a stand-in for what it calls."""
        return self._call(task, list(items))

    # -- what happened

    def story(self, start: datetime, end: datetime, late_after: float = LATE_AFTER) -> SimulationResult:
        """What happened to everything that was planned until then; done later than `late_after` seconds is late."""
        return tell(self, start, end, late_after)

    def interruptions(self, start: datetime, end: datetime) -> list[tuple[Literal["down", "outage"], Interval]]:
        """The downtimes and outages that ended in this time."""
        found: list[tuple[Literal["down", "outage"], Interval]] = [
            *(("down", each) for each in self._model.downtimes), *(("outage", each) for each in self._model.outages),
        ]  # fmt: skip
        return [(what, each) for what, each in found if start <= each.start < end and each.end <= end]
