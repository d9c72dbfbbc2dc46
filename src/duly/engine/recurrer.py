"""Makes items of schedules that are due. Every worker does it; whoever locks a schedule first moves it on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from duly.advance import advance_all
from duly.store.base import Store

# Schedules moved on in one transaction.
PORTION = 500
BUSY = timedelta(milliseconds=50)


class Recurrer:
    def __init__(self, store: Store, *, sweep: float, made: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._sweep = timedelta(seconds=sweep)
        self._made = made

    def tick(self, now: datetime) -> datetime:
        next_at = self.next_at()
        # What another process plans meanwhile is news, or is seen at the next sweep.
        if next_at is None or next_at > now:
            return now + self._sweep if next_at is None else min(next_at, now + self._sweep)
        if self._store.revise(None, now, PORTION, partial(advance_all, now)):
            self._made()
            return now
        return now + BUSY  # another worker has them

    def next_at(self) -> datetime | None:
        """When the next schedule is due."""
        next_at: datetime | None = self._store.read("next_schedule", {})[0][0]
        return next_at
