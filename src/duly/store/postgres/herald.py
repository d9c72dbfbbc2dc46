"""Notifies idle workers of new items without slowing down puts.

PostgreSQL serialises commits that carry a NOTIFY, so at most one put per `pause` carries one. What is put in between is
announced together a moment later, from another thread. If that is lost, workers find the items with their next sweep.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from duly.core.clock import EPOCH
from duly.core.forks import renew_in_children
from duly.core.model import Head, Line, NewItem

PAUSE = 0.01
# Items that are due later than this are not announced: workers find them with their own sweeps.
SOON = timedelta(seconds=60)


class Herald:
    def __init__(self, send: Callable[[list[str]], None], pause: float = PAUSE) -> None:
        self._send = send
        self._pause = pause
        self._closed = False
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Start without pending notifications: those from before a fork are sent by the parent."""
        self._last = -float("inf")
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def lead(self) -> bool:
        """Whether this put may carry its own NOTIFY."""
        now = time.monotonic()
        with self._lock:
            if now - self._last < self._pause:
                return False
            self._last = now
            return True

    def trail(self, news: Iterable[str]) -> None:
        """Announce these a moment later, from another thread."""
        with self._lock:
            self._pending.update(news)
            if not self._pending:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="duly-herald", daemon=True)
                self._thread.start()
                atexit.register(self.flush)
        self._wake.set()

    def flush(self) -> None:
        """Announce now what is pending; errors of an unreachable database are ignored, since news is only a hint."""
        with self._lock:
            news, self._pending = sorted(self._pending), set()
            self._last = time.monotonic()
        if news:
            with suppress(Exception):
                self._send(news)

    def close(self) -> None:
        """Send pending notifications and end the thread."""
        self.flush()
        atexit.unregister(self.flush)
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        while self._wake.wait() and not self._closed:
            time.sleep(self._pause)
            self._wake.clear()
            self.flush()


def news_of(new: NewItem) -> str | None:
    """The announcement of a new item; None if it is due so late that none is needed."""
    due_at = new.due_at
    if due_at is not None and due_at > datetime.now(UTC) + SOON:
        return None
    due = 0 if due_at is None else int((due_at - EPOCH) / timedelta(microseconds=1))
    return f"{due}\t{new.rank}\t{new.task}\t{new.owner or ''}\t{new.queue}"


def head_of(news: str) -> Head | None:
    """The head in an announcement; None if it has another form, such as that of another version."""
    try:
        due, rank, task, owner, queue = news.split("\t", 4)
        return Head(Line(queue, task, owner), "main", int(rank), EPOCH + timedelta(microseconds=int(due)))
    except (ValueError, OverflowError):
        return None
