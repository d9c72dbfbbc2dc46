"""Puts on a connection that the caller owns: the item exists if and only if the caller's transaction commits.

Known are psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, SQLAlchemy (connections and sessions, sync and async) and
Django. None of them is imported: a connection is known by its class and the package that it comes from, also when the
caller's own class derives from it. Statements run on plain cursors, whatever the caller's connection makes of rows,
times or JSON by its own settings. Errors of the driver leave as they are, for the transaction is the caller's; but for
a schema that is not there yet. Nothing here opens another connection: the caller may hold SQLite's write lock.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from duly.errors import DulyError, InputError, NotMigrated
from duly.model import NewItem, Placed
from duly.store.base import conflict, item_parameters, key_parameters
from duly.store.herald import news_of
from duly.store.migrate import LEDGER, VERSION, migrations, statements_of
from duly.store.sql import sections, to_numbered, to_psycopg
from duly.store.sqlite import MISSING, to_int, to_time

Dialect = Literal["postgres", "sqlite"]
Parameters: TypeAlias = dict[str, Any]
Rows = list[Any]
Steps: TypeAlias = Generator[tuple[str, Parameters], Rows, Placed]
Run: TypeAlias = Callable[[str, Parameters], Any]
AsyncRun: TypeAlias = Callable[[str, Parameters], Awaitable[Any]]


def put_borrowed(connection: Any, new: NewItem) -> Placed:
    """Put inside the caller's transaction."""
    dialect, run = _known(connection, _SYNC, "put")
    steps = _steps(new, dialect)
    try:
        name, parameters = next(steps)
        while True:
            try:
                rows = run(sections(dialect).get(name, name), parameters)
            except Exception as error:
                name, parameters = steps.throw(error)
            else:
                name, parameters = steps.send([tuple(row) for row in rows])
    except StopIteration as end:
        placed: Placed = end.value
        return placed


async def aput_borrowed(connection: Any, new: NewItem) -> Placed:
    """The same on an async connection."""
    dialect, run = _known(connection, _ASYNC, "aput")
    steps = _steps(new, dialect)
    try:
        name, parameters = next(steps)
        while True:
            try:
                rows = await run(sections(dialect).get(name, name), parameters)
            except Exception as error:
                name, parameters = steps.throw(error)
            else:
                name, parameters = steps.send([tuple(row) for row in rows])
    except StopIteration as end:
        placed: Placed = end.value
        return placed


def _steps(new: NewItem, dialect: Dialect) -> Steps:
    """One put, on a schema that may be old or not there yet."""
    try:
        return (yield from _put_steps(new, dialect))
    except DulyError:
        raise
    except Exception as error:
        if not _is_behind(error, dialect):
            raise
        if dialect == "postgres":
            raise NotMigrated(f"the database is not migrated: run `duly migrate` ({error})") from error
        # Nobody else migrates an embedded database, and only this connection can: it may hold the write lock.
        if not (yield from _migration_steps()):
            raise
    return (yield from _put_steps(new, dialect))


def _put_steps(new: NewItem, dialect: Dialect) -> Steps:
    """The statements of one put, by name; their rows are sent back in."""
    parameters = item_parameters(new)
    statement = "put_one"
    if dialect == "sqlite":
        parameters["due_at"] = to_int(new.due_at or datetime.now(UTC))
        parameters["expires_at"] = None if new.expires_at is None else to_int(new.expires_at)
    elif news := news_of(new):
        statement = "put_one_and_tell"
        parameters["news"] = news
    while True:
        rows = yield statement, parameters
        if rows:
            return Placed(id=rows[0][0], execution_key=_str(rows[0][1]), fresh=True)
        for item_id, execution_key, args, planned_at in (yield "live", key_parameters(new)):
            # In UTC: in the hour that clocks repeat, a time in a zone equals no other, not even itself elsewhere.
            planned = to_time(planned_at) if dialect == "sqlite" else planned_at.astimezone(UTC)
            if refusal := conflict(new, item_id, _str(args).encode(), planned):
                raise refusal
            return Placed(id=item_id, execution_key=_str(execution_key), fresh=False)


def _migration_steps() -> Generator[tuple[str, Parameters], Rows, bool]:
    """Migrate the caller's SQLite file; False when there is nothing to do.

    Under a savepoint it is part of the caller's transaction, and goes with it; where none is open it is one of its own.
    """
    yield "savepoint duly_migration", {}
    try:
        yield LEDGER, {}
        have = (yield VERSION, {})[0][0]
        missing = [migration for migration in migrations("sqlite") if migration.version > have]
        for migration in missing:
            for statement in statements_of(migration):
                yield statement, {}
    except Exception:
        yield "rollback to duly_migration", {}
        yield "release duly_migration", {}
        raise
    yield "release duly_migration", {}
    return bool(missing)


def _is_behind(error: BaseException | None, dialect: Dialect) -> bool:
    """Whether the driver complains of a table or column that a migration would have made, however it is wrapped."""
    if dialect == "sqlite":
        return any(words in str(error) for words in MISSING)
    while error is not None:
        if {getattr(error, name, None) for name in ("sqlstate", "pgcode")} & {"42P01", "42703"}:
            return True
        error = getattr(error, "orig", None) or error.__cause__
    return False


