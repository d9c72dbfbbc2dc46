"""Runs statements by name on pooled connections to PostgreSQL: when they are repeated, how long they may take, and what
their errors mean.

Nothing depends on the state of a session: no session locks, no temporary tables. Settings are made only on sessions
that are ours alone, not on those that a pooler shares. Every statement has a deadline on our side. A statement that
surely was not executed is repeated; if it may have been executed, the error says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import ByteaBinaryLoader

from duly.core import codec
from duly.core.errors import ConfigError, ConstraintViolated, NotMigrated, StoreError, StoreUnavailable
from duly.store.dialects import not_lent
from duly.store.postgres import MIGRATION_LOCK
from duly.store.postgres.arrays import array_parameters, columns
from duly.store.postgres.borrowed import Borrowed
from duly.store.postgres.connections import AnswerTimeout, Connection, ConnectionPool, is_shared
from duly.store.postgres.herald import Herald
from duly.store.records import Record
from duly.store.sql import psycopg_sections, reads
from duly.store.statements import Statements, T

# Defaults that the URL may override: the loss of a server must be noticed within seconds.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
_DIALLING = {"connect_timeout": 3, "application_name": "duly", **_KEEPALIVE}
# The same on the server's side: otherwise the locks of a client that lost its power would stay for two hours.
_SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
# Seconds after which the server ends a transaction of ours that does nothing, such as that of a suspended process.
IDLE_SECONDS = 60
# The server's time limit ends this many seconds before ours, because then it is known that nothing was done.
GRACE = 1.0
# Seconds to wait for an answer when checking whether the server is alive.
PULSE_PATIENCE = 5.0

# Statements that join rows with an array, and the parameter that is that array. A prepared plan assumes ten elements;
# with a thousand it would compare each with each. So with a long array the statement is planned again each time.
JOINED = {
    "extend": "ids",
    "settle": "change_id",
    "settle_members": "member_schedule_id",
    "occur": "id",
    "move_on": "id",
    "under_way": "names",
}
LONG_ARRAY = 500  # characters

# Makes settings if the session is ours alone: behind a pooler, its process id is not the one of the connection's start.
_CONFIGURE = """
select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s(name, value)
 where pg_backend_pid() = %s
