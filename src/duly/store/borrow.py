"""Puts on a connection that the caller owns: the item exists if and only if the caller's transaction commits.

Known are psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, SQLAlchemy (connections and sessions, sync and async) and Django.
None of them is imported: a connection is known by the module of its class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from duly.errors import InputError
from duly.model import NewItem, Placed
from duly.store.base import conflict, item_parameters, key_parameters
from duly.store.herald import news_of
from duly.store.sql import sections, to_numbered, to_psycopg
from duly.store.sqlite import to_int, to_time

Dialect = Literal["postgres", "sqlite"]
Rows = list[Any]
Steps: TypeAlias = Generator[tuple[str, dict[str, Any]], Rows, Placed]


def put_borrowed(connection: Any, new: NewItem) -> Placed:
    """Put inside the caller's transaction."""
    dialect, run = _sync_runner(connection)
    steps = _steps(new, dialect)
    rows: Rows | None = None
    while True:
        try:
            name, parameters = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            placed: Placed = end.value
            return placed
        rows = [tuple(row) for row in run(sections(dialect)[name], parameters)]


async def aput_borrowed(connection: Any, new: NewItem) -> Placed:
    """The same on an async connection."""
    dialect, run = _async_runner(connection)
    steps = _steps(new, dialect)
    rows: Rows | None = None
    while True:
        try:
            name, parameters = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            placed: Placed = end.value
            return placed
        rows = [tuple(row) for row in await run(sections(dialect)[name], parameters)]


def _steps(new: NewItem, dialect: Dialect) -> Steps:
    """The statements of one put; their rows are sent back in."""
    parameters = item_parameters(new)
    statement = "put_one"
    if dialect == "sqlite":
        parameters["due_at"] = to_int(new.due_at or datetime.now(UTC))
    elif news := news_of(new):
        statement = "put_one_and_tell"
        parameters["news"] = news
    while True:
        rows = yield statement, parameters
        if rows:
            return Placed(id=rows[0][0], execution_key=str(rows[0][1]), fresh=True)
        for item_id, execution_key, args, planned_at in (yield "live", key_parameters(new)):
            planned = to_time(planned_at) if dialect == "sqlite" else planned_at
            if refusal := conflict(new, item_id, args.encode(), planned):
                raise refusal
            return Placed(id=item_id, execution_key=str(execution_key), fresh=False)


def _home(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0]


def _sync_runner(connection: Any) -> tuple[Dialect, Callable[[str, dict[str, Any]], Any]]:
    match _home(connection):
        case "psycopg" | "psycopg_pool" | "psycopg2" if hasattr(connection, "cursor") and not _is_async(connection):
            return "postgres", lambda sql, parameters: _dbapi(_plain_cursor(connection), to_psycopg(sql), parameters)
        case "sqlite3":
            return "sqlite", lambda sql, parameters: connection.execute(sql, parameters).fetchall()
        case "sqlalchemy" if not _is_async(connection):
            held = connection.connection() if hasattr(connection, "get_bind") else connection
            return _dialect(held.dialect.name), lambda sql, parameters: held.execute(_text(sql), parameters).fetchall()
        case "django":
            return _dialect(connection.vendor), lambda sql, parameters: _dbapi(
                connection.cursor(), to_psycopg(sql), parameters
            )
        case _:
            raise _unknown(connection, "put")


def _async_runner(connection: Any) -> tuple[Dialect, Callable[[str, dict[str, Any]], Any]]:
    match _home(connection):
        case "asyncpg":

            async def fetch(sql: str, parameters: dict[str, Any]) -> Any:
                numbered, values = to_numbered(sql, parameters)
                return await connection.fetch(numbered, *values)

            return "postgres", fetch
        case "psycopg" if _is_async(connection):

            async def execute(sql: str, parameters: dict[str, Any]) -> Any:
                cursor = await _plain_cursor(connection).execute(to_psycopg(sql), parameters)
                return await cursor.fetchall()

            return "postgres", execute
        case "aiosqlite":

            async def execute_light(sql: str, parameters: dict[str, Any]) -> Any:
                async with connection.execute(sql, parameters) as cursor:
                    return await cursor.fetchall()

            return "sqlite", execute_light
        case "sqlalchemy" if _is_async(connection):

            async def execute_text(sql: str, parameters: dict[str, Any]) -> Any:
                return (await connection.execute(_text(sql), parameters)).fetchall()

            bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
            return _dialect(bind.dialect.name), execute_text
        case _:
            raise _unknown(connection, "aput")


def _is_async(connection: Any) -> bool:
    return "Async" in type(connection).__name__ or "async" in type(connection).__name__


def _plain_cursor(connection: Any) -> Any:
    """A cursor whose rows are tuples, whatever the caller's connection makes of rows by default."""
    if _home(connection) == "psycopg2":
        from psycopg2.extensions import cursor

        return connection.cursor(cursor_factory=cursor)
    from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)


def _dbapi(cursor: Any, sql: str, parameters: dict[str, Any]) -> Any:
    with cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def _text(sql: str) -> Any:
    return sys.modules["sqlalchemy"].text(sql)


def _dialect(name: str) -> Dialect:
    if name == "postgresql":
        return "postgres"
    if name == "sqlite":
        return "sqlite"
    raise InputError("connection", f"duly keeps its work in PostgreSQL or SQLite, this connection is to {name}")


def _unknown(connection: Any, verb: str) -> InputError:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    other = "aput" if verb == "put" else "put"
    return InputError("connection", f"{verb} cannot use a {kind}; if it is of the other colour, use {other}")
