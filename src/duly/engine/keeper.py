"""Keeps leases alive, and ends what must end.

`Keeper` prolongs leases on a thread and a connection of its own, so that no handler can starve it. `Guard` needs no
database at all: it stops works past their hard deadline, and works whose lease is about to end because the keeper could
not reach the database in time; someone else will take those over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from duly.clock import EPOCH
from duly.engine.calls import Verdicts
from duly.engine.work import Hands, Lease, Work
from duly.model import Failed, Item
from duly.store.base import Store

log = logging.getLogger("duly.engine")

REPORT_EVERY = timedelta(seconds=1)
LOOK_EVERY = timedelta(seconds=0.4)
# With nothing in hand there is nothing to do: whoever fills the hands wakes both.
IDLE = timedelta(hours=1)


class Keeper:
    def __init__(self, store: Store, hands: Hands, *, lease: float, beat: float) -> None:
        self._store = store
        self._hands = hands
        self._lease = timedelta(seconds=lease)
        self._beat = timedelta(seconds=beat)
        self._reports: dict[int, tuple[Item, bytes]] = {}
        self._is_told = False
        self._look_at = EPOCH

    def look_soon(self) -> None:
        """Something changed elsewhere: perhaps a person cancelled what runs here."""
        self._is_told = True

    def report(self, item: Item, progress: bytes) -> None:
        """Remember how far an item is; the last word counts."""
        self._reports[item.id] = (item, progress)

    def tick(self, now: datetime) -> datetime:
        due = {fence: lease for fence, lease in self._hands.held().items() if lease.beaten_at + self._beat <= now}
        if due:
            self._prolong(due, now)
        if self._is_told and self._look_at <= now:
            self._look(now)
        self._write_reports()
        leases = self._hands.held()
        if not leases and not self._reports:
            return now + IDLE
        beats = (lease.beaten_at + self._beat for lease in leases.values())
        looks = [self._look_at] if self._is_told else []
        return min((*beats, *looks, now + REPORT_EVERY))

    def _look(self, now: datetime) -> None:
        """Find out what is not ours any more without waiting for a beat. It only reads: a write would be news again."""
        self._is_told, self._look_at = False, now + LOOK_EVERY
        items = [item for work in self._hands.works() for item in work.items]
        running = set(self._store.running([item.id for item in items])) if items else set()
        if lost := {item.id for item in items if (item.id, item.fence) not in running}:
            self._drop(lost)

    def _drop(self, lost: set[int]) -> None:
        for fence in drop(self._hands, lost):
            self._hands.emptied(fence)

    def _prolong(self, due: dict[int, Lease], now: datetime) -> None:
        lease_until = now + self._lease
        ends = time.monotonic() + self._lease.total_seconds()
        lost = self._store.extend({fence: tuple(lease.open) for fence, lease in due.items()}, now, lease_until)
        for lease in due.values():
            lease.beaten_at, lease.ends = now, ends
        if lost:
            self._drop(set(lost))

    def _write_reports(self) -> None:
        reports, self._reports = self._reports, {}
        for item, progress in reports.values():
            self._store.report(item.id, item.fence, progress)


class Guard:
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
        ending = {fence for fence, lease in self._hands.held().items() if lease.ends - self._margin <= time.monotonic()}
        if ending:
            log.error("could not prolong %d leases in time: stopping their handlers", len(ending))
            drop(self._hands, {item.id for work in self._hands.works() for item in work.items if item.fence in ending})
            self._hands.forget(ending)
        return self._next(now)

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


def drop(hands: Hands, lost: set[int]) -> list[int]:
    """These items are not ours any more: stop the works that are about nothing else, and forget them.

    Returns the fences of leases that have nothing left under them here.
    """
    gone = []
    for work in hands.works():
        ours = [item for item in work.items if item.id in lost]
        gone.extend(ours)
        if len(ours) == len(work.items) and hands.take(work):
            log.warning("%s %s is no longer ours: stopping it", work.task.label, ", ".join(str(i.id) for i in ours))
            if work.stop is not None:
                work.stop(work)
    return hands.let_go(gone)
