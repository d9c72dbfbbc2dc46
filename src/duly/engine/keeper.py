"""Keeps leases alive, on a thread and a connection of its own, so that no handler can starve it.

It also ends what must end: works past their hard deadline, works whose item was taken away (cancelled, or given to
another worker), and everything under a lease that could not be prolonged in time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from duly.engine.calls import Verdicts
from duly.engine.work import Hands, Lease, Work
from duly.errors import StoreUnavailable
from duly.model import Failed, Item
from duly.store.base import Store

log = logging.getLogger("duly.engine")

REPORT_EVERY = timedelta(seconds=1)


class Keeper:
    def __init__(
        self,
        store: Store,
        hands: Hands,
        *,
        lease: float,
        beat: float,
        finish: Callable[[Work, Verdicts], None],
        hung: Callable[[Work], None],
    ) -> None:
        self._store = store
        self._hands = hands
        self._lease = timedelta(seconds=lease)
        self._beat = timedelta(seconds=beat)
        # Stop handlers while there is still time for them to end before someone else may start.
        self._margin = timedelta(seconds=min(beat, lease / 4))
        self._finish = finish
        self._hung = hung
        self._reports: dict[int, tuple[Item, bytes]] = {}
        self._reported_at: datetime | None = None

    def report(self, item: Item, progress: bytes) -> None:
        """Remember how far an item is; the last word counts."""
        self._reports[item.id] = (item, progress)

    def tick(self, now: datetime) -> datetime:
        self._end_overdue()
        self._write_reports(now)
        leases = self._hands.held()
        due = {fence: lease for fence, lease in leases.items() if lease.beaten_at + self._beat <= now}
        if due:
            self._prolong(due, now)
        return self._next(now)

    def _prolong(self, due: dict[int, Lease], now: datetime) -> None:
        lease_until = now + self._lease
        try:
            lost = self._store.extend({fence: tuple(lease.open) for fence, lease in due.items()}, now, lease_until)
        except StoreUnavailable as error:
            self._give_in(due, now, error)
            raise
        for lease in due.values():
            lease.beaten_at, lease.lease_until = now, lease_until
        if lost:
            self._drop(set(lost))

    def _give_in(self, due: dict[int, Lease], now: datetime, error: Exception) -> None:
        """A lease about to end with the database away: stop its works, for others will take them over."""
        ending = {fence for fence, lease in due.items() if lease.lease_until - self._margin <= now}
        if ending:
            log.error("cannot prolong %d leases in time, stopping their handlers: %s", len(ending), error)
            self._drop({item.id for work in self._hands.works() for item in work.items if item.fence in ending})

    def _drop(self, lost: set[int]) -> None:
        """These items are not ours any more: stop the works that are about nothing else, and forget them."""
        gone = []
        for work in self._hands.works():
            ours = [item for item in work.items if item.id in lost]
            gone.extend(ours)
            if len(ours) == len(work.items) and self._hands.take(work) and work.stop is not None:
                log.warning("%s %s is no longer ours, stopping it", work.task.label, ", ".join(str(i.id) for i in ours))
                work.stop()
        self._hands.let_go(gone)

    def _end_overdue(self) -> None:
        for work in self._hands.works():
            if work.deadline <= time.monotonic():
                error = f"DeadlineExceeded: still running after {work.task.deadline:g} s"
                self._finish(work, [Failed(error, ("duly.DeadlineExceeded", "TimeoutError"))] * len(work.items))
                if work.stop is not None:
                    work.stop()
                self._hung(work)

    def _write_reports(self, now: datetime) -> None:
        if self._reports and (self._reported_at is None or self._reported_at + REPORT_EVERY <= now):
            reports, self._reports = self._reports, {}
            self._reported_at = now
            for item, progress in reports.values():
                self._store.report(item.id, item.fence, progress)

    def _next(self, now: datetime) -> datetime:
        nearest = min((work.deadline for work in self._hands.works()), default=float("inf")) - time.monotonic()
        beats = min((lease.beaten_at + self._beat for lease in self._hands.held().values()), default=now + self._beat)
        return min(beats, now + timedelta(seconds=max(min(nearest, 1.0), 0.0)))
