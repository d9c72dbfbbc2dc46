"""How statements run on a caller's own connection to PostgreSQL, by psycopg, psycopg2 and asyncpg."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from duly.store.dialects import Colour, Drivers, Run, answered
from duly.store.sql import to_numbered, to_psycopg


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
