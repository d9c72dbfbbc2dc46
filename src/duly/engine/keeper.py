"""Keeps leases alive, and ends what must end.

`Keeper` prolongs leases on a thread and a connection of its own, so that no handler can starve it. `Watchdog` needs no
database at all: it stops works past their hard deadline, and works whose lease is about to end because the keeper could
not reach the database in time; someone else may take those over. Both go by the monotonic clock: the database's may be
set while handlers run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from duly.core.model import Failed, Item, Released
from duly.engine.calls import Verdicts
from duly.engine.work import Hands, Lease, Work
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

REPORT_EVERY = 1.0
LOOK_EVERY = 0.4
# With nothing in hand there is nothing to do: whoever fills the hands wakes both.
IDLE = timedelta(hours=1)


class Keeper:
    def __init__(
        self,
        store: Store,
        hands: Hands,
        *,
        lease: float,
        beat: float,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._hands = hands
        self._lease = lease
        self._beat = beat
        self._ticks = ticks
        self._reports: dict[tuple[int, int], tuple[Item, bytes]] = {}
        self._is_told = False
        self._look_at = -float("inf")  # on the monotonic clock

    def look_soon(self) -> None:
        """Something changed elsewhere: perhaps a person cancelled what runs here."""
        self._is_told = True

    def report(self, item: Item, progress: bytes) -> None:
        """Remember how far a try is; its last word counts."""
        self._reports[item.id, item.fence] = (item, progress)

    def tick(self, now: datetime) -> datetime:
        due = {fence: lease for fence, lease in self._hands.held().items() if self._due(lease) <= self._ticks()}
        if due:
            self._prolong(due, now)
        if self._is_told and self._look_at <= self._ticks():
            self._look()
        self._write_reports()
        leases = self._hands.held()
        if not leases and not self._reports:
            return now + IDLE
        times = [self._due(lease) for lease in leases.values()]
        if self._is_told:
            times.append(self._look_at)
        nearest = min(times, default=float("inf")) - self._ticks()
        return now + timedelta(seconds=max(min(nearest, REPORT_EVERY), 0.0))

    def _due(self, lease: Lease) -> float:
        """When it is to be prolonged: a beat after it was last, or was claimed."""
        return lease.ends - self._lease + self._beat

    def _look(self) -> None:
        """Find out what is not ours any more without waiting for a beat. It only reads: a write would be news again."""
        self._is_told, self._look_at = False, self._ticks() + LOOK_EVERY
        items = [item for work in self._hands.works() for item in work.items]
        running = set(self._store.running([item.id for item in items])) if items else set()
        if lost := {(item.id, item.fence) for item in items if (item.id, item.fence) not in running}:
            self._drop(lost)

    def _drop(self, lost: Iterable[tuple[int, int]]) -> None:
        for fence in drop(self._hands, lost):
            self._hands.emptied(fence)

    def _prolong(self, due: dict[int, Lease], now: datetime) -> None:
        ends = self._ticks() + self._lease
        lease_until = now + timedelta(seconds=self._lease)
        lost = self._store.extend({fence: tuple(lease.open) for fence, lease in due.items()}, now, lease_until)
        for lease in due.values():
            lease.ends, lease.is_ending = ends, False
        if lost:
            self._drop(lost)

    def _write_reports(self) -> None:
        reports, self._reports = self._reports, {}
        for item, progress in reports.values():
            self._store.report(item.id, item.fence, progress)


class Watchdog:
    def __init__(
        self,
        hands: Hands,
        *,
        lease: float,
        finish: Callable[..., bool],
        hung: Callable[[Work], None],
    ) -> None:
        self._hands = hands
        # Stop handlers while there is still time for them to end before someone else may start.
        self._margin = lease / 10
        self._finish = finish
        self._hung = hung

    def tick(self, now: datetime) -> datetime:
        self._end_overdue()
        held = self._hands.held()
        ending = {fence for fence, lease in held.items() if lease.ends - self._margin <= time.monotonic()}
        if news := [held[fence] for fence in ending if not held[fence].is_ending]:
            log.error("could not prolong %d leases in time: stopping their handlers", len(news))
            for lease in news:
                lease.is_ending = True
        for work in self._hands.works():
            if ending.intersection(item.fence for item in work.items):
                self._interrupt(work)
        return self._next(now)

    def _interrupt(self, work: Work) -> None:
        """Stop a handler whose lease ends; its attempt is given back when the database answers again.

        A thread cannot be stopped. It goes on, and what comes of it counts if nobody has taken its lease over by then.
        Leases stay in hand: the keeper goes on trying, which keeps others from blaming what only waits to be written.
        """
        if work.can_stop:
            self._finish(work, [Released()] * len(work.items), stop=True)

    def _end_overdue(self) -> None:
        for work in self._hands.works():
            if work.deadline <= time.monotonic():
                error = f"DeadlineExceeded: still running after {work.task.deadline:g} s"
                verdicts: Verdicts = [Failed(error, ("duly.DeadlineExceeded", "TimeoutError"))] * len(work.items)
                if self._finish(work, verdicts, stop=True):
                    self._hung(work)

    def _next(self, now: datetime) -> datetime:
        if not self._hands.held() and not len(self._hands):
            return now + IDLE
        nearest = min((work.deadline for work in self._hands.works()), default=float("inf")) - time.monotonic()
        return now + timedelta(seconds=max(min(nearest, 0.5), 0.0))


def drop(hands: Hands, lost: Iterable[tuple[int, int]]) -> list[int]:
    """These items, each by its id and fence, are not ours any more: stop works about nothing else, and forget them.

    The same item under another fence is another try, which may be ours as well. Returns the fences of leases that have
    nothing left under them here.
    """
    lost = set(lost)
    gone = []
    for work in hands.works():
        ours = [item for item in work.items if (item.id, item.fence) in lost]
        gone.extend(ours)
        if len(ours) == len(work.items) and hands.take(work):
            log.warning("%s %s is no longer ours: stopping it", work.task.label, ", ".join(str(i.id) for i in ours))
            if work.stop is not None:
                work.stop(work)
    return hands.let_go(gone)
