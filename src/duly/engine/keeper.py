"""Extends leases, and stops handlers that must not continue.

`Keeper` prolongs leases on a thread and a connection of its own, so that no handler can starve it. `Watchdog` does not
use the database at all: it stops handlers past their deadline, and those whose lease is about to end because the keeper
could not reach the database in time, since another worker may then start the same items. Both go by the monotonic
clock, because the database's may be set while handlers run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from duly.core.model import Failed, Item, Released
from duly.engine.calls import Verdicts
from duly.engine.work import InFlight, Lease, Wake, Work, nothing
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

REPORT_EVERY = 1.0
LOOK_EVERY = 0.4
# How long both sleep while this worker holds no leases; the next lease wakes them.
IDLE = timedelta(hours=1)


@dataclass(eq=False)
class Keeper:
    store: Store
    in_flight: InFlight
    _: KW_ONLY
    lease: float
    beat: float
    wake: Wake = nothing
    ticks: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._reports: dict[tuple[int, int], tuple[Item, bytes]] = {}
        self._must_look = False
        self._look_at = -float("inf")  # when the next look is allowed, on the monotonic clock

    def look_soon(self) -> None:
        """Look soon whether the items that run here are still ours: a person may have cancelled one."""
        self._must_look = True
        self.wake()

    def report(self, item: Item, progress: bytes) -> None:
        """Remember how far a try is, to be written soon; only the latest report of a try is written."""
        self._reports[item.id, item.fence] = (item, progress)

    def tick(self, now: datetime) -> datetime:
        due = {fence: lease for fence, lease in self.in_flight.held().items() if self._due(lease) <= self.ticks()}
        if due:
            self._prolong(due, now)
        if self._must_look and self._look_at <= self.ticks():
            self._look()
        self.write_reports()
        leases = self.in_flight.held()
        if not leases and not self._reports:
            return now + IDLE
        times = [self._due(lease) for lease in leases.values()]
        if self._must_look:
            times.append(self._look_at)
        nearest = min(times, default=float("inf")) - self.ticks()
        return now + timedelta(seconds=max(min(nearest, REPORT_EVERY), 0.0))

    def _due(self, lease: Lease) -> float:
        """When to extend it: a beat after it was claimed or last extended."""
        return lease.ends - self.lease + self.beat

    def _look(self) -> None:
        """Find out now which items are no longer ours. It only reads, because a write would be news again."""
        self._must_look, self._look_at = False, self.ticks() + LOOK_EVERY
        items = [item for work in self.in_flight.works() for item in work.items]
        running = set(self.store.running([item.id for item in items])) if items else set()
        if lost := {(item.id, item.fence) for item in items if (item.id, item.fence) not in running}:
            self.in_flight.drop(lost)

    def _prolong(self, due: dict[int, Lease], now: datetime) -> None:
        ends = self.ticks() + self.lease
        lease_until = now + timedelta(seconds=self.lease)
        lost = self.store.extend({fence: tuple(lease.open) for fence, lease in due.items()}, now, lease_until)
        for lease in due.values():
            lease.ends, lease.is_ending = ends, False
        if lost:
            self.in_flight.drop(lost)

    def write_reports(self) -> None:
        reports, self._reports = self._reports, {}
        for item, progress in reports.values():
            self.store.report(item.id, item.fence, progress)


@dataclass(eq=False)
class Watchdog:
    in_flight: InFlight
    _: KW_ONLY
    lease: float
    finish: Callable[..., bool]
    hung: Callable[[Work], list[Work]]  # given a work past its deadline, returns the works that it blocks
    stale: Callable[[], list[Work]] = list  # returns works that waited too long for a slot

    def tick(self, now: datetime) -> datetime:
        for work in self.stale():
            self._give_back(work, waited(work))
        self._end_overdue()
        held = self.in_flight.held()
        # Stop handlers early enough for them to end before another worker may start the same items.
        soon = time.monotonic() + self.lease / 10
        ending = {fence for fence, lease in held.items() if lease.ends <= soon}
        if news := [held[fence] for fence in ending if not held[fence].is_ending]:
            log.error("could not extend %d leases in time: stopping their handlers", len(news))
            for lease in news:
                lease.is_ending = True
        # Their attempts are released when the database answers again. A thread cannot be stopped. It continues, and its
        # result counts if no other worker has taken over the lease by then. The keeper keeps trying to extend the
        # lease, so that other workers do not treat an unwritten result as a crash.
        for work in self.in_flight.works():
            if work.can_stop and ending.intersection(item.fence for item in work.items):
                self._give_back(work, "its lease could not be extended in time")
        return self._next(now)

    def _give_back(self, work: Work, reason: str) -> None:
        self.finish(work, [Released(reason)] * len(work.items), stop=True)

    def _end_overdue(self) -> None:
        for work in self.in_flight.works():
            if work.deadline <= time.monotonic():
                error = f"DeadlineExceeded: still running after {work.task.deadline:g} s"
                verdicts: Verdicts = [Failed(error, ("duly.DeadlineExceeded", "TimeoutError"))] * len(work.items)
                if self.finish(work, verdicts, stop=True):
                    for blocked in self.hung(work):
                        self._give_back(blocked, "a handler blocked the event loop of its worker")

    def _next(self, now: datetime) -> datetime:
        if not self.in_flight.held() and not len(self.in_flight):
            return now + IDLE
        nearest = min((work.deadline for work in self.in_flight.works()), default=float("inf")) - time.monotonic()
        return now + timedelta(seconds=max(min(nearest, 0.5), 0.0))


def waited(work: Work) -> str:
    """Why a work that waited too long is given back."""
    if work.task.pace is not None:
        return f"the pace of {work.task.pace.name} had no room for it"
    return "no slot of its worker was free for it"
