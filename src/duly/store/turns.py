"""Whose turn it is to write to a SQLite file: first among the threads of this process, then among all processes.

Threads queue in a line of their own, for the kernel would let a process wait for itself for ever. Processes queue for a
lock file beside the database, which the kernel hands over and frees at death. An exception from a signal may end a wait
at any moment, also in the one in which its turn comes or is being given back. So nothing here depends on what a wait
returned, and nothing is held but by objects: what is no longer referred to has left the line and let go of the file.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from duly.errors import StoreUnavailable

# Seconds after which a waiting thread looks for itself whose turn it is.
LOOK_AGAIN = 0.5


@contextmanager
def turn(path: str, timeout: float) -> Iterator[None]:
    """This thread's turn to write to this file, until the end of the block."""
    line, place = _LINES.setdefault(os.path.realpath(path), Line()), Place()
    try:
        if not line.join(place, timeout):
            raise StoreUnavailable(
                f"{path}: a transaction of this process is open for {timeout:g} seconds and more; "
                "inside one, write on its own connection"
            )
        lock = FileLock(f"{path}-lock")
        try:
            if not lock.take(timeout):
                raise StoreUnavailable(f"{path}: another process has been writing for {timeout:g} seconds and more")
            yield
        finally:
            lock.free()
    finally:
        line.leave(place)


class Place:
    """One thread's place in a line, for as long as the thread refers to it."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.has_left = False


class Line:
    """The threads that want to write, in the order they came: it is the first one's turn."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: deque[weakref.ref[Place]] = deque()

    def join(self, place: Place, timeout: float) -> bool:
        """Wait for the turn; False when it did not come in time. In any case `leave` afterwards."""
        give_up = time.monotonic() + timeout
        with self._mutex:
            self._places.append(weakref.ref(place))
        while self._first() is not place:
            left = give_up - time.monotonic()
            if left <= 0:
                return False
            # To be called only hurries: whoever was interrupted while leaving has called nobody.
            place.called.wait(min(left, LOOK_AGAIN))
        return True

    def leave(self, place: Place) -> None:
        """Step out, from wherever in the line this is; the turn, if it was this one's, is the next one's."""
        place.has_left = True
        if (following := self._first()) is not None:
            following.called.set()

    def _first(self) -> Place | None:
        """Whose turn it is, past those who are gone."""
        with self._mutex:
            while self._places:
                place = self._places[0]()
                if place is not None and not place.has_left:
                    return place
                self._places.popleft()
        return None


class FileLock:
    """The lock between processes: in the kernel's queue for it, but not for ever."""

    def __init__(self, path: str) -> None:
        # An object of Python's, which closes the file with its last reference.
        self._file = open(path, "a+b", buffering=0, opener=_open)  # noqa: SIM115
        self._is_awaited = False
        # Taken by whichever comes first: the lock, or the end of the wish to have it.
        self._settled = threading.Lock()

    def take(self, timeout: float) -> bool:
        """Wait for the lock; False when it did not come in time. In any case `free` afterwards."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait(timeout)
        return True

    def _wait(self, timeout: float) -> bool:
        # A wait in the kernel has no end of its own, so a thread waits, and gives back what nobody waits for any more.
        came: queue.SimpleQueue[bool] = queue.SimpleQueue()

        def wait() -> None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if self._settled.acquire(blocking=False):
                came.put(True)
            else:
                self._give_back()

        self._is_awaited = True
        threading.Thread(target=wait, name="duly-turn", daemon=True).start()
        try:
            return came.get(timeout=timeout)
        except queue.Empty:
            return False

    def free(self) -> None:
        is_still_awaited = self._is_awaited and self._settled.acquire(blocking=False)
        if not is_still_awaited:
            self._give_back()

    def _give_back(self) -> None:
        # Released by word, not by the close alone: a process forked meanwhile has the same lock open.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


_LINES: dict[str, Line] = {}