"""

# Errors after which nothing was done: lost races inside the database, and a server that is a standby at the moment.
_UNDONE = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable, errors.ReadOnlySqlTransaction)
_PASSING = (*_UNDONE, errors.IdleInTransactionSessionTimeout, errors.QueryCanceled)
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement, errors.ProtocolViolation)
# Errors whose texts have data of rows in them.
_TELLING = (psycopg.IntegrityError, psycopg.DataError)


class Sessions(Statements[Connection]):
    """Connections to one server, and named statements on them."""

    def __init__(self, url: str, pool_size: int = 10, timeout: float = 30.0, listen: bool = True) -> None:
        self.url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._patience = timeout + GRACE
        self._listen = listen
        self._is_shared: bool | None = None if listen else True
        self._sql = psycopg_sections()
        self._reads = reads("postgres")
        self._arrays = array_parameters()
        bounded = {
            "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
            "statement_timeout": f"{timeout * 1000:.0f}",
        }
        self._pool = self._make_pool(bounded)
        # Separate pools: while a thread holds a transaction, it may need another connection to put or read.
        self._short = self._make_pool(bounded)
        self._handlers = self._make_pool({})
        self._pools = (self._pool, self._short, self._handlers)
        # Without LISTEN there is a transaction pooler, behind which prepared statements end up in other sessions.
        self._prepare: bool | None = None if listen else False
        self._herald = Herald(self._tell)
        self._ends = Herald(lambda _: self._hint("tell_of_ends", {}))

    def hasten(self, is_hasty: bool = True) -> None:
        for pool in self._pools:
            pool.hasten(is_hasty)

    def close(self) -> None:
        self._herald.close()
        self._ends.close()
        for pool in self._pools:
            pool.close()

    def _make_pool(self, settings: Mapping[str, str]) -> ConnectionPool:
        settings = {**_SERVER_KEEPALIVE, **settings}
        return ConnectionPool(
            lambda: self._configured(self._dial(), settings), self._pool_size, self._timeout, self._patience
        )

    def _dial(self, **more: Any) -> Connection:
        """A new connection, with the options of the URL and our defaults for the others."""
        try:
            url_options = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:  # its text may quote the URL with the password
            raise ConfigError("database_url: PostgreSQL does not understand this URL") from None
        given = {name: value for name, value in {**_DIALLING, **more}.items() if name not in url_options}
        connection: Connection = Connection.connect(self.url, autocommit=True, **given)
        connection.patience = max(float(url_options.get("connect_timeout") or 0), PULSE_PATIENCE)
        self._configure(connection)
        return connection

    def _configure(self, connection: Connection) -> None:
        connection.adapters.register_loader("json", ByteaBinaryLoader)
        connection.prepare_threshold = 3

    def _configured(self, connection: Connection, settings: Mapping[str, str]) -> Connection:
        if not self._listen:  # behind a pooler the session is shared with others
            return connection
        try:
            arguments = (list(settings), list(settings.values()), connection.info.backend_pid)
            if not connection.execute(_CONFIGURE, arguments, prepare=False).fetchall() and self.is_pooled():
                self._prepare = False
        except BaseException:
            connection.close()
            raise
        return connection

    def is_pooled(self, look: bool = False) -> bool:
        """Whether a pooler gives our transactions to sessions that others use too. It is found out once."""
        if self._is_shared is None or look:
            self._is_shared = is_shared(self._dial)
        return self._is_shared

    @contextmanager
    def _connection(self, pool: ConnectionPool | None = None, until: float = float("inf")) -> Iterator[Connection]:
        """A pooled connection; errors of the driver are raised as errors of duly."""
        pool = pool or self._pool
        connection = pool.take(until)
        try:
            yield connection
        except psycopg.Error as error:
            raise self._as_ours(error, connection) from (None if isinstance(error, _TELLING) else error)
        finally:
            pool.give(connection)

    def _as_ours(self, error: psycopg.Error, connection: Connection) -> Exception:
        """The error of duly for this error of the driver."""
        match error:
            case psycopg.IntegrityError():
                of = error.diag
                return ConstraintViolated(of.constraint_name or f"{of.table_name}.{of.column_name}")
            case psycopg.DataError():
                return StoreError(f"the database does not accept a value: {type(error).__name__} ({error.sqlstate})")
            case errors.UndefinedTable() | errors.UndefinedColumn():
                return NotMigrated(f"the database is not migrated: run `duly migrate` ({error})")
            case errors.InvalidSqlStatementName() | errors.DuplicatePreparedStatement() | errors.ProtocolViolation():
                # A pooler gives each transaction to another session: continue without prepared statements.
                self._prepare = False
                return StoreUnavailable(f"prepared statements do not work behind this pooler: {error}")
            case errors.ReadOnlySqlTransaction():
                connection.close()  # the next connection may be to the server that takes writes
        if isinstance(error, _PASSING):
            return StoreUnavailable(f"the database could not do this now; try again: {error}")
        if isinstance(error, AnswerTimeout):
            return StoreUnavailable(f"the database did not answer, so it is not known whether this was done: {error}")
        if not isinstance(error, psycopg.OperationalError):
            return StoreError(f"the database reported {type(error).__name__}: {error}")
        if connection.closed:
            return StoreUnavailable(
                f"the connection to the database broke, so it is not known whether this was done: {error}"
            )
        return StoreUnavailable(f"the database cannot do this now: {error}")

    def _run(self, name: str, parameters: Mapping[str, Any], connection: Connection | None = None) -> list[Any]:
        """The rows of one named statement."""
        if connection is not None:
            try:
                return self._rows(connection, name, parameters)
            except _TELLING as error:
                raise self._as_ours(error, connection) from None
        try:
            with self._connection() as own:
                return self._rows(own, name, parameters)
        except StoreUnavailable as error:
            if not self._may_be_repeated(name, parameters, error.__cause__):
                raise
        with self._connection() as own:
            return self._rows(own, name, parameters)

    def _may_be_repeated(self, name: str, parameters: Mapping[str, Any], why: BaseException | None) -> bool:
        """Whether a failed statement may run again: if it surely was not executed, or does no harm twice."""
        if isinstance(why, (*_UNPREPARED, *_UNDONE)):
            return True
        is_lost = isinstance(why, psycopg.OperationalError) and not isinstance(why, (AnswerTimeout, *_PASSING))
        is_harmless = name in self._reads or (name.startswith("put_one") and parameters["key"] is not None)
        return is_lost and is_harmless

    def _run_many(
        self,
        name: str,
        connection: Connection,
        record: Record[Any] | None = None,
        values: Sequence[Any] = (),
        **more: Sequence[Any],
    ) -> list[Any]:
        return self._run(name, more if record is None else columns(record, values, more), connection)

    def _rows(self, connection: Connection, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        if arrays := self._arrays.get(name):
            parameters = {**parameters, **{each: write(parameters[each]) for each, write in arrays.items()}}
        is_long = name in JOINED and len(parameters[JOINED[name]]) > LONG_ARRAY
        is_handlers = getattr(connection, "patience", 0) is None
        if is_handlers:  # its own statements may take any time, but ours may not
            connection.patience = self._patience
        try:
            prepare = False if is_long else self._prepare
            cursor = connection.execute(self._sql[name], parameters, prepare=prepare, binary=True)
            return cursor.fetchall() if cursor.description else []
        finally:
            if is_handlers:
                connection.patience = None

    def _whole(self, act: Callable[[Connection], T]) -> T:
        """Do this in a transaction; again if the connection broke before the commit, for then it was rolled back."""
        is_asked = False
        try:
            with self._writing() as connection:
                answer = act(connection)
                is_asked = True
            return answer
        except StoreUnavailable as error:
            why = error.__cause__
            if is_asked or why is None or isinstance(why, (AnswerTimeout, errors.QueryCanceled)):
                raise
        return super()._whole(act)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._connection() as connection, connection.transaction():
            yield connection

    def now(self, connection: Connection | None = None) -> datetime:
        now: datetime = self._run("now", {}, connection)[0][0]
        return now

    def _tell(self, news: list[str]) -> None:
        self._hint("tell", {"news": codec.text(news)})

    def _hint(self, name: str, parameters: Mapping[str, Any]) -> None:
        # News is only a hint, so do not wait for a server that is down.
        if self._pool.trouble is None:
            with self._connection(until=time.monotonic() + 1) as connection:
                self._rows(connection, name, parameters)

    @contextmanager
    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> Iterator[Connection]:
        pool = self._handlers if is_handlers else self._short
        with self._connection(pool, until) as connection, connection.transaction():
            if is_handlers:  # a handler's statements may take any time
                connection.patience = None
            try:
                yield connection
            finally:
                connection.patience = self._patience

    @contextmanager
    def lent(self, connection: Any) -> Iterator[Any]:
        if not isinstance(connection, psycopg.Connection):
            raise not_lent(connection, "psycopg")
        own = connection if isinstance(connection, Connection) else Borrowed(connection)
        if not connection.autocommit:  # begin the caller's transaction, for otherwise the block below would end it
            own.execute("select 1")
        with connection.transaction():
            yield own

    @contextmanager
    def migrations(self) -> Iterator[Connection]:
        """A connection for one migrator at a time; it gives up on a lock soon, because workers would wait behind it."""
        with self._writing() as connection:
            connection.patience = None
            connection.execute("set local statement_timeout = 0", prepare=False)
            connection.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,), prepare=False)
            connection.execute("set local lock_timeout = '2s'", prepare=False)
            yield connection
