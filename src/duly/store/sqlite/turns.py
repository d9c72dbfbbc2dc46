"""Whose turn it is to write to a SQLite file: first among the threads of this process, then among all processes.

Threads of one process wait in a `WriterLine`. Processes wait for a lock file beside the database, which the kernel
passes on and frees when its holder dies. An exception from a signal handler may end a wait at any moment, also just as
the turn comes or is given back. So nothing depends on the return value of a wait, and every hold is an object: when the
last reference to it is gone, its thread has left the line and the file is unlocked. Only locks, queues and threads
written in C are used: those written in Python (`Event`, `Thread`) can be interrupted half-way and keep a lock for ever.

SQLite does not survive a fork: its connections and the state of its locks are valid in the parent only. So a fork waits
until no thread of ours uses a file. All our connections are closed meanwhile, and both processes open new ones. If that
is not possible, because a transaction is held for long or the fork happens within one, the child must not use that
file at all.
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
from typing import TYPE_CHECKING, Any

from duly.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from duly.store.sqlite.file import SqliteFile

# Seconds after which a waiting thread looks whether it is its turn, without having been called.
LOOK_AGAIN = 0.5
# Seconds that a fork waits for transactions to end.
PATIENCE = 10.0


@contextmanager
def turn(line: WriterLine, path: str, timeout: float) -> Iterator[None]:
    """Wait for this thread's turn to write to the file at this path, and keep it until the end of the block."""
    place = WriterTurn()
    try:
        if not line.join(place, timeout):
            raise StoreUnavailable(
                f"{path}: a transaction of this process has been open for more than {timeout:g} seconds; "
                "inside a transaction, write on its own connection"
            )
        lock = FileLock(f"{path}-lock")
        line.lock = weakref.ref(lock)
        try:
            if not lock.take(timeout):
                raise StoreUnavailable(f"{path}: another process has been writing for more than {timeout:g} seconds")
            yield
        finally:
            lock.free()
    finally:
        line.leave(place)


class WriterTurn:
    """One thread's place in a line. It is held as long as the thread refers to it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.has_left = False


class WriterLine:
    """The threads that want to write, in the order in which they came. It is the turn of the first one."""

    def __init__(self) -> None:
        self.is_torn = False  # a transaction was under way when this process was forked
        self.lock: Callable[[], FileLock | None] = lambda: None
        self.renew()

    def renew(self) -> None:
        """Start again with an empty line."""
        self._mutex = threading.Lock()
        self._places: deque[weakref.ref[WriterTurn]] = deque()
        self._kept: WriterTurn | None = None

    def acquire(self, timeout: float) -> bool:
        """Take a place and keep it until `release`; for a fork, which holds several lines at once."""
        self._kept = place = WriterTurn()
        if self.join(place, timeout):
            return True
        self.release()
        return False

    def release(self) -> None:
        place, self._kept = self._kept, None
        if place is not None:
            self.leave(place)

    def is_own(self) -> bool:
        """Whether it is the calling thread's turn."""
        first = self._first()
        return first is not None and first.thread == threading.get_ident()

    def join(self, place: WriterTurn, timeout: float) -> bool:
        """Wait for the turn; False when it did not come in time. Call `leave` afterwards in any case."""
        give_up = time.monotonic() + timeout
        with self._mutex:
            self._places.append(weakref.ref(place))
        while self._first() is not place:
            left = give_up - time.monotonic()
            if left <= 0:
                return False
            # A call only saves time: a thread that was interrupted while leaving has made no call.
            with suppress(queue.Empty):
                place.calls.get(timeout=min(left, LOOK_AGAIN))
        return True

    def leave(self, place: WriterTurn) -> None:
        """Leave the line from any place in it, and call the thread whose turn it is now."""
        place.has_left = True
        if (following := self._first()) is not None:
            following.calls.put(None)

    def _first(self) -> WriterTurn | None:
        """The place whose turn it is; places that were left or are no longer referred to are removed."""
        with self._mutex:
            while self._places:
                place = self._places[0]()
                if place is not None and not place.has_left:
                    return place
                self._places.popleft()
        return None


class FileLock:
    """The lock between processes. It waits in the kernel's queue, with a time limit."""

    def __init__(self, path: str) -> None:
        # A file object, because it closes the file when the last reference to it is gone.
        self._file = open(path, "a+b", buffering=0, opener=_open)  # noqa: SIM115
        self._is_awaited = False
        # Acquired once: by the thread that got the file lock, or by `free` when the lock is no longer wanted.
        self._settled = threading.Lock()
        self._process = os.getpid()

    def take(self, timeout: float) -> bool:
        """Wait for the lock; False when it did not come in time. Call `free` afterwards in any case."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait(timeout)
        return True

    def _wait(self, timeout: float) -> bool:
        # A wait in the kernel has no timeout, so a thread waits, and frees the lock if it is no longer wanted.
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
        # Unlocked explicitly, since closing does not unlock while a forked process has the same file open.
        if os.getpid() == self._process:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    def drop(self) -> None:
        """Close the parent's lock in a child. If it stayed open here, it would stay locked when the parent dies."""
        self._file.close()


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def line_at(path: str) -> WriterLine:
    """The line of this file, the same for all paths that lead to it."""
    return _LINES.setdefault(os.path.realpath(path), WriterLine())


# -- forks


_LINES: dict[str, WriterLine] = {}
_STORES: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_HELD: list[threading.Lock | WriterLine] = []  # while a fork is under way


def mind_forks(store: SqliteFile) -> None:
    _STORES.add(store)


def leave(connection: Any) -> None:
    """Never close this connection of the parent, not even when the process ends: that could damage the file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _before() -> None:
    give_up = time.monotonic() + PATIENCE
    stores = list(_STORES)
    # In the order in which a writer takes them. Readers come last, for a thread in its turn may still have to read.
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


def _is_whole(store: SqliteFile, held: list[threading.Lock | WriterLine]) -> bool:
    return store.turn in held and store.writer_lock in held and store.reader_lock in held


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