def _known(connection: Any, kinds: dict[str, Callable[[Any], tuple[Dialect, Any]]], verb: str) -> tuple[Dialect, Any]:
    """The dialect of this connection and the way to run statements on it."""
    for cls in type(connection).__mro__:
        kind = f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"
        if kind in kinds:
            return kinds[kind](connection)
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    other = "aput" if verb == "put" else "put"
    raise InputError(
        "connection",
        f"{verb} cannot use a {name}: it must be an open connection or session of psycopg, psycopg2, asyncpg, sqlite3, "
        f"aiosqlite, SQLAlchemy or Django; if it is one, but of the other colour, use {other}",
    )


# -- plain connections


def _psycopg(connection: Any) -> tuple[Dialect, Run]:
    psycopg = sys.modules["psycopg"]

    def run(sql: str, parameters: Parameters) -> Any:
        with psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            return _aware(cursor).execute(to_psycopg(sql), parameters).fetchall()

    return "postgres", run


def _psycopg2(connection: Any) -> tuple[Dialect, Run]:
    plain = sys.modules["psycopg2.extensions"].cursor

    def run(sql: str, parameters: Parameters) -> Any:
        with connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall()

    return "postgres", run


def _sqlite3(connection: Any) -> tuple[Dialect, Run]:
    def run(sql: str, parameters: Parameters) -> Any:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters).fetchall()

    return "sqlite", run


def _sqlalchemy(connection: Any) -> tuple[Dialect, Run]:
    text = sys.modules["sqlalchemy"].text

    def run(sql: str, parameters: Parameters) -> Any:
        result = connection.execute(text(sql), parameters)
        return result.fetchall() if result.returns_rows else ()

    return _dialect(connection.dialect.name), run


def _session(session: Any) -> tuple[Dialect, Run]:
    return _sqlalchemy(session.connection())


def _django(connection: Any) -> tuple[Dialect, Run]:
    def run(sql: str, parameters: Parameters) -> Any:
        with connection.cursor() as cursor:
            _aware(cursor.cursor)
            cursor.execute(to_psycopg(sql), parameters)
            return cursor.fetchall()

    return _dialect(connection.vendor), run


# -- async connections


def _apsycopg(connection: Any) -> tuple[Dialect, AsyncRun]:
    psycopg = sys.modules["psycopg"]

    async def run(sql: str, parameters: Parameters) -> Any:
        async with psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await _aware(cursor).execute(to_psycopg(sql), parameters)
            return await cursor.fetchall()

    return "postgres", run


def _asyncpg(connection: Any) -> tuple[Dialect, AsyncRun]:
    async def run(sql: str, parameters: Parameters) -> Any:
        # A json codec that the caller may have set would encode our JSON text a second time: it goes in as text.
        numbered, values = to_numbered(
            sql.replace("cast(:args as json)", "cast(cast(:args as text) as json)"), parameters
        )
        return await connection.fetch(numbered, *values)

    return "postgres", run


def _aiosqlite(connection: Any) -> tuple[Dialect, AsyncRun]:
    async def run(sql: str, parameters: Parameters) -> Any:
        async with connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, parameters)
            return await cursor.fetchall()

    return "sqlite", run


def _asqlalchemy(connection: Any) -> tuple[Dialect, AsyncRun]:
    text = sys.modules["sqlalchemy"].text

    async def run(sql: str, parameters: Parameters) -> Any:
        result = await connection.execute(text(sql), parameters)
        return result.fetchall() if result.returns_rows else ()

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return _dialect(bind.dialect.name), run


def _aware(cursor: Any) -> Any:
    """This cursor, giving aware times: Django without USE_TZ takes the zone away from what its cursors read."""
    if hasattr(cursor, "adapters"):  # psycopg's; SQLite's times are numbers
        from psycopg.types.datetime import TimestamptzLoader

        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


def _dialect(name: str) -> Dialect:
    if name == "postgresql":
        return "postgres"
    if name == "sqlite":
        return "sqlite"
    raise InputError("connection", f"duly keeps its work in PostgreSQL or SQLite, this connection is to {name}")


def _str(text: Any) -> str:
    """Text, also from a SQLite connection whose text_factory is bytes."""
    return text.decode() if isinstance(text, bytes) else str(text)


_SYNC: dict[str, Callable[[Any], tuple[Dialect, Run]]] = {
    "psycopg.Connection": _psycopg,
    "psycopg2.connection": _psycopg2,
    "sqlite3.Connection": _sqlite3,
    "sqlalchemy.Connection": _sqlalchemy,
    "sqlalchemy.Session": _session,
    "sqlalchemy.scoped_session": _session,
    "django.BaseDatabaseWrapper": _django,
    "django.ConnectionProxy": _django,
}

_ASYNC: dict[str, Callable[[Any], tuple[Dialect, AsyncRun]]] = {
    "psycopg.AsyncConnection": _apsycopg,
    "asyncpg.Connection": _asyncpg,
    "asyncpg.PoolConnectionProxy": _asyncpg,
    "aiosqlite.Connection": _aiosqlite,
    "sqlalchemy.AsyncConnection": _asqlalchemy,
    "sqlalchemy.AsyncSession": _asqlalchemy,
    "sqlalchemy.async_scoped_session": _asqlalchemy,
}
