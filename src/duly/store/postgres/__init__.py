"""The dialect of PostgreSQL. Its driver is loaded only when a store is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from duly.core.errors import ConfigError
from duly.core.model import NewItem
from duly.store.contract import Store
from duly.store.dialects import Colour, Dialect, Drivers, Run, answered
from duly.store.postgres.herald import news_of
from duly.store.records import NEW_ITEM, writer
from duly.store.sql import to_numbered, to_psycopg

MIGRATION_LOCK = 7_105_849_920  # any constant of our own; held for the transaction only

# Every wanted value is found at its path in the arguments or in the result.
HAS_VALUES = """not exists (
       select 1
         from json_array_elements(:wanted::json) as w(one)
        where case one ->> 'of' when 'result' then result else args end
              #>> array(select json_array_elements_text(one -> 'path')) is distinct from one ->> 'value')"""

# The few words by which people know a row of a job.
SUMMARY = ", ".join(f"left(i.args ->> '{name}', 121) as {name}" for name in ("title", "brand", "sku"))

# The first rows `i` of one status of each selected job `j`.
FIRST_ROWS_OF_JOBS = """from duly_job j
 cross join lateral (
       select *
         from duly_item
        where job_id = j.id and status = :status and (changed_at, id) > (:after_at::timestamptz, :after_id::bigint)
          and changed_at < :until::timestamptz
        order by changed_at, id
        limit :most) i
 where not j.is_removed and (:owner::text is null or j.owner = :owner)
   and (:job_type::text is null or j.job_type = :job_type)
   and (:jobs::json is null or j.id = any(array(select value::bigint from json_array_elements_text(:jobs::json))))"""

new_item_parameters = writer(NEW_ITEM, {bytes: bytes.decode})


def lacking(error: ImportError) -> ConfigError:
    """The error when the driver cannot be imported."""
    return ConfigError(f"database_url: PostgreSQL needs `pip install 'duly[postgres]'` ({error})")


# -- how statements run on a caller's own connection


def _psycopg(connection: Any) -> Run:
    psycopg = sys.modules["psycopg"]
    is_async = isinstance(connection, psycopg.AsyncConnection)

    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        kind = psycopg.AsyncCursor if is_async else psycopg.Cursor
        cursor = aware(kind(connection, row_factory=psycopg.rows.tuple_row))
        try:
            await answered(cursor.execute(to_psycopg(sql), parameters))
            return await answered(cursor.fetchall())
        finally:
            await answered(cursor.close())

    return run


def _psycopg2(connection: Any) -> Run:
    plain = sys.modules["psycopg2.extensions"].cursor

    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        with connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall()

    return run


def _asyncpg(connection: Any) -> Run:
    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        # JSON goes in as text: a json codec that the caller may have set would encode it a second time.
        numbered, values = to_numbered(
            sql.replace("cast(:args as json)", "cast(cast(:args as text) as json)"), parameters
        )
        return await connection.fetch(numbered, *values)

    return run


def aware(cursor: Any) -> Any:
    """This cursor, set to give aware times: without USE_TZ, Django's cursors give naive ones."""
    if hasattr(cursor, "adapters"):  # it is psycopg's; on SQLite times are numbers anyway
        from psycopg.types.datetime import TimestamptzLoader

        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


DRIVERS: Mapping[Colour, Drivers] = {
    "sync": {"psycopg.Connection": _psycopg, "psycopg2.connection": _psycopg2},
    "async": {
        "psycopg.AsyncConnection": _psycopg,
        "asyncpg.Connection": _asyncpg,
        "asyncpg.PoolConnectionProxy": _asyncpg,
    },
}


class Postgres(Dialect):
    name = "postgres"
    schemes: tuple[str, ...] = ("postgresql", "postgres")
    aliases: tuple[str, ...] = ("postgresql",)
    sql = files("duly.store") / "postgres" / "sql"
    migrations = files("duly.store") / "migrations" / "postgres"
    types = MappingProxyType({
        str: "text", int: "bigint", float: "float8", bool: "bool", datetime: "timestamptz", bytes: "json",
    })  # fmt: skip
    conditions = MappingProxyType({
        "is_waiting": "is_waiting",
        "in_review": "in_review",
        "id_given": "id = any(array(select value::bigint from json_array_elements_text(:ids::json)))",
        "job_given": "id = any(array(select value::bigint from json_array_elements_text(:jobs::json)))",
        "has_values": HAS_VALUES,
        "summary": SUMMARY,
        "first_rows_of_jobs": FIRST_ROWS_OF_JOBS,
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

    def is_behind(self, error: BaseException) -> bool:
        cause: BaseException | None = error
        while cause is not None:  # however the driver's own error is wrapped
            if {getattr(cause, name, None) for name in ("sqlstate", "pgcode")} & {"42P01", "42703"}:
                return True
            cause = getattr(cause, "orig", None) or cause.__cause__
        return False

    def take_turn(self, connection: Any) -> None:
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")

    def step_back(self, connection: Any) -> None:
        connection.exec_driver_sql("set local lock_timeout = '2s'")

    def engine_of(self, url: str) -> tuple[str, Callable[[], Any]]:
        import psycopg

        return "postgresql+psycopg://", lambda: psycopg.connect(url)
