"""The dialect of PostgreSQL. Its driver is loaded only when a store is opened."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from duly.core import codec
from duly.core.errors import ConfigError, InputError
from duly.core.model import NewItem
from duly.store.contract import Store
from duly.store.dialects import Ask, Colour, Dialect, Drivers, Run, Whole, answered
from duly.store.postgres.herald import news_of
from duly.store.records import NEW_ITEM, ColumnType, Record, Turn, writer
from duly.store.sql import to_numbered, to_psycopg
from duly.store.statements import Home

MIGRATION_LOCK = 7_105_849_920  # any constant of our own; held for the transaction only

new_item_parameters = writer(NEW_ITEM, {bytes: bytes.decode})

# How values go into the JSON text of many rows.
_IN_JSON: dict[ColumnType, Turn] = {bytes: bytes.decode, datetime: datetime.isoformat}
_JSON_PARAMETER = re.compile(r":(\w+)(?:::json\b)|cast\(:(\w+) as json\)")
# The error of a savepoint outside of a transaction.
NO_TRANSACTION = "25P01"


@cache
def _json_row(record: Record[Any]) -> Callable[[Any], dict[str, Any]]:
    return writer(record, _IN_JSON)


def lacking(error: ImportError) -> ConfigError:
    """The error when the driver cannot be imported."""
    return ConfigError(f"database_url: PostgreSQL needs `pip install 'duly[postgres]'` ({error})")


# -- how statements run on a caller's own connection


def _psycopg(connection: Any) -> Run:
    psycopg = sys.modules["psycopg"]
    is_async = isinstance(connection, psycopg.AsyncConnection)

    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        refuse_pipeline(connection)
        kind = psycopg.AsyncCursor if is_async else psycopg.Cursor
        cursor = aware(kind(connection, row_factory=psycopg.rows.tuple_row))
        try:
            await answered(cursor.execute(to_psycopg(sql), parameters))
            return await answered(cursor.fetchall()) if has_rows(cursor) else ()
        finally:
            await answered(cursor.close())

    return run


def _psycopg2(connection: Any) -> Run:
    plain = sys.modules["psycopg2.extensions"].cursor

    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        with connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall() if has_rows(cursor) else ()

    return run


def _asyncpg(connection: Any) -> Run:
    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        # JSON goes in as text: a json codec that the caller may have set would encode it a second time.
        numbered, values = to_numbered(_JSON_PARAMETER.sub(_as_text, sql), parameters)
        return await connection.fetch(numbered, *values)

    return run


def _as_text(found: re.Match[str]) -> str:
    return f"cast(cast(:{found[1] or found[2]} as text) as json)"


def aware(cursor: Any) -> Any:
    """This cursor, set to give aware times: without USE_TZ, Django's cursors give naive ones."""
    if hasattr(cursor, "adapters"):  # it is psycopg's; on SQLite times are numbers anyway
        from psycopg.types.datetime import TimestamptzLoader

        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


def has_rows(cursor: Any) -> bool:
    """Whether its statement returns rows. psycopg's `description` would make an object for each column."""
    result = getattr(cursor, "pgresult", None)
    return bool(result.nfields if result is not None else cursor.description)


def refuse_pipeline(connection: Any) -> None:
    """Statements of a put need the answers of those before them, and a pipeline has none until it ends."""
    if connection.pgconn.pipeline_status:
        raise InputError("connection", "is in pipeline mode; put after the pipeline has ended")


DRIVERS: Mapping[Colour, Drivers] = {
    "sync": {
        "psycopg.Connection": _psycopg,
        "psycopg2.connection": _psycopg2,
        "duly.Borrowed": lambda borrowed: _psycopg(borrowed.connection),
    },
    "async": {
        "psycopg.AsyncConnection": _psycopg,
        "asyncpg.Connection": _asyncpg,
        "asyncpg.PoolConnectionProxy": _asyncpg,
    },
}


def _has_code(error: BaseException, *codes: str) -> bool:
    """Whether the server reported one of these, however the driver's own error is wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if {getattr(cause, name, None) for name in ("sqlstate", "pgcode")} & {*codes}:
            return True
        cause = getattr(cause, "orig", None) or cause.__cause__
    return False


class Postgres(Dialect):
    name = "postgres"
    schemes: tuple[str, ...] = ("postgresql", "postgres")
    aliases: tuple[str, ...] = ("postgresql",)
    sql = files("duly.store") / "postgres" / "sql"
    fragments = files("duly.store") / "postgres" / "fragments.sql"
    migrations = files("duly.store") / "migrations" / "postgres"
    types = MappingProxyType({
        str: "text", int: "bigint", float: "float8", bool: "bool", datetime: "timestamptz", bytes: "json",
    })  # fmt: skip
    drivers = DRIVERS
    read_as = MappingProxyType({"execution_key": "::text"})

    def open(self, url: str, *, timeout: float, pool_size: int, listen: bool) -> Store:
        try:
            from duly.store.postgres.store import PostgresStore
        except ImportError as error:
            raise lacking(error) from error

        return PostgresStore(url, pool_size, timeout, listen)

    def put(self, new: NewItem) -> tuple[str, dict[str, Any]]:
        parameters = new_item_parameters(new)
        if news := news_of(new):
            return "put_one_and_tell", {**parameters, "news": news}
        return "put_one", parameters

    def rows(self, record: Record[Any], values: Sequence[Any]) -> str:
        return codec.text(list(map(_json_row(record), values)))

    def news(self, new: Iterable[NewItem]) -> set[str]:
        return {news for item in new if (news := news_of(item))}

    def driver_of(self, connection: Any) -> Any:
        """Of asyncpg, a pool hands out another proxy each time."""
        return connection._con or connection if type(connection).__name__ == "PoolConnectionProxy" else connection

    async def locate(self, ask: Ask) -> Home:
        ((database, schema, host, port, database_oid, table_oid, has_id),) = await ask("whereabouts", {})
        place = f"postgres {database_oid}/{table_oid}" if table_oid else ""
        where = "on a local socket" if host is None else f"at {host}:{port}"
        title = f"PostgreSQL database {database}, schema {schema}, {where}"
        rows = await ask("database_id", {}) if has_id else []
        if not rows:
            return Home(place, title)
        return Home(place, f"{title} (id {rows[0][0]})", rows[0][0])

    async def whole(self, ask: Ask, driver: Any) -> Whole:
        try:
            await ask("savepoint duly_whole", {})
        except Exception as error:
            if not _has_code(error, NO_TRANSACTION):
                raise
            await ask("begin", {})
            return Whole(["commit"], ["rollback"])
        return Whole(
            ["release savepoint duly_whole"], ["rollback to savepoint duly_whole", "release savepoint duly_whole"]
        )

    def is_behind(self, error: BaseException) -> bool:
        return _has_code(error, "42P01", "42703")

    def take_turn(self, connection: Any) -> None:
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")

    def step_back(self, connection: Any) -> None:
        connection.exec_driver_sql("set local lock_timeout = '2s'")

    def engine_of(self, url: str) -> tuple[str, Callable[[], Any]]:
        import psycopg

        return "postgresql+psycopg://", lambda: psycopg.connect(url)
