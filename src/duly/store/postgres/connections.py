"""Connections to PostgreSQL: opened by the thread that needs one, kept for the next, and closed when they break.

A thread never waits for a connection attempt of another thread. It opens the connection itself. While the server is
down, it retries at least once a second, so that work continues as soon as the server is back. Every wait for an answer
has a time limit. An idle connection that the server has closed is never handed out. When a connection breaks in use,
all idle ones are closed too, because the same cause has probably broken them. After a fork the child starts with none.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from select import POLLIN, poll
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

from duly.core.errors import StoreBusy, StoreUnavailable
from duly.core.forks import renew_in_children
from duly.store.statements import WAIT_UNTIL, WAITS

T = TypeVar("T")

LIFETIME = 3_600.0  # seconds after which a connection is replaced, because the memory of a server's session grows
IDLE = 600.0  # seconds after which an unused connection is closed
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.7)  # seconds between attempts to connect, somewhat shuffled
LOOKS = 5  # how often it is looked whether a pooler has changed the session

_IN_ORDER = ConnStatus.OK
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time. It is not known whether it executed the statement."""


class Connection(psycopg.Connection[Any]):
    """A connection that waits at most `patience` seconds for an answer; with None, as long as it takes."""

    patience: float | None = None
    born = 0.0
    since = 0.0  # when it was last used

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._ear = poll()
        self._ear.register(self.pgconn.socket, POLLIN)
        renew_in_children(self)

    def __del__(self, *_: Any) -> None:
        """Close without the driver's warning: a pool does not have to be closed before the process ends."""

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        if self.patience is None:
            return super().wait(gen, *args, **more)
        try:
            return super().wait(_bounded(gen, self.patience), *args, **more)
        except AnswerTimeout:
            self.pgconn.finish()
            raise

    def is_quiet(self) -> bool:
        """Whether nothing has come in since it was used; if something has, the server has closed it or is about to."""
        return self.pgconn.status == _IN_ORDER and not self._ear.poll(0)

    def renew(self) -> None:
        """Close the socket in a child without sending anything, for the parent's session would receive it."""
        if self.pgconn.status == _IN_ORDER:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self.pgconn.socket)
            os.close(nowhere)


