"""The dialect of SQLite: one embedded file, for the processes of one host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from duly.core.errors import ConfigError
from duly.core.model import NewItem
from duly.store.contract import Store
from duly.store.dialects import Colour, Dialect, Drivers, Run, answered
from duly.store.records import NEW_ITEM
from duly.store.sqlite.values import to_int, to_time, written

# SQLite's errors about a table or column that a migration would have created.
MISSING = ("no such table", "no such column", "has no column named")


# -- how statements run on a caller's own connection


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


class Sqlite(Dialect):
    name = "sqlite"
    schemes: tuple[str, ...] = ("sqlite",)
    aliases: tuple[str, ...] = ("sqlite",)
    sql = files("duly.store") / "sqlite" / "sql"
    fragments = files("duly.store") / "sqlite" / "fragments.sql"
    migrations = files("duly.store") / "migrations" / "sqlite"
    drivers = DRIVERS
    is_embedded = True

    def open(self, url: str, *, timeout: float, pool_size: int, listen: bool) -> Store:
        from duly.store.sqlite.store import SqliteStore

        path, _, query = url.removeprefix("sqlite://").partition("?")
        path = unquote(path.removeprefix("/"))
        if not path or path == ":memory:":
            raise ConfigError("database_url: SQLite needs a file, such as sqlite:///duly.db")
        synchronous = query.removeprefix("synchronous=").upper() if query else "FULL"
        if synchronous not in ("FULL", "NORMAL", "OFF", "EXTRA"):
            raise ConfigError(f"database_url: unknown option {query!r}; synchronous=full|normal|off is known")
        return SqliteStore(path, timeout, synchronous)

    def put(self, new: NewItem) -> tuple[str, dict[str, Any]]:
        return "put_one", written(NEW_ITEM)(new, to_int(datetime.now(UTC)))

    def time(self, value: Any) -> datetime:
        return to_time(value)

    def is_behind(self, error: BaseException) -> bool:
        return any(words in str(error) for words in MISSING)

    def take_turn(self, connection: Any) -> None:
        # The driver does not begin a transaction before DDL by itself.
        if not connection.connection.driver_connection.in_transaction:
            connection.exec_driver_sql("begin immediate")

    def engine_of(self, url: str) -> tuple[str, Callable[[], Any]]:
        store: Any = self.open(url, timeout=30.0, pool_size=1, listen=False)
        return "sqlite://", store.connect
