"""Turns verdicts into changes and writes them in batches.

A verdict waits at most `LINGER` for others that are about to come, so a busy worker settles many at a time, and an idle
one settles at once. If a worker dies, only the items whose verdicts were not written in that short time run again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from duly.core.decide import UNKNOWN, decide
from duly.core.errors import StoreUnavailable
from duly.core.model import Change, GiveUp, Item, Outcome, Status
from duly.core.policy.outage import Source
from duly.engine.calls import Settled, Verdicts
from duly.engine.outages import Outages
from duly.engine.work import InFlight, Tasks, Wake, Work, nothing
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

LINGER = timedelta(milliseconds=20)
ENOUGH = 1_000
MOST = 2_000


@dataclass(eq=False)
class Settler:
    """`finish` takes verdicts from any thread, and a tick writes them.

    `wake` asks for a tick. Of what was written, `ran` gets the durations, `freed` the items and `settled` the changes.
    `released` gets the items whose calls were given back, because they did not begin.
    """

    store: Store
    tasks: Tasks
    in_flight: InFlight
    outages: Outages = field(default_factory=Outages)
    _: KW_ONLY
    wake: Wake = nothing
    ran: Callable[[list[tuple[str, float]]], None] = nothing
    freed: Callable[[list[Item]], None] = nothing
    settled: Callable[[list[Change]], None] = nothing
    released: Callable[[list[Item]], None] = nothing

    def __post_init__(self) -> None:
        self._outbox: deque[tuple[Work, Verdicts, float | None]] = deque()
        self._changes: list[Change] = []
        self._closed: list[int] = []
        self._over: list[Item] = []
        self._released: list[Item] = []  # those whose calls under limits did not begin
        self._since: datetime | None = None

    def __len__(self) -> int:
        # Changes without work of their own, which take failures back, wait too when they could not be written.
        alone = 0 if self._over else len(self._changes)
        unused = len(self.in_flight.unused)
        return (
            len(self._outbox)
            + len(self._over)
            + len(self.in_flight.to_close)
            + self.outages.corrections
            + alone
            + unused
        )

    def finish(self, work: Work, verdicts: Verdicts, ended: float | None = None, *, stop: bool = False) -> bool:
        """Take the verdicts of a work, from any thread; False when there are verdicts for it already.

        With `stop`, its handler is stopped, and its result is ignored.
        """
        if not self.in_flight.take(work):
            return False
        if stop and work.stop is not None:
            work.stop(work)
        outbox = self._outbox
        outbox.append((work, verdicts, ended))
        if len(outbox) == 1 or len(outbox) >= ENOUGH or not len(self.in_flight):
            self.wake()
        return True

    def tick(self, now: datetime) -> datetime:
        if not self:
            self._since = None
            return now + timedelta(seconds=3600)
        if len(self.in_flight) and len(self) < ENOUGH:
            if self._since is None or now < self._since:  # the database's clock may have been set back
                self._since = now
            if now < self._since + LINGER:
                return self._since + LINGER
        self._since = None
        self._flush(now)
        return now

    def _flush(self, now: datetime) -> None:
        # Decided once and kept until it is written, so that an outage of the database does not change the decision.
        if not self._over:
            self._take_out(now)
        self._give_back()
        emptied = list(self.in_flight.to_close)
        try:
            refused = set(self.store.settle(self._changes, [*self._closed, *emptied]))
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("a batch of results could not be written; writing them one by one")
            self._settle_one_by_one(now)
            emptied = []
            refused = set()
        self._keep_late(refused)
        for _ in emptied:
            self.in_flight.to_close.popleft()
        # Leases are held until the verdicts are written, so that no worker runs these items again.
        self.in_flight.to_close.extend(set(self.in_flight.let_go(self._over)).difference(self._closed))
        self.freed(self._over)
        if self._released:
            self.released(self._released)
        self.settled([change for change in self._changes if change.id not in refused] if refused else self._changes)
        self._changes, self._closed, self._over, self._released = [], [], [], []

    def _give_back(self) -> None:
        """Give back the calls that were granted and did not begin, before their items can be claimed again.

        If it is not known whether that was written, it is not repeated: it could give back the calls of others.
        """
        unused = [self.in_flight.unused.popleft() for _ in range(len(self.in_flight.unused))]
        if unused:
            try:
                self.store.give_back(unused)
            except StoreUnavailable as error:
                log.warning("%d calls that did not begin count for their limits: %s", len(unused), error)

    def _keep_late(self, refused: set[int]) -> None:
        """Keep the results of tries that ended well just after a person had cancelled their items."""
        for change in self._changes if refused else ():
            if change.id in refused and change.result is not None:
                late = {"id": change.id, "fence": change.fence, "result": change.result.decode()}
                with suppress(StoreUnavailable):  # the changes are written, and must not be written again over this
                    self.store.write("late_result", late)

    def _take_out(self, now: datetime) -> None:
        """Decide the verdicts that wait in the outbox."""
        over: list[Item] = []
        durations: list[tuple[str, float]] = []
        while self._outbox and len(over) < MOST:
            work, verdicts, ended = self._outbox.popleft()
            over.extend(work.items)
            if work.permit is not None and not work.has_begun:
                self._released.extend(work.items)
            if ended is not None:
                durations.append((work.task.name, ended - work.deadline + work.task.deadline))
            if work.task.source is not None:
                self._changes += self._judged(work, work.task.source, verdicts, now)
                continue
            for item, verdict in zip(work.items, verdicts, strict=True):
                if not isinstance(verdict, Settled):
                    self._changes.append(ruling(self.tasks, item, verdict, now))
        self.outages.take_back(self._changes, now)
        self._over = over
        self._closed = self.in_flight.closing(over)
        self.ran(durations)

    def _judged(self, work: Work, source: Source, verdicts: Verdicts, now: datetime) -> list[Change]:
        """The changes that these verdicts make, unless their source is down."""
        ends = [
            (item, verdict, ruling(self.tasks, item, verdict, now))
            for item, verdict in zip(work.items, verdicts, strict=True)
            if not isinstance(verdict, Settled)
        ]
        if len(ends) < len(verdicts):
            self.outages.answered(source, now)
        return self.outages.judge(source, ends, now)

    def _settle_one_by_one(self, now: datetime) -> None:
        """Write changes one by one, so that one which the database refuses does not keep the others from being written.

        The item of a refused change goes to review, so that it does not stay running for ever.
        """
        unwritten: set[int] = set()
        for place, change in enumerate(self._changes):
            try:
                self.store.settle([change])
            except StoreUnavailable:
                self._changes = self._changes[place:]
                raise
            except Exception as error:
                log.exception("%s %s: its result cannot be written; to review", change.task, change.id)
                reason = f"its result could not be written: {type(error).__name__}"
                status: Status | None = None if change.job_id is None else "ERROR"
                plain = replace(
                    change, state="failed", outcome="gave_up", finished_at=now, result=None, error=reason, status=status
                )
                try:
                    self.store.settle([replace(plain, error_class=None, tried=None, member=None, then=())])
                except StoreUnavailable:
                    raise
                except Exception:  # its lease will run out, and it will be rescued
                    log.exception("%s %s: not even that can be written", change.task, change.id)
                    unwritten.add(change.fence)
        self.in_flight.leave(unwritten)
        self.store.settle([], [fence for fence in self._closed if fence not in unwritten])


def ruling(tasks: Tasks, item: Item, outcome: Outcome, now: datetime) -> Change:
    """What `decide` makes of this outcome, by the rules of the item's task if it is known here."""
    task = tasks.get(item.task)
    try:
        return decide(item, outcome, now, task.rules if task else UNKNOWN)
    except Exception as error:  # a user's own policy may raise, and the item must not stay running then
        log.exception("%s %s: its retry policy failed", item.task, item.id)
        return decide(item, GiveUp(f"the retry policy failed: {error!r}"), now, UNKNOWN)
