"""Forgets finished items when their time is over, a portion at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.store.base import Store

PORTION = 1_000
EVERY = timedelta(seconds=60)
BREATH = timedelta(milliseconds=100)


class Pruner:
    def __init__(self, store: Store, keep: float) -> None:
        self._store = store
        self._keep = timedelta(seconds=keep)

    def tick(self, now: datetime) -> datetime:
        if not self._keep:
            return now + timedelta(days=1)
        gone = self._store.prune(now - self._keep, PORTION)
        return now + (BREATH if gone >= PORTION else EVERY)
