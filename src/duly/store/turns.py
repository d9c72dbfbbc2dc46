"""Whose turn it is to write to a SQLite file among the threads of this process, and what a fork does to that.

SQLite cannot be carried into a child: its connections, and what it remembers about its locks, are true in the parent
only. So a fork waits until none of our threads is inside a file, and every connection of ours is closed while it
happens; both sides open new ones. Where that cannot be, because someone holds a transaction for long or forks from
within one, the child must not use that file at all.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any, Protocol
from weakref import WeakSet

PATIENCE = 10.0  # seconds that a fork waits for transactions to end


class Turn:
    """The lock of one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.holder: int | None = None
        self.file: int | None = None  # the lock between processes, while it is held
        self.is_torn = False  # a transaction was under way when this process was forked

    def acquire(self, timeout: float) -> bool:
        if not self._lock.acquire(timeout=timeout):
            return False
        self.holder = threading.get_ident()
        return True

    def release(self) -> None:
        self.holder = self.file = None
        self._lock.release()


class Opened(Protocol):
    """A store on a file."""

    turn: Turn
    writer_lock: threading.Lock
    reader_lock: threading.Lock

    def let_go(self) -> list[Any]:
        """Close the connections that nobody uses; returns those in use, which are no longer this store's."""
        ...


_TURNS: dict[str, Turn] = {}
_STORES: WeakSet[Opened] = WeakSet()
_HELD: list[threading.Lock | Turn] = []  # while a fork is under way


def turn_at(path: str) -> Turn:
    return _TURNS.setdefault(os.path.realpath(path), Turn())


def mind_forks(store: Opened) -> None:
    _STORES.add(store)


def leave(connection: Any) -> None:
    """Never close this connection of a parent, not even at the end of the process: that could harm the file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _before() -> None:
    give_up = time.monotonic() + PATIENCE
    stores = list(_STORES)
    turns = {store.turn for store in stores}
    # In the order in which a writer takes them. Readers come last, for whoever holds a turn may still have to read.
    locks: list[threading.Lock | Turn] = [store.writer_lock for store in stores]
    locks += [*turns, *(store.reader_lock for store in stores)]
    for lock in locks:
        is_own = isinstance(lock, Turn) and lock.holder == threading.get_ident()
        if not is_own and lock.acquire(timeout=max(give_up - time.monotonic(), 0)):
            _HELD.append(lock)
    for store in stores:
        if store.turn in _HELD and store.writer_lock in _HELD and store.reader_lock in _HELD:
            store.let_go()


def _after_in_parent() -> None:
    while _HELD:
        _HELD.pop().release()


def _after_in_child() -> None:
    held, _HELD[:] = list(_HELD), []
    for store in list(_STORES):
        is_whole = store.turn in held and store.writer_lock in held and store.reader_lock in held
        if not is_whole and not store.turn.is_torn:
            store.turn.is_torn = True
            if store.turn.file is not None:  # or a parent that dies would leave its lock with us
                os.close(store.turn.file)
        for connection in store.let_go():
            leave(connection)
        store.writer_lock, store.reader_lock = threading.Lock(), threading.Lock()
    for turn in _TURNS.values():
        turn._lock, turn.holder, turn.file = threading.Lock(), None, None


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
