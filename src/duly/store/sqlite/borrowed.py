"""How statements run on a caller's own connection to a SQLite file, by sqlite3 and aiosqlite."""

from __future__ import annotations

from typing import Any

from duly.store.dialects import Drivers, Run

Parameters = dict[str, Any]


def _sqlite3(connection: Any) -> Run:
    def run(sql: str, parameters: Parameters) -> Any:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters).fetchall()

    return run


def _aiosqlite(connection: Any) -> Run:
    async def run(sql: str, parameters: Parameters) -> Any:
        async with connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, parameters)
            return await cursor.fetchall()

    return run


SYNC: Drivers = {"sqlite3.Connection": _sqlite3}
ASYNC: Drivers = {"aiosqlite.Connection": _aiosqlite}
