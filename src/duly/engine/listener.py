"""Listens for notifications of the database and passes each on to the part of the worker that it concerns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

from duly.engine.ends import Ends
from duly.engine.inbox import ClaimerInbox
from duly.engine.work import Wake
from duly.store.contract import AWAITED, News, Store

# Seconds between two looks for schedules that notifications cause.
RECUR_WITHIN = 1.0


class NotificationListener:
    def __init__(
        self, store: Store, inbox: ClaimerInbox, ends: Ends, *, check_running: Callable[[], None], wake_recurrer: Wake
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._ends = ends
        self._check_running = check_running
        self._wake_recurrer = wake_recurrer
        self._recurred_at = 0.0  # on the monotonic clock
        self._stop = threading.Event()

    def tick(self, now: datetime) -> datetime:
        """Listen until `stop`. An error ends it, and the loop starts it again."""
        self._store.listen(self._hear, self._stop)
        return now

    def stop(self) -> None:
        self._stop.set()

    def _hear(self, news: News) -> None:
        if news == AWAITED:
            self._ends.awaited()
        elif news is not None:
            self._inbox.put(news)
        else:  # a schedule or a running item may have been changed
            self._inbox.changed()
            self._check_running()
            if time.monotonic() - self._recurred_at > RECUR_WITHIN:
                self._recurred_at = time.monotonic()
                self._wake_recurrer()
