"""Counts claims and settles, at one place: around the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from duly.core.model import Ask, Change, Grant, Item, Share
from duly.store.contract import Store
from duly.telemetry.counts import Counts


class Observed:
    """A store that counts its claims and settles; all other calls go straight to the store inside."""

    def __init__(self, store: Store, counts: Counts) -> None:
        self._store = store
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        begun = time.monotonic()
        items = self._store.claim(shares, worker, now, lease)
        self._counts.took("claim", time.monotonic() - begun)
        self._counts.claimed(shares, items)
        return items

    def claim_metered(self, asks: Sequence[Ask], *more: Any) -> list[Grant]:
        begun = time.monotonic()
        grants = self._store.claim_metered(asks, *more)
        self._counts.took("claim", time.monotonic() - begun)
        for ask, grant in zip(asks, grants, strict=True):
            if grant.items:
                self._counts.claimed([ask.share], grant.items)
            elif grant.is_refused:
                self._counts.limited(ask.share)
        return grants

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        begun = time.monotonic()
        refused = self._store.settle(changes, closed, connection)
        self._counts.took("settle", time.monotonic() - begun)
        self._counts.settled(changes, refused)
        return refused
