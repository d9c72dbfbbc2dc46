"""What follows when ends of items are written: waiting callers are notified, and the rows of a kickoff are counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from duly.core.model import Change
from duly.store.contract import Store

# Seconds for which ends are notified after somebody asked for that.
AWAITED_FOR = 30.0


class Ends:
    def __init__(self, store: Store, *, counts: bool) -> None:
        self._store = store
        self._counts = counts
        self._awaited_until = 0.0  # on the monotonic clock
        self.by_status: Counter[str] = Counter()  # how rows of jobs ended, for a worker of a single line

    def awaited(self) -> None:
        """Somebody waits for ends of items."""
        self._awaited_until = time.monotonic() + AWAITED_FOR

    def settled(self, changes: Sequence[Change]) -> None:
        """These changes were written."""
        if self._counts:
            self.by_status.update(
                change.status
                for change in changes
                if change.status is not None and (change.finished_at is not None or change.tried is not None)
            )
        if time.monotonic() < self._awaited_until:
            self._store.tell_of_ends()
