"""One SQLite file: its connections, and transactions in turn with the writers of all processes.

There is one writer connection per store, with explicit BEGIN IMMEDIATE, WAL and synchronous=FULL. Writers of all
processes take turns with a lock file beside the database, which the kernel frees when its holder dies; SQLite's own
busy handler would sleep for up to a tenth of a second at a time. The WAL is checkpointed only under that lock, because
before SQLite 3.51.3 two checkpoints at the same time can corrupt it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from duly.core.clock import EPOCH
from duly.core.errors import ConstraintViolated, NotMigrated, StoreError, StoreUnavailable
from duly.store.dialects import not_lent
from duly.store.records import Record, Turn
from duly.store.sql import reads, sections
from duly.store.sqlite import MISSING
from duly.store.sqlite.turns import leave, line_at, mind_forks, turn
from duly.store.sqlite.values import given, to_int, turns_of, typed, written
from duly.store.statements import Statements

log = logging.getLogger("duly.store")

CHECKPOINT_BYTES = 16 * 1024 * 1024
# Reads that take longer the more items wait.
LONG = frozenset({"depth"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class SqliteFile(Statements[sqlite3.Connection]):
    """A database file, and how named statements are run on it."""

    takes_turns = True

    def __init__(self, path: str, timeout: float = 30.0, synchronous: str = "FULL") -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self._timeout = timeout
        self._synchronous = synchronous
        self._sql = sections("sqlite")
        self._reads = reads("sqlite")
        self._turns: dict[str, list[tuple[int, Turn]]] = {}  # of the rows of each section that was run
        self.turn = line_at(path)
        self.writer_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._commits = 0
        self._is_wal = False
        self._reader: sqlite3.Connection | None = None
        self.reader_lock = threading.Lock()
        mind_forks(self)

    def hasten(self, is_hasty: bool = True) -> None:
        """Nothing to do: a file is always reachable."""

    def close(self) -> None:
        with self.writer_lock, self.reader_lock:
            self.let_go()

    def let_go(self) -> list[sqlite3.Connection]:
        """Close the connections; a forked child, which must not close them, gets them returned instead."""
        open_ones = [each for each in (self._reader, self._writer) if each is not None]
        self._reader = self._writer = None
        if self.turn.is_torn:
            return open_ones
        for connection in open_ones:
            connection.close()
        return []

    def connect(self) -> sqlite3.Connection:
        """A connection with our settings."""
        self._check_fork()
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            # The file stays in WAL mode once it is switched, so later connections need not wait for a turn to write.
            if not self._is_wal and connection.execute("pragma journal_mode").fetchone() != ("wal",):
                with self._queue():  # SQLite does not wait for other connections here
                    connection.execute("pragma journal_mode = wal")
            self._is_wal = True
            connection.execute(f"pragma synchronous = {self._synchronous}")
            connection.execute("pragma foreign_keys = on")
            connection.execute("pragma wal_autocheckpoint = 0")
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is not a SQLite database: {error}") from error
        return connection

    def _check_fork(self) -> None:
        if self.turn.is_torn:
            raise StoreError(
                f"{self.path}: this process was forked while its parent was inside a transaction, so it must not use "
                "the file; fork outside of transactions, or start processes by spawn"
            )

    def _queue(self) -> AbstractContextManager[None]:
        return turn(self.turn, self.path, self._timeout)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The writer connection, inside a transaction that commits at the end of the block."""
        with self.writer_lock:
            if self._writer is None:
                self._writer = self.connect()
            with self._queue():
                with self._transaction(self._writer) as writer:
                    yield writer
                self._checkpoint(writer)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        try:
            try:  # a signal may raise an exception at any moment, and the transaction must not stay open
                connection.execute("begin immediate")
                yield connection
                self._check_fork()
                connection.execute("commit")
            except BaseException:
                if not self.turn.is_torn and connection.in_transaction:
                    connection.execute("rollback")
                raise
        except sqlite3.Error as error:
            self._fail(error)

    def _checkpoint(self, writer: sqlite3.Connection) -> None:
        """Checkpoint now and then. If it fails, all data is safe in the WAL, and the next checkpoint does more."""
        self._commits += 1
        if self._commits % 64:
            return
        try:
            if Path(f"{self.path}-wal").stat().st_size > CHECKPOINT_BYTES:
                writer.execute("pragma wal_checkpoint(passive)")
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: a checkpoint failed, and will be tried again: %s", self.path, error)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self.reader_lock, self._errors():
            if self._reader is None:
                self._reader = self.connect()
            yield self._reader

    @contextmanager
    def _reading_long(self) -> Iterator[sqlite3.Connection]:
        """A connection for long reads alone, so that the engine's reads do not wait for them."""
        with self._errors(), closing(self.connect()) as reader:
            yield reader

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the driver as errors of duly."""
        try:
            yield
        except sqlite3.Error as error:
            self._fail(error)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        """Raise the error of duly for this error of the driver."""
        if isinstance(error, sqlite3.OperationalError):
            if any(words in str(error) for words in MISSING):
                raise NotMigrated(f"{self.path} is not migrated: run `duly migrate` ({error})") from error
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF != sqlite3.SQLITE_ERROR:
                raise StoreUnavailable(f"{self.path}: {error}") from error  # locked, full, not readable, …
        if isinstance(error, sqlite3.IntegrityError):  # "UNIQUE constraint failed: table.column"
            raise ConstraintViolated(str(error).partition(": ")[2] or str(error)) from None
        # The other subclasses are about a statement; the class itself is about the file.
        problem = "is damaged" if type(error) is sqlite3.DatabaseError else f"reported {type(error).__name__}"
        raise StoreError(f"{self.path} {problem}: {error}") from error

    def _run(self, name: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None) -> list[Any]:
        if connection is None:
            with self._using(name) as own:
                return self._run(name, parameters, own)
        return self._rows(connection, name, given(parameters))

    def _using(self, name: str) -> AbstractContextManager[sqlite3.Connection]:
        """The connection for a section that is run alone."""
        if name in LONG:
            return self._reading_long()
        return self._reading() if name in self._reads else self._writing()

    def _run_many(
        self,
        name: str,
        connection: sqlite3.Connection,
        record: Record[Any] | None = None,
        values: Sequence[Any] = (),
        **columns: Sequence[Any],
    ) -> list[Any]:
        now = to_int(self.now())
        own = [] if record is None else [written(record)(value, now) for value in values]
        more = [given(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        rows = [{"now": now, **one, **other} for one, other in zip_longest(own, more, fillvalue=_NOTHING)]
        return [found for row in rows for found in self._rows(connection, name, row)]

    def _rows(self, connection: sqlite3.Connection, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        """The rows of a section whose parameters are as SQLite takes them."""
        try:
            cursor = connection.execute(self._sql[name], parameters)
            if (turns := self._turns.get(name)) is None:
                turns = self._turns[name] = turns_of(cursor)
            return typed(cursor, turns) if turns else cursor.fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    def now(self, connection: sqlite3.Connection | None = None) -> datetime:
        return EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    @contextmanager
    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> Iterator[sqlite3.Connection]:
        """A transaction on a connection of its own, since a handler may hold it for long. Other writers wait for it."""
        connection = self.connect()
        try:
            with self._queue(), self._transaction(connection):
                yield connection
        finally:
            if self.turn.is_torn:
                leave(connection)
            else:
                connection.close()

    @contextmanager
    def lent(self, connection: Any) -> Iterator[sqlite3.Connection]:
        if not isinstance(connection, sqlite3.Connection):
            raise not_lent(connection, "sqlite3")
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        is_autocommit = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        is_begun_here = not connection.in_transaction
        try:
            if is_begun_here:  # at once for writing: a transaction that has read may not get to it
                connection.execute("begin immediate")
            connection.execute("savepoint duly_act")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # without the write lock, unless the caller had it before
                    connection.execute("rollback" if is_begun_here else "rollback to duly_act")
                raise
            finally:
                if connection.in_transaction:
                    connection.execute("release duly_act")
        finally:
            connection.row_factory, connection.text_factory = factories
            if is_begun_here and is_autocommit and connection.in_transaction:
                connection.execute("commit")

    @contextmanager
    def migrations(self) -> Iterator[sqlite3.Connection]:
        with self._writing() as writer:
            yield writer
