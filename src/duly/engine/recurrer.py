"""Makes the items of schedules that are due. Every worker does this; the first to lock a schedule advances it.

Schedules whose rule or zone is unknown here stay due, for another worker may know it. This worker leaves them alone for
a while, so that even very many of them do not keep it from the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from msgspec.json import encode

from duly.core.advance import advance_all
from duly.core.clock import EPOCH
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

# How many schedules are moved on in one transaction.
PORTION = 500
BUSY = timedelta(milliseconds=50)
# When schedules that were not understood are looked at again: a person may have changed them.
LOOK_AGAIN = timedelta(seconds=60)
# How many of them are named in the log.
SHOWN = 10


class Recurrer:
    def __init__(self, store: Store, *, sweep: float, made: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._sweep = timedelta(seconds=sweep)
        self._made = made
        self._unread: set[int] = set()  # schedules whose rule or zone was unknown here at the last look
        self._logged: set[int] = set()
        self._look_again_at = EPOCH

    def tick(self, now: datetime) -> datetime:
        if now >= self._look_again_at:
            self._unread.clear()
            self._look_again_at = now + LOOK_AGAIN
        next_at = self.next_at()
        # If another process plans something earlier, a notification or the next sweep finds it.
        if next_at is None or next_at > now:
            return min(next_at or now + self._sweep, now + self._sweep)
        unread: list[int] = []
        plan = partial(advance_all, now, unread=unread)
        seen = self._store.revise(None, now, PORTION, plan, without=list(self._unread))
        self._set_aside(unread)
        if seen:
            self._made()
            return now
        return now + BUSY  # another worker has them

    def _set_aside(self, unread: list[int]) -> None:
        self._unread.update(unread)
        if new := [each for each in unread if each not in self._logged]:
            self._logged.update(new)
            log.error(
                "%d due schedules have a rule or time zone that is unknown here; another worker may know it: %s%s",
                len(new), ", ".join(map(str, new[:SHOWN])), ", …" if len(new) > SHOWN else "",
            )  # fmt: skip

    def next_at(self) -> datetime | None:
        """When the next schedule is due, without those that are left alone."""
        unread = encode(list(self._unread)).decode()
        next_at: datetime | None = self._store.read("next_schedule", {"without": unread})[0][0]
        return next_at
