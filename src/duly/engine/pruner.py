"""Forgets finished items when their time is over.

It walks the items by id, a portion at a time, and starts over when it reaches those that are too young. So no index has
to be kept for it, and a history of millions is never looked at in one go.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.store.base import Store

PORTION = 2_000
EVERY = timedelta(seconds=60)
STEP = timedelta(seconds=1)
BREATH = timedelta(milliseconds=100)


class Pruner:
    def __init__(self, store: Store, keep: float) -> None:
        self._store = store
        self._keep = timedelta(seconds=keep)
        self._after = 0

    def tick(self, now: datetime) -> datetime:
        if not self._keep:
            return now + timedelta(days=1)
        gone, go_on = self._store.prune(now - self._keep, self._after, PORTION)
        self._after = go_on or 0
        if gone:
            return now + BREATH
        return now + (EVERY if go_on is None else STEP)
