"""Gives back the items of dead workers, and those of a claim of our own whose answer was lost.

Every worker does this. A lost lease is decided like any other outcome, by the rules of the item's task, so only a
worker that has the task decides. Items of other tasks are left to the workers that have them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from duly.core.decide import UNKNOWN, decide
from duly.core.model import Change, Item, Lost, Released
from duly.engine.detector import Detector
from duly.engine.settler import ruling
from duly.engine.work import InFlight, Tasks
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

# How many leases are rescued per sweep, so that the items of many crashed workers come back in portions.
PORTION = 20
INSTANT = timedelta(microseconds=1)
MOMENT = 0.001


class Rescuer:
    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        detector: Detector,
        *,
        sweep: float,
        worker: str = "",
        in_flight: InFlight | None = None,
        swept: Callable[[], None] = lambda: None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._detector = detector
        self._sweep = sweep
        self._worker = worker
        self._in_flight = in_flight if in_flight is not None else InFlight()
        self._swept = swept
        self._ticks = ticks
        self._until: dict[int, datetime] = {}  # when the leases of others end, as of the last sweep
        self._unheld: set[int] = set()  # leases in our name that we did not hold at the last sweep
        self._strange: dict[int, datetime] = {}  # dead leases of tasks unknown here, least recently looked at first

    def tick(self, now: datetime) -> datetime:
        begun = self._ticks()
        try:
            has_more = self._rescue_some(self._look(now), now)
        except BaseException:
            self._detector.interrupt()
            raise
        self._swept()
        # Come back earlier if a lease will be dead before the next sweep.
        pause = min(self._sweep, self._detector.next_after(begun) - begun + MOMENT)
        return now if has_more else now + timedelta(seconds=pause)

    def _look(self, now: datetime) -> list[int]:
        """Read the leases; returns the dead ones."""
        asked = self._ticks()
        leases = self._store.leases()
        answered = self._ticks()
        held = self._in_flight.held()
        others = [(fence, until) for fence, worker, until in leases if worker != self._worker or fence not in held]
        self._until = dict(others)
        dead = self._detector.look(others, now, asked, answered)
        self._give_back({fence for fence, worker, _ in leases if worker == self._worker} - held.keys(), now)
        return dead

    def _give_back(self, unheld: set[int], now: datetime) -> None:
        """Give back leases in our name that we did not hold in two sweeps: the answer to their claim was lost."""
        ours = self._in_flight.disown(unheld & self._unheld)
        self._unheld = unheld
        if ours:
            items, _ = self._store.under(ours)
            self._store.settle([decide(item, Released(), now, UNKNOWN) for item in items], ours)
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
        items, empty = self._store.under(fences)
        known = [item for item in items if item.task in self._tasks]
        strange = {item.fence for item in items if item.task not in self._tasks}
        for fence in fences:
            self._strange.pop(fence, None)
        self._strange.update((fence, self._until[fence]) for fence in strange)
        if known:
            refused = set(self._store.settle([self._lose(item, now) for item in known]))
            # A lease that its worker prolonged after all stays; the others have no items left now.
            kept = {item.fence for item in known if item.id in refused}
            empty += {item.fence for item in known} - kept - strange
            log.warning("rescued %d items of vanished workers", len(known) - len(refused))
        if empty:
            self._store.settle([], empty)
        return bool(known or empty)

    def _lose(self, item: Item, now: datetime) -> Change:
        """The change of a lost item. It does not apply if the lease was prolonged since it was last seen."""
        change = ruling(self._tasks, item, Lost(), now)
        return replace(change, expired_at=self._until[item.fence] + INSTANT)