def _bounded(gen: Generator[Any, Any, T], patience: float) -> Generator[Any, Any, T]:
    """Run the driver's steps, and raise `AnswerTimeout` when the server does not answer within `patience` seconds."""
    until = time.monotonic() + patience
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise AnswerTimeout(f"no answer within {patience:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer


class ConnectionPool:
    """Keeps at most `size` connections. Threads that wait for one are served in the order in which they came."""

    def __init__(
        self, dial: Callable[[], Connection], size: int, timeout: float, patience: float | None = None
    ) -> None:
        self._dial = dial
        self._size = size
        self._timeout = timeout
        self._patience = patience
        self._all: set[Connection] = set()
        self._hurry = threading.Event()
        self._begin()
        renew_in_children(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._waiting: deque[SimpleQueue[Connection | None]] = deque()
        self._places = 0  # connections that exist or are being made
        self._closed = False
        self.trouble: psycopg.Error | None = None  # why the last attempt to connect failed

    def renew(self) -> None:
        self._all = set()
        is_hurried, self._hurry = self._hurry.is_set(), threading.Event()
        if is_hurried:
            self._hurry.set()
        self._begin()

    def take(self, until: float = float("inf")) -> Connection:
        """A connection, to be returned with `give`. Waits for the pool's timeout, and not after `until`."""
        until = min(until, time.monotonic() + self._timeout, WAIT_UNTIL.get())
        turn: SimpleQueue[Connection | None] | None
        with self._lock:
            if self._closed:
                raise StoreUnavailable("this store is closed")
            while self._idle:
                connection = self._idle.pop()
                if connection.is_quiet():
                    return connection
                self._forget(connection)
            if self._places < self._size:
                self._places += 1
                turn = None
            else:
                turn = SimpleQueue()
                self._waiting.append(turn)
        if turn is not None and (handed := self._await(turn, until)) is not None:
            return handed
        return self._connect(until)

    def _await(self, turn: SimpleQueue[Connection | None], until: float) -> Connection | None:
        """Wait for a returned connection; None means that the caller may open a new one."""
        begun = time.monotonic()
        try:
            return turn.get(timeout=max(until - begun, 0))
        except BaseException as error:
            with self._lock:
                is_waiting = turn in self._waiting
                if is_waiting:
                    self._waiting.remove(turn)
            if not is_waiting:  # it was handed over at the last moment
                if isinstance(error, Empty):
                    return turn.get_nowait()
                self._hand_on(turn.get_nowait())
            if not isinstance(error, Empty):
                raise
        finally:
            WAITS.add(time.monotonic() - begun)
        if self.trouble is not None:
            raise StoreUnavailable(f"cannot reach the database: {self.trouble}")
        raise StoreBusy(f"all {self._size} connections of this process are busy (pool_size)")

    def _connect(self, until: float) -> Connection:
        attempt = 0
        try:
            while True:
                try:
                    connection = self._dial()
                    break
                except psycopg.OperationalError as error:
                    self.trouble = error
                    pause = PAUSES[min(attempt, len(PAUSES) - 1)] * random.uniform(0.7, 1.3)  # noqa: S311
                    attempt += 1
                    if time.monotonic() + pause > until or self._hurry.wait(pause):
                        raise StoreUnavailable(f"cannot reach the database: {error}") from None
        except BaseException:
            self._hand_on(None)
            raise
        self.trouble = None
        connection.patience = self._patience
        connection.born = time.monotonic()
        self._all.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """Take a connection back, for the next caller or to be closed."""
        if connection not in self._all:  # it belongs to the process that this one was forked from
            return
        status = connection.pgconn.transaction_status
        is_idle = status == TransactionStatus.IDLE and connection.pgconn.status == _IN_ORDER
        if not is_idle and not (status in _OPEN and _is_rolled_back(connection)):
            self._lose(connection)
            return
        connection.patience = self._patience
        connection.since = time.monotonic()
        if connection.since - connection.born > LIFETIME:
            self._close(connection)
            self._hand_on(None)
        else:
            self._hand_on(connection)

    def _hand_on(self, connection: Connection | None) -> None:
        """Hand a free connection to the next waiter; with None, the right to make a new one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(connection)
            elif connection is None:
                self._places -= 1
            elif self._closed:
                self._forget(connection)
            else:
                if self._idle and connection.since - self._idle[0].since > IDLE:
                    self._forget(self._idle.pop(0))
                self._idle.append(connection)

    def _lose(self, broken: Connection) -> None:
        """A connection broke in use, so close all idle ones too."""
        with self._lock:
            while self._idle:
                self._forget(self._idle.pop())
        self._close(broken)
        self._hand_on(None)

    def _forget(self, connection: Connection) -> None:
        self._close(connection)
        self._places -= 1

    def _close(self, connection: Connection) -> None:
        self._all.discard(connection)
        connection.close()

    def hasten(self, is_hasty: bool) -> None:
        """From now on, try to connect only once while the server is down; with False, wait for it again."""
        if is_hasty:
            self._hurry.set()
        else:
            self._hurry.clear()

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._hurry.set()
        with self._lock:
            self._closed = True
            while self._idle:
                self._forget(self._idle.pop())


def _is_rolled_back(connection: Connection) -> bool:
    """Whether a transaction that was left open could be rolled back."""
    try:
        connection.rollback()
    except psycopg.Error:
        return False
    return True


def is_shared(dial: Callable[[], Connection]) -> bool:
    """Whether a pooler between us and PostgreSQL gives each transaction to another session of the server.

    If so, LISTEN does not work, and settings and prepared statements of a session may end up with another client. A
    pooler answers the start of a connection itself, with a process id that no session of the server has. Whether it
    also changes sessions between transactions is tried out: while a second connection holds a session, does the first
    keep its own?
    """
    with dial() as one:
        first = _session(one)
        if first == one.info.backend_pid:
            return False
        with dial() as other:
            other.autocommit = False  # from its first statement on it keeps a session
            try:
                _session(other)
            except AnswerTimeout:  # there is no session left for it, so the first connection keeps its own
                return False
            try:
                return any(_session(one) != first for _ in range(LOOKS))
            except AnswerTimeout:  # the other connection has it now, and there is no more
                return True


def _session(connection: Connection) -> int:
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])
