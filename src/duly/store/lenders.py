"""Connections that callers own: how they are recognized, and how statements run on each kind.

psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, SQLAlchemy (connections and sessions, sync and async) and Django. None
of them is imported: a connection is recognized by its class and package, also when the caller's own class derives from
it.
Statements run on plain cursors, whatever row, time or JSON types the caller has set on the connection. Errors of the
driver are passed on as they are, for the transaction is the caller's.

Nothing here waits unless the calls of the connection are awaited, so code for both kinds is written once, as
coroutines; `dialects.at_once` runs one that never waits.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from duly.core.errors import InputError
from duly.store.dialects import Colour, Dialect, Parameters, Run, answered, called, every
from duly.store.postgres import aware, has_rows
from duly.store.sql import sections, to_psycopg


class Lender(NamedTuple):
    """A connection of the caller's own."""

    dialect: Dialect
    run: Run
    driver: Any  # the driver's own connection

    async def ask(self, name: str, parameters: Parameters) -> list[Any]:
        """The rows of a section, or of a statement."""
        sql = sections(self.dialect.name).get(name, name)
        return [tuple(row) for row in await self.run(sql, parameters)]


# A connection of a library over any database, as a lender.
Library: TypeAlias = Callable[[Any], Awaitable[Lender]]


async def lender(connection: Any, colour: Colour) -> Lender:
    """What lends this connection; InputError if it is none that duly knows."""
    kind: Any = type(connection)
    if (known := _known(kind, colour)) is not None:
        dialect, driver = known
        if dialect is not None:
            return Lender(dialect, driver(connection), dialect.driver_of(connection))
        own: Lender = await driver(connection)
        return own
    name = f"{kind.__module__}.{kind.__qualname__}"
    verb, other = ("put", "aput") if colour == "sync" else ("aput", "put")
    raise InputError(
        "connection",
        f"{verb} cannot use a {name}: it must be an open connection or session of psycopg, psycopg2, asyncpg, sqlite3, "
        f"aiosqlite, SQLAlchemy or Django; if it is one, but of the other colour, use {other}",
    )


@lru_cache(maxsize=100)
def _known(kind: type, colour: Colour) -> tuple[Dialect | None, Any] | None:
    """The dialect of connections of this class with what runs statements on them, or what makes lenders of them."""
    for cls in kind.__mro__:
        name = f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"
        for dialect in every():
            if (driver := dialect.drivers[colour].get(name)) is not None:
                return dialect, driver
        if (library := _LIBRARIES[colour].get(name)) is not None:
            return None, library
    return None


def driver_connection(connection: Any) -> Any:
    """The driver's own connection, if this is one of SQLAlchemy or Django, inside of their transaction."""
    for cls in type(connection).__mro__:
        library = _LIBRARIES["sync"].get(f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}")
        if library is _django:
            connection.ensure_connection()
            return connection.connection
        if library is not None:
            connection = connection.connection() if library is _session else connection
            connection.exec_driver_sql("select 1")  # begins a transaction, or the library would not end ours
            return connection.connection.driver_connection
    return connection


def _called(name: str) -> Dialect:
    dialect = called(name)
    if dialect is None:
        raise InputError("connection", f"duly works on PostgreSQL or SQLite, but this connection is to {name}")
    return dialect


async def _connection(connection: Any) -> Lender:
    """Of SQLAlchemy, sync or async."""
    text = sys.modules["sqlalchemy"].text

    async def run(sql: str, parameters: Parameters) -> Any:
        # Its parser takes a colon before a name for a parameter.
        result = await answered(connection.execute(text(sql.replace("::", r"\:\:")), parameters))
        return result.fetchall() if result.returns_rows else ()

    dialect = _called(connection.dialect.name)
    plain = getattr(connection, "sync_connection", connection)
    return Lender(dialect, run, plain.connection.driver_connection)


async def _session(session: Any) -> Lender:
    return await _connection(await answered(session.connection()))


async def _django(connection: Any) -> Lender:
    async def run(sql: str, parameters: Parameters) -> Any:
        with connection.cursor() as cursor:
            aware(cursor.cursor)
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall() if has_rows(cursor.cursor) else ()

    dialect = _called(connection.vendor)
    connection.ensure_connection()
    return Lender(dialect, run, connection.connection)


# Libraries over any database, by the class of their connections.
_LIBRARIES: dict[Colour, dict[str, Library]] = {
    "sync": {
        "sqlalchemy.Connection": _connection,
        "sqlalchemy.Session": _session,
        "sqlalchemy.scoped_session": _session,
        "django.BaseDatabaseWrapper": _django,
        "django.ConnectionProxy": _django,
    },
    "async": {
        "sqlalchemy.AsyncConnection": _connection,
        "sqlalchemy.AsyncSession": _session,
        "sqlalchemy.async_scoped_session": _session,
    },
}
