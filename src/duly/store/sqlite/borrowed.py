"""How statements run on a caller's own connection to a SQLite file, by sqlite3 and aiosqlite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duly.store.dialects import Colour, Drivers, Run, answered


def _sqlite(connection: Any) -> Run:
    async def run(sql: str, parameters: dict[str, Any]) -> Any:
        cursor = await answered(connection.cursor())
        cursor.row_factory = None
        try:
            await answered(cursor.execute(sql, parameters))
            return await answered(cursor.fetchall())
        finally:
            await answered(cursor.close())

    return run


DRIVERS: Mapping[Colour, Drivers] = {
    "sync": {"sqlite3.Connection": _sqlite},
    "async": {"aiosqlite.Connection": _sqlite},
}
