"""Releases the items of dead workers, and those of a claim of this worker whose answer was lost.

It also has puts of very many items finished, or undone, whose process died.

Every worker does this. A lost lease is decided like any other outcome, by the rules of the item's task, so only a
worker that has the task decides. Items of other tasks are left to the workers that have them.

`Detector` finds dead leases: those that were not prolonged although their workers could have done so. Clocks are not
trusted: the database's may be set, and workers that write leases may not have noticed yet. What counts is whether a
lease changes while it is observed. A lease is dead when its time is over, counted on this process's monotonic clock
from when it was first seen, and it has been seen unchanged for a whole lease's time without interruption. An
interruption is whatever may have kept live workers from their heartbeats: the database was away, writers had to wait,
this process stood still. Then the observation begins anew, with time for workers to reconnect.

A lease's time is this worker's own `lease_seconds`. Workers with another value are judged rightly as long as they send
heartbeats more often than that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from duly.core.decide import UNKNOWN, decide
from duly.core.model import Change, Item, Lost, Released
from duly.engine.settler import ruling
from duly.engine.work import InFlight, Tasks, Wake, nothing
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

# How many leases are rescued per sweep, so that the items of many crashed workers come back in portions.
PORTION = 20
INSTANT = timedelta(microseconds=1)
MOMENT = 0.001
# In parts of a lease: how often to look at least, and after which gap between two looks the observation starts again.
LOOK_WITHIN = 0.4
LONGEST_GAP = 0.6
# After an outage every live worker is back within this time (seconds).
RECONNECT = 5.0
# If a lease seems to last for more than this many leases' time, a clock was set back, and its end does not count.
MOST_LEFT = 10


class _Seen(NamedTuple):
    until: datetime
    since: float
    ends: float


class Detector:
    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: dict[int, _Seen] = {}
        self._looked: float | None = None
        self._steady_since = -float("inf")

    def interrupt(self) -> None:
        """A look failed, so other workers may have failed to write their heartbeats as well."""
        self._looked = -float("inf")

    def look(self, leases: Iterable[tuple[int, datetime]], now: datetime, asked: float, answered: float) -> list[int]:
        """Given all leases that there are, each as fence and end, return the dead ones.

        `now` is the database's time. `asked` and `answered` are when the leases were read, on the monotonic clock.
        """
        gap = answered - self._looked if self._looked is not None else 0.0
        if gap > LONGEST_GAP * self._lease:
            self._steady_since = answered + max(min(gap, RECONNECT) - self._lease, 0.0)
        self._looked = answered
        self._seen = {fence: self._follow(fence, until, now, answered) for fence, until in leases}
        return [fence for fence, seen in self._seen.items() if self._dead_from(seen) <= asked]

    def next_after(self, at: float) -> float:
        """When the next lease will be dead, if it does not change."""
        return min((end for seen in self._seen.values() if (end := self._dead_from(seen)) > at), default=float("inf"))

    def _follow(self, fence: int, until: datetime, now: datetime, at: float) -> _Seen:
        seen = self._seen.get(fence)
        if seen is not None and seen.until == until:
            return seen
        left = min((until - now).total_seconds(), MOST_LEFT * self._lease)
        return _Seen(until, at, at + left)

    def _dead_from(self, seen: _Seen) -> float:
        return max(seen.ends, max(seen.since, self._steady_since) + self._lease)


@dataclass(eq=False)
class Rescuer:
    store: Store
    tasks: Tasks
    detector: Detector
    _: KW_ONLY
    sweep: float
    worker: str = ""
    in_flight: InFlight = field(default_factory=InFlight)
    swept: Wake = nothing
    ticks: Callable[[], float] = time.monotonic
    # When the leases of others end, as of the last sweep.
    _until: dict[int, datetime] = field(default_factory=dict, init=False)
    # Leases in our name that we did not hold at the last sweep.
    _unheld: set[int] = field(default_factory=set, init=False)
    # Dead leases of tasks unknown here, least recently looked at first.
    _strange: dict[int, datetime] = field(default_factory=dict, init=False)

    def tick(self, now: datetime) -> datetime:
        begun = self.ticks()
        try:
            has_more = self._rescue_some(self._look(now), now)
            has_more |= self.store.finish_loads()
        except BaseException:
            self.detector.interrupt()
            raise
        self.swept()
        # Come back earlier if a lease will be dead before the next sweep.
        pause = min(self.sweep, self.detector.next_after(begun) - begun + MOMENT)
        return now if has_more else now + timedelta(seconds=pause)

    def _look(self, now: datetime) -> list[int]:
        """Read the leases; returns the dead ones."""
        asked = self.ticks()
        leases = self.store.leases()
        answered = self.ticks()
        held = self.in_flight.held()
        others = [(fence, until) for fence, worker, until in leases if worker != self.worker or fence not in held]
        self._until = dict(others)
        dead = self.detector.look(others, now, asked, answered)
        self._give_back({fence for fence, worker, _ in leases if worker == self.worker} - held.keys(), now)
        return dead

    def _give_back(self, unheld: set[int], now: datetime) -> None:
        """Give back leases in our name that we did not hold in two sweeps: the answer to their claim was lost."""
        ours = self.in_flight.disown(unheld & self._unheld)
        self._unheld = unheld
        if ours:
            items, _ = self.store.under(ours)
            self.store.settle(
                [decide(item, Released("its worker did not learn of its claim"), now, UNKNOWN) for item in items], ours
            )
            log.warning("gave back %d items of claims whose answer was lost", len(items))

    def _rescue_some(self, dead: Sequence[int], now: datetime) -> bool:
        """Rescue a portion of the dead leases; returns whether there are more."""
        self._strange = {fence: until for fence, until in self._strange.items() if self._until.get(fence) == until}
        news = [fence for fence in dead if fence not in self._strange]
        for start in range(0, len(news), PORTION):
            if self._rescue(news[start : start + PORTION], now):
                return len(news) > start + PORTION
        # Also look at a few leases of unknown tasks: once another worker has decided their items, they are deleted.
        strange = self._strange.keys() & set(dead)
        self._rescue([fence for fence in self._strange if fence in strange][:PORTION], now)
        return False

    def _rescue(self, fences: list[int], now: datetime) -> bool:
        """Rescue the items of known tasks under these leases; returns whether there were any."""
        if not fences:
            return False
        items, empty = self.store.under(fences)
        known = [item for item in items if item.task in self.tasks]
        strange = {item.fence for item in items if item.task not in self.tasks}
        for fence in fences:
            self._strange.pop(fence, None)
        self._strange.update((fence, self._until[fence]) for fence in strange)
        if known:
            refused = set(self.store.settle([self._lose(item, now) for item in known]))
            # A lease that its worker has extended after all stays; the others have no items left now.
            kept = {item.fence for item in known if item.id in refused}
            empty += {item.fence for item in known} - kept - strange
            log.warning("rescued %d items of vanished workers", len(known) - len(refused))
        if empty:
            self.store.settle([], empty)
        return bool(known or empty)

    def _lose(self, item: Item, now: datetime) -> Change:
        """The change of a lost item. It does not apply if the lease was extended since it was last seen."""
        change = ruling(self.tasks, item, Lost(), now)
        return replace(change, expired_at=self._until[item.fence] + INSTANT)
