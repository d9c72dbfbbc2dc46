"""Whose turn it is to write to a SQLite file: first among the threads of this process, then among all processes.

Threads queue in a line of their own, for the kernel would let a process wait for itself for ever. Processes queue for a
lock file beside the database, which the kernel hands over and frees at death. An exception from a signal may end a wait
at any moment, also in the one in which its turn comes or is being given back. So nothing here depends on what a wait
returned, and nothing is held but by objects: what is no longer referred to has left the line and let go of the file.
And nothing is used but locks, queues and threads that are written in C: those of `threading` that are written in Python
(`Event`, `Thread`) can themselves be interrupted half-way, and then hold a lock of the interpreter's for ever.

SQLite cannot be carried into a child: its connections, and what it remembers about its locks, are true in the parent
only. So a fork waits until none of our threads is inside a file, and every connection of ours is closed while it
happens; both sides open new ones. Where that cannot be, because someone holds a transaction for long or forks from
within one, the child must not use that file at all.
"""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from duly.core.errors import StoreUnavailable

# Seconds after which a waiting thread looks for itself whose turn it is.
LOOK_AGAIN = 0.5
# Seconds that a fork waits for transactions to end.
PATIENCE = 10.0


@contextmanager
def turn(line: WriterLine, path: str, timeout: float) -> Iterator[None]:
    """This thread's turn to write to the file at this path, in its line, until the end of the block."""
    place = Place()
    try:
        if not line.join(place, timeout):
            raise StoreUnavailable(
                f"{path}: a transaction of this process is open for {timeout:g} seconds and more; "
                "inside one, write on its own connection"
            )
        lock = FileLock(f"{path}-lock")
        line.lock = weakref.ref(lock)
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
        self.thread = threading.get_ident()
        self.calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.has_left = False


class WriterLine:
    """The threads that want to write, in the order they came: it is the first one's turn."""

    def __init__(self) -> None:
        self.is_torn = False  # a transaction was under way when this process was forked
        self.lock: Callable[[], FileLock | None] = _gone
        self.renew()

    def renew(self) -> None:
        """Begin afresh, with nobody in line."""
        self._mutex = threading.Lock()
        self._places: deque[weakref.ref[Place]] = deque()
        self._kept: Place | None = None

    def acquire(self, timeout: float) -> bool:
        """Take a place and keep it until `release`, for who holds several lines at once."""
        self._kept = place = Place()
        if self.join(place, timeout):
            return True
        self.release()
        return False

    def release(self) -> None:
        place, self._kept = self._kept, None
        if place is not None:
            self.leave(place)

    def is_own(self) -> bool:
        """Whether it is this very thread's turn."""
        first = self._first()
        return first is not None and first.thread == threading.get_ident()

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
            with suppress(queue.Empty):
                place.calls.get(timeout=min(left, LOOK_AGAIN))
        return True

    def leave(self, place: Place) -> None:
        """Step out, from wherever in the line this is; the turn, if it was this one's, is the next one's."""
        place.has_left = True
        if (following := self._first()) is not None:
            following.calls.put(None)

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
        self._process = os.getpid()

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
        self._is_awaited = True
        _thread.start_new_thread(self._obtain, (came,))
        try:
            return came.get(timeout=timeout)
        except queue.Empty:
            return False

    def _obtain(self, came: queue.SimpleQueue[bool]) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if self._settled.acquire(blocking=False):
            came.put(True)
        else:
            self._give_back()

    def free(self) -> None:
        is_still_awaited = self._is_awaited and self._settled.acquire(blocking=False)
        if not is_still_awaited:
            self._give_back()

    def _give_back(self) -> None:
        # Released by word, not by the close alone: a process forked meanwhile has the same lock open.
        if os.getpid() == self._process:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    def drop(self) -> None:
        """In a child: this is the parent's lock. Kept open here, it would outlive a parent that dies."""
        self._file.close()


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _gone() -> None:
    return None


def line_at(path: str) -> WriterLine:
    """The line for this file, whatever path leads to it."""
    return _LINES.setdefault(os.path.realpath(path), WriterLine())


# -- forks


class Opened(Protocol):
    """A store on a file."""

    turn: WriterLine
    writer_lock: threading.Lock
    reader_lock: threading.Lock

    def let_go(self) -> list[Any]:
        """Close the connections that nobody uses; returns those in use, which are no longer this store's."""
        ...


_LINES: dict[str, WriterLine] = {}
_STORES: weakref.WeakSet[Opened] = weakref.WeakSet()
_HELD: list[threading.Lock | WriterLine] = []  # while a fork is under way


def mind_forks(store: Opened) -> None:
    _STORES.add(store)


def leave(connection: Any) -> None:
    """Never close this connection of a parent, not even at the end of the process: that could harm the file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _before() -> None:
    give_up = time.monotonic() + PATIENCE
    stores = list(_STORES)
    # In the order in which a writer takes them. Readers come last, for whoever holds a turn may still have to read.
    locks: list[threading.Lock | WriterLine] = [store.writer_lock for store in stores]
    locks += [*{store.turn for store in stores}, *(store.reader_lock for store in stores)]
    for lock in locks:
        is_own = isinstance(lock, WriterLine) and lock.is_own()
        if not is_own and lock.acquire(timeout=max(give_up - time.monotonic(), 0)):
            _HELD.append(lock)
    for store in stores:
        if _is_whole(store, _HELD):
            store.let_go()


def _after_in_parent() -> None:
    while _HELD:
        _HELD.pop().release()


def _after_in_child() -> None:
    held, _HELD[:] = list(_HELD), []
    for store in list(_STORES):
        if not _is_whole(store, held):
            store.turn.is_torn = True
        for connection in store.let_go():
            leave(connection)
        store.writer_lock, store.reader_lock = threading.Lock(), threading.Lock()
    for line in _LINES.values():
        if (lock := line.lock()) is not None:
            lock.drop()
        line.renew()


def _is_whole(store: Opened, held: list[threading.Lock | WriterLine]) -> bool:
    return store.turn in held and store.writer_lock in held and store.reader_lock in held


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
