"""Tells idle workers of new work without slowing whoever puts it.

PostgreSQL serialises the commits that carry a NOTIFY, so at most one put per `pause` carries one; what is put in
between is announced together, afterwards, from a thread of its own. Lost news only costs the wait for a sweep.
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
# Workers learn of anything that is due later than this from their own sweeps.
SOON = timedelta(seconds=60)


class Herald:
    def __init__(self, send: Callable[[list[str]], None], pause: float = PAUSE) -> None:
        self._send = send
        self._pause = pause
        self._closed = False
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Begin with nothing to tell: what was pending before a fork is the parent's to tell."""
        self._last = -float("inf")
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def lead(self) -> bool:
        """Whether this put may carry its own news."""
        now = time.monotonic()
        with self._lock:
            if now - self._last < self._pause:
                return False
            self._last = now
            return True

    def trail(self, news: Iterable[str]) -> None:
        """Announce these soon, from another thread."""
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
        """Announce now whatever is pending; silent when the database is away, for the news is only a hint."""
        with self._lock:
            news, self._pending = sorted(self._pending), set()
            self._last = time.monotonic()
        if news:
            with suppress(Exception):
                self._send(news)

    def close(self) -> None:
        """Announce what is pending and end the thread."""
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
    """What to say about a new item, or None when nobody needs to hurry for it."""
    due_at = new.due_at
    if due_at is not None and due_at > datetime.now(UTC) + SOON:
        return None
    due = 0 if due_at is None else int((due_at - EPOCH) / timedelta(microseconds=1))
    return f"{due}\t{new.rank}\t{new.task}\t{new.owner or ''}\t{new.queue}"


def head_of(news: str) -> Head | None:
    """The head that a piece of news tells of; None when it is not ours to read."""
    try:
        due, rank, task, owner, queue = news.split("\t", 4)
        return Head(Line(queue, task, owner), "main", int(rank), EPOCH + timedelta(microseconds=int(due)))
    except (ValueError, OverflowError):
        return None
