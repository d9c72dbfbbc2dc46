"""The dialect of SQLite: one embedded file, for the processes of one host."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from os.path import abspath
from typing import Any
from urllib.parse import unquote

from duly.core import codec
from duly.core.errors import ConfigError
from duly.core.model import NewItem
from duly.store.contract import Store
from duly.store.dialects import Ask, Colour, Dialect, Drivers, Parameters, Run, Whole, answered
from duly.store.records import NEW_ITEM, Record
from duly.store.sqlite.values import given, to_int, to_time, written
from duly.store.statements import Home

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


def home_of(path: str) -> Home:
    """The database in this file: names may differ, and a copy is another database."""
    if not path:
        return Home("", "SQLite database in memory")
    title = f"SQLite file {abspath(path)}"
    try:
        found = os.stat(path)
    except OSError:  # it was removed, or not created yet
        return Home("", f"{title}, which does not exist")
    return Home(f"sqlite {found.st_dev}/{found.st_ino}", title)


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

    def rows(self, record: Record[Any], values: Sequence[Any]) -> str:
        write, now = written(record), to_int(datetime.now(UTC))
        return codec.text([write(value, now) for value in values])

    def given(self, parameters: Mapping[str, Any]) -> Parameters:
        return given(super().given(parameters))

    def time(self, value: Any) -> datetime:
        return to_time(value)

    async def locate(self, ask: Ask) -> Home:
        files = await ask("whereabouts", {})
        # If the table is in none of them, it is created in `main`, whose number is 0.
        found = [file for _, file, has_items in files if has_items] or [file for number, file, _ in files if not number]
        return home_of(found[0].decode() if isinstance(found[0], bytes) else found[0])

    async def whole(self, ask: Ask, driver: Any) -> Whole:
        if driver.in_transaction:
            await ask("savepoint duly_whole", {})
            return Whole(["release duly_whole"], ["rollback to duly_whole", "release duly_whole"])
        await ask("begin immediate", {})  # at once for writing: a transaction that has read may not get to it
        is_autocommit = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
        return Whole(["commit"] if is_autocommit else [], ["rollback"])

    def is_behind(self, error: BaseException) -> bool:
        return any(words in str(error) for words in MISSING)

    def take_turn(self, connection: Any) -> None:
        # The driver does not begin a transaction before DDL by itself.
        if not connection.connection.driver_connection.in_transaction:
            connection.exec_driver_sql("begin immediate")

    def engine_of(self, url: str) -> tuple[str, Callable[[], Any]]:
        store: Any = self.open(url, timeout=30.0, pool_size=1, listen=False)
        return "sqlite://", store.connect
