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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, cast

from msgspec import Struct

from duly.core.clock import ManualClock
from duly.core.errors import InputError
from duly.core.model import Ask, Change, Done, Failed, Grant, Item, Revision, Schedule
from duly.core.policy.limits import period
from duly.core.policy.recur import Slot, between, parse, zone_named
from duly.core.policy.retry import windows_of
from duly.engine.calls import Verdicts
from duly.engine.rescuer import Detector, Rescuer
from duly.engine.work import Work
from duly.facade.app import Duly
from duly.store.contract import Plan, Store
from duly.tasks.checks import when
from duly.tasks.task import Task
from duly.verbs.read import Read
from duly.virtual.world import World

MINUTE = timedelta(minutes=1)
INSTANT = timedelta(microseconds=1)
MOST = 100_000  # how many times of one slot or rule are counted
UTC_ZONE = zone_named("UTC")
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
        return any(self._clock.now() in outage for outage in self._model.outages)

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


class Hour(Struct, frozen=True):
    """How many items a slot made in an hour, or all schedules together, and how many members it had."""

    at: datetime
    slot: int | None
    members: int | None
    dispatched: int


class Window(Struct, frozen=True):
    at: datetime
    cap: int
    waiting: int  # when items were first claimed in it
    dispatched: int


class Calls(Struct, frozen=True):
    total: int
    max_per_minute: int  # in any sliding minute


class Lateness(Struct, frozen=True):
    p50_s: float
    p99_s: float
    max_s: float


class SimulationResult(Struct, frozen=True):
    """The result of a simulation."""

    hours: list[Hour]
    windows: list[Window]
    calls: Calls
    attempts: int
    done: int
    failed: int
    deactivated: int
    recovered: int
    crashes: int
    skipped: int
    late: Lateness


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
        self.lateness: list[float] = []
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
                self.retried.setdefault(opened, []).extend(grant.items)
        return grants

    def _due_retries(self, queue: str) -> int:
        depths = Read(self._store, self._app.clock).depths()
        return sum(each.due for each in depths if (each.queue, each.lane) == (queue, "retry"))

    def _started(self, items: Sequence[Item]) -> None:
        now = self._app.clock.now()
        self.attempts.extend((now, item) for item in items)
        # Retries are left out, because they wait for their window.
        self.lateness.extend((now - item.due_at).total_seconds() for item in items if item.lane == "main")

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        refused = self._store.settle(changes, closed, connection)
        self.ends.extend((self._app.clock.now(), change) for change in changes if change.id not in refused)
        return refused


class _ByTheClock(Detector):
    """A detector that goes by the clock alone: in a simulation a lease that ran out is always dead."""

    def look(self, leases: Iterable[tuple[int, datetime]], now: datetime, asked: float, answered: float) -> list[int]:
        return [fence for fence, until in leases if until < now]


class Simulation(World):
    """A world in which a model decides how long calls take, whether they fail, and when workers are lost."""

    most = 10_000_000

    def __init__(self, app: Duly, clock: ManualClock, runner: asyncio.Runner, model: Conditions) -> None:
        self.upstream = Upstream(model, clock)
        self.answer: Responder = self.upstream.answer
        self._model = model
        self._slow: list[tuple[datetime, int, Work, Verdicts]] = []
        self._lost: list[datetime] = []  # when leases of dead workers run out
        self._turn = 0
        super().__init__(app, clock, runner)
        self._rescuer = Rescuer(self._store, app.tasks, _ByTheClock(0), sweep=app.settings.sweep_seconds)

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

    def story(self, start: datetime, end: datetime) -> SimulationResult:
        ledger = self.ledger
        ends = [change for _, change in ledger.ends]
        return SimulationResult(
            hours=self._hours(start, end),
            windows=self._windows(start, end),
            calls=Calls(len(ledger.calls), busiest_minute(ledger.calls)),
            attempts=len(ledger.attempts),
            done=sum(change.state == "done" for change in ends),
            failed=sum(change.state == "failed" for change in ends),
            deactivated=sum(1 for _ in self.app.schedules.pages(state="broken")),
            recovered=sum(change.state == "done" and change.failures > 0 for change in ends),
            crashes=ledger.crashes,
            skipped=ledger.skipped,
            late=_late(ledger.lateness),
        )

    def _hours(self, start: datetime, end: datetime) -> list[Hour]:
        made = self.ledger.made
        if slots := self._slots():
            times = {
                (at, slot.slot)
                for slot in slots
                for at in between(slot, start - INSTANT, end - INSTANT, UTC_ZONE, MOST)
            }
            return [
                Hour(at, slot, self.ledger.members.get((at, slot), 0), made[at, slot]) for at, slot in sorted(times)
            ]
        hours: Counter[datetime] = Counter()
        for (at, _), count in made.items():
            hours[at.replace(minute=0, second=0, microsecond=0)] += count
        return [Hour(at, None, None, count) for at, count in sorted(hours.items()) if start <= at < end]

    def _slots(self) -> list[Slot]:
        """Every slot of the rings that there are."""
        rings = {each.ring for each in self.app.schedules.slots()}
        rules = [parse(each.rule) for ring in rings for each in self.app.schedules.page(ring=ring, most=1)]
        return [Slot(n, rule.of, rule.period) for rule in rules if isinstance(rule, Slot) for n in range(rule.of)]

    def _windows(self, start: datetime, end: datetime) -> list[Window]:
        found = {}
        for task in self.app.tasks.values():
            windows = windows_of(task.rules.retry)
            if windows is None:
                continue
            at = start - INSTANT
            while (at := windows.around(at)[1]) < end:
                dispatched = len(self.ledger.retried.get(at, ()))
                found[at] = Window(at, windows.cap, self.ledger.waiting.get(at, 0), dispatched)
        return [found[at] for at in sorted(found)]


def busiest_minute(times: Sequence[datetime]) -> int:
    """The most calls in any sliding minute."""
    recent: deque[datetime] = deque()
    most = 0
    for time in sorted(times):
        recent.append(time)
        while recent[0] <= time - MINUTE:
            recent.popleft()
        most = max(most, len(recent))
    return most


def _late(lateness: Sequence[float]) -> Lateness:
    ordered = sorted(max(each, 0.0) for each in lateness) or [0.0]
    return Lateness(*(round(ordered[int((len(ordered) - 1) * share)], 3) for share in (0.5, 0.99, 1.0)))
