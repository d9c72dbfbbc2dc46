"""Gives the work of dead workers back. Every worker sweeps; a lost lease is decided like any other outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from duly.clock import Clock
from duly.engine.settler import ruling
from duly.model import Lost
from duly.store.base import Store
from duly.task import Task

log = logging.getLogger("duly.engine")

# Leases rescued per sweep, so that a mass crash comes back in portions.
PORTION = 20


class Rescuer:
    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, Task[..., Any]],
        clock: Clock,
        *,
        sweep: float,
        settle_down: float,
        swept: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._sweep = timedelta(seconds=sweep)
        self._settle_down = settle_down
        self._swept = swept

    def tick(self, now: datetime) -> datetime:
        # After a jump of the clock every lease may look old: first let all their owners see the new time and prolong.
        if self._clock.steady_for() < self._settle_down:
            return now + self._sweep
        items, empty = self._store.expired(now, PORTION)
        changes = [ruling(self._tasks, item, Lost(), now) for item in items]
        if changes:
            refused = set(self._store.settle(changes))
            # A lease whose owner came back in time stays; the others have nothing left under them now.
            kept = {item.fence for item in items if item.id in refused}
            empty += {item.fence for item in items} - kept
            log.warning("rescued %d items of vanished workers", len(changes) - len(refused))
        if empty:
            self._store.settle([], empty)
        self._swept()
        return now if len(empty) >= PORTION else now + self._sweep
