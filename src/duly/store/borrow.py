"""Puts and other acts on a connection that the caller owns: they exist if and only if the caller's transaction commits.

A put works with psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, SQLAlchemy (connections and sessions, sync and async)
and Django. None of them is imported: a connection is recognized by its class and package, also when the caller's own
class derives from it. Statements run on plain cursors, whatever row, time or JSON types the caller has set on the
connection. Errors of the driver are passed on as they are, for the transaction is the caller's, except that of a
missing schema. Nothing here opens another connection, because the caller may hold SQLite's write lock.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from duly.core.errors import DulyError, InputError, NotMigrated
from duly.core.model import NewItem, Placed
from duly.store.contract import Store
from duly.store.dialects import Colour, Dialect, Run, answered, called, every
from duly.store.migrate import LEDGER, VERSION, migrations, statements_of
from duly.store.postgres import aware
from duly.store.puts import conflict, key_parameters
from duly.store.sql import sections, to_psycopg

Parameters: TypeAlias = dict[str, Any]
# Runs a section by its name, or a statement, on the caller's connection.
Ask: TypeAlias = Callable[[str, Parameters], Awaitable[list[Any]]]


def put_borrowed(connection: Any, new: NewItem) -> Placed[Any]:
    """Put inside the caller's transaction."""
    try:
        _put(new, *_known(connection, "sync")).send(None)  # nothing in there ever waits, so it comes to its end at once
    except StopIteration as end:
        placed: Placed[Any] = end.value
    return placed


async def aput_borrowed(connection: Any, new: NewItem) -> Placed[Any]:
    """The same on an async connection."""
    return await _put(new, *_known(connection, "async"))


@contextmanager
def lent(store: Store, connection: Any) -> Iterator[Any]:
    """The caller's connection as verbs on this store use it: what they do there is done as a whole or not at all."""
    with store.lent(_driver_connection(connection)) as own:
        yield own


def _driver_connection(connection: Any) -> Any:
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


async def _put(new: NewItem, dialect: Dialect, run: Run) -> Placed[Any]:
    """One put, on a schema that may be old or not there yet."""

    async def ask(name: str, parameters: Parameters) -> list[Any]:
        return [tuple(row) for row in await run(sections(dialect.name).get(name, name), parameters)]

    try:
        return await _place(new, dialect, ask)
    except DulyError:
        raise
    except Exception as error:
        if not dialect.is_behind(error):
            raise
        if not dialect.is_embedded:
            raise NotMigrated(f"the database is not migrated: run `duly migrate` ({error})") from error
        # Nothing else migrates an embedded database, and only this connection can: it may hold the write lock.
        if not await _migrate(dialect, ask):
            raise
    return await _place(new, dialect, ask)


async def _place(new: NewItem, dialect: Dialect, ask: Ask) -> Placed[Any]:
    section, parameters = dialect.put(new)
    while True:
        rows = await ask(section, parameters)
        if rows:
            return Placed(id=rows[0][0], execution_key=_str(rows[0][1]), fresh=True)
        for item_id, execution_key, args, planned_at in await ask("live", key_parameters(new)):
            if refusal := conflict(new, item_id, _str(args).encode(), dialect.time(planned_at)):
                raise refusal
            return Placed(id=item_id, execution_key=_str(execution_key), fresh=False)


async def _migrate(dialect: Dialect, ask: Ask) -> bool:
    """Migrate the caller's own database; False when there is nothing to do.

    Under a savepoint it is part of the caller's transaction; if the caller has none open, it is a transaction itself.
    """
    await ask("savepoint duly_migration", {})
    try:
        await ask(LEDGER, {})
        have = (await ask(VERSION, {}))[0][0]
        missing = [migration for migration in migrations(dialect.name) if migration.version > have]
        for migration in missing:
            for statement in statements_of(migration):
                await ask(statement, {})
    except Exception:
        await ask("rollback to duly_migration", {})
        await ask("release duly_migration", {})
        raise
    await ask("release duly_migration", {})
    return bool(missing)


def _known(connection: Any, colour: Colour) -> tuple[Dialect, Run]:
    """The dialect of this connection and the way to run statements on it."""
    for cls in type(connection).__mro__:
        kind = f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"
        for dialect in every():
            if (driver := dialect.drivers[colour].get(kind)) is not None:
                return dialect, driver(connection)
        if (library := _LIBRARIES[colour].get(kind)) is not None:
            return library(connection)
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    verb, other = ("put", "aput") if colour == "sync" else ("aput", "put")
    raise InputError(
        "connection",
        f"{verb} cannot use a {name}: it must be an open connection or session of psycopg, psycopg2, asyncpg, sqlite3, "
        f"aiosqlite, SQLAlchemy or Django; if it is one, but of the other colour, use {other}",
    )


def _called(name: str) -> Dialect:
    dialect = called(name)
    if dialect is None:
        raise InputError("connection", f"duly works on PostgreSQL or SQLite, but this connection is to {name}")
    return dialect


def _sqlalchemy(connection: Any) -> tuple[Dialect, Run]:
    """A connection, or an async connection or session."""
    text = sys.modules["sqlalchemy"].text

    async def run(sql: str, parameters: Parameters) -> Any:
        result = await answered(connection.execute(text(sql), parameters))
        return result.fetchall() if result.returns_rows else ()

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return _called(bind.dialect.name), run


def _session(session: Any) -> tuple[Dialect, Run]:
    return _sqlalchemy(session.connection())


def _django(connection: Any) -> tuple[Dialect, Run]:
    async def run(sql: str, parameters: Parameters) -> Any:
        with connection.cursor() as cursor:
            aware(cursor.cursor)
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall()

    return _called(connection.vendor), run


def _str(text: Any) -> str:
    """Text, also from a SQLite connection whose text_factory is bytes."""
    return text.decode() if isinstance(text, bytes) else str(text)


# Libraries over any database, by the class of their connections.
_LIBRARIES: dict[Colour, dict[str, Callable[[Any], tuple[Dialect, Run]]]] = {
    "sync": {
        "sqlalchemy.Connection": _sqlalchemy,
        "sqlalchemy.Session": _session,
        "sqlalchemy.scoped_session": _session,
        "django.BaseDatabaseWrapper": _django,
        "django.ConnectionProxy": _django,
    },
    "async": {
        "sqlalchemy.AsyncConnection": _sqlalchemy,
        "sqlalchemy.AsyncSession": _sqlalchemy,
        "sqlalchemy.async_scoped_session": _sqlalchemy,
    },
}
