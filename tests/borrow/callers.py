"""Callers with a transaction of their own, one per library and way of using it.

Each is an async context that gives a `Caller`; those of plain libraries never wait, so that `play` runs them without an
event loop, which Django insists on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import aiosqlite
import asyncpg
import django
import psycopg
import psycopg2
import psycopg2.extras
import psycopg_pool
import sqlalchemy as sa
from django.conf import settings
from django.db import connections, transaction
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

from duly import Duly, Placed
from duly.facade.jobs import RunningJob
from duly.tasks.puttable import NO_OPTIONS, Options
from duly.tasks.task import Task

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True, TIME_ZONE="Europe/Zagreb")
    django.setup()

Step = Callable[[], Awaitable[None]]


class Caller(NamedTuple):
    execute: Callable[[str], Awaitable[None]]
    put: Callable[..., Awaitable[Placed[Any]]]
    put_many: Callable[..., Awaitable[int]]
    job: Callable[..., Awaitable[RunningJob]]
    commit: Step
    rollback: Step
    connection: Any


Opener = Callable[[str, Task[..., Any]], AbstractAsyncContextManager[Caller]]


def plain(task: Task[..., Any], connection: Any, execute: Callable[[str], Any], commit: Any, rollback: Any) -> Caller:
    async def run(sql: str) -> None:
        execute(sql)

    async def put(options: Options = NO_OPTIONS, /, **args: Any) -> Placed[Any]:
        return task.options(**options, connection=connection).put(**args)

    async def put_many(rows: Iterable[Any]) -> int:
        return task.options(connection=connection).put_many(rows)

    async def job(app: Duly, rows: Iterable[Any], **more: Any) -> RunningJob:
        return app.job(task, rows, connection=connection, **more)

    async def end() -> None:
        commit()

    async def undo() -> None:
        rollback()

    return Caller(run, put, put_many, job, end, undo, connection)


def waiting(task: Task[..., Any], connection: Any, execute: Any, commit: Any, rollback: Any) -> Caller:
    async def run(sql: str) -> None:
        await execute(sql)

    async def put(options: Options = NO_OPTIONS, /, **args: Any) -> Placed[Any]:
        return await task.options(**options, connection=connection).aput(**args)

    async def put_many(rows: Iterable[Any]) -> int:
        return await task.options(connection=connection).aput_many(rows)

    async def job(app: Duly, rows: Iterable[Any], **more: Any) -> RunningJob:
        return await app.ajob(task, rows, connection=connection, **more)

    return Caller(run, put, put_many, job, commit, rollback, connection)


class OwnConnection(psycopg.Connection[Any]):
    """A class of the caller's own."""


# -- psycopg


def psycopg_with(cls: type[psycopg.Connection[Any]] = psycopg.Connection, **options: Any) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        with cls.connect(url, **options) as connection:
            yield plain(task, connection, connection.execute, connection.commit, connection.rollback)

    return open_one


@asynccontextmanager
async def psycopg_autocommit(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    with psycopg.connect(url, autocommit=True) as connection:
        block = connection.transaction()
        block.__enter__()
        undo = psycopg.Rollback()
        yield plain(
            task,
            connection,
            connection.execute,
            lambda: block.__exit__(None, None, None),
            lambda: block.__exit__(psycopg.Rollback, undo, None),
        )


@asynccontextmanager
async def psycopg_pooled(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True) as pool, pool.connection() as connection:
        yield plain(task, connection, connection.execute, connection.commit, connection.rollback)


def psycopg_async(**options: Any) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            yield waiting(task, connection, connection.execute, connection.commit, connection.rollback)

    return open_one


# -- psycopg2


def psycopg2_with(**options: Any) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        connection = psycopg2.connect(url, **options)
        try:
            cursor = connection.cursor()
            yield plain(task, connection, cursor.execute, connection.commit, connection.rollback)
        finally:
            connection.close()

    return open_one


# -- asyncpg


@asynccontextmanager
async def asyncpg_single(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    try:
        block = connection.transaction()
        await block.start()
        yield waiting(task, connection, connection.execute, block.commit, block.rollback)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_json(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    """With a codec that many set: JSON columns as Python values."""
    import json

    connection = await asyncpg.connect(url)
    try:
        await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        block = connection.transaction()
        await block.start()
        yield waiting(task, connection, connection.execute, block.commit, block.rollback)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        block = connection.transaction()
        await block.start()
        yield waiting(task, connection, connection.execute, block.commit, block.rollback)


# -- sqlite3


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def sqlite3_with(row_factory: Any = None, text_factory: Any = str, **options: Any) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        connection = sqlite3.connect(_path(url), **options)
        connection.row_factory, connection.text_factory = row_factory, text_factory
        try:
            if connection.isolation_level is None:
                connection.execute("begin")
            yield plain(task, connection, connection.execute, connection.commit, connection.rollback)
        finally:
            connection.close()

    return open_one


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@asynccontextmanager
async def aiosqlite_single(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
    async with aiosqlite.connect(_path(url)) as connection:
        connection.row_factory = as_dict
        yield waiting(task, connection, connection.execute, connection.commit, connection.rollback)


# -- SQLAlchemy


def _sa_url(url: str, driver: str) -> str:
    return f"{url.partition('://')[0]}+{driver}://{url.partition('://')[2]}"


def sa_connection(driver: str) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        engine = sa.create_engine(_sa_url(url, driver))
        with engine.connect() as connection:
            yield plain(
                task, connection, lambda sql: connection.execute(sa.text(sql)), connection.commit, connection.rollback
            )
        engine.dispose()

    return open_one


def sa_session(driver: str, scoped: bool = False) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        engine = sa.create_engine(_sa_url(url, driver))
        make = orm.sessionmaker(engine)
        session = orm.scoped_session(make) if scoped else make()
        try:
            yield plain(task, session, lambda sql: session.execute(sa.text(sql)), session.commit, session.rollback)
        finally:
            session.close()
            engine.dispose()

    return open_one


def sa_async_connection(driver: str) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        engine = sa_async.create_async_engine(_sa_url(url, driver))
        async with engine.connect() as connection:
            yield waiting(
                task, connection, lambda sql: connection.execute(sa.text(sql)), connection.commit, connection.rollback
            )
        await engine.dispose()

    return open_one


def sa_async_session(driver: str, scoped: bool = False) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        engine = sa_async.create_async_engine(_sa_url(url, driver))
        make = sa_async.async_sessionmaker(engine)
        session = sa_async.async_scoped_session(make, scopefunc=asyncio.current_task) if scoped else make()
        try:
            yield waiting(task, session, lambda sql: session.execute(sa.text(sql)), session.commit, session.rollback)
        finally:
            await session.close()
            await engine.dispose()

    return open_one


# -- Django


def django_with(use_tz: bool = True, proxy: bool = False) -> Opener:
    @asynccontextmanager
    async def open_one(url: str, task: Task[..., Any]) -> AsyncIterator[Caller]:
        alias = "default"
        settings.USE_TZ = use_tz
        connections.databases[alias] = _django_database(url)
        connection = connections[alias]
        try:
            block = transaction.atomic(using=alias)
            block.__enter__()
            undo = RuntimeError("never mind")
            yield plain(
                task,
                django.db.connection if proxy else connection,
                connection.cursor().execute,
                lambda: block.__exit__(None, None, None),
                lambda: block.__exit__(RuntimeError, undo, None),
            )
        finally:
            connection.close()
            del connections[alias]

    return open_one


def _django_database(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        given = {"ENGINE": "django.db.backends.sqlite3", "NAME": _path(url)}
    else:
        known = psycopg.conninfo.conninfo_to_dict(url)
        given = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": known["dbname"],
            "USER": known.get("user", ""),
            "PASSWORD": known.get("password", ""),
            "HOST": known.get("host", ""),
            "PORT": str(known.get("port", "")),
        }
    defaults = {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    return {**defaults, "OPTIONS": {}, "TIME_ZONE": None, "TEST": {}, "USER": "", "PASSWORD": "", "HOST": "", **given}


POSTGRES: dict[str, Opener] = {
    "psycopg": psycopg_with(),
    "psycopg rows as dicts": psycopg_with(row_factory=dict_row),
    "psycopg client cursor": psycopg_with(cursor_factory=psycopg.ClientCursor),
    "psycopg raw cursor": psycopg_with(cursor_factory=psycopg.RawCursor),
    "psycopg own class": psycopg_with(OwnConnection),
    "psycopg autocommit": psycopg_autocommit,
    "psycopg pool": psycopg_pooled,
    "psycopg async": psycopg_async(),
    "psycopg async rows as dicts": psycopg_async(row_factory=dict_row),
    "psycopg2": psycopg2_with(),
    "psycopg2 rows as dicts": psycopg2_with(cursor_factory=psycopg2.extras.RealDictCursor),
    "asyncpg": asyncpg_single,
    "asyncpg json codec": asyncpg_json,
    "asyncpg pool": asyncpg_pooled,
    "sqlalchemy connection psycopg": sa_connection("psycopg"),
    "sqlalchemy connection psycopg2": sa_connection("psycopg2"),
    "sqlalchemy session psycopg": sa_session("psycopg"),
    "sqlalchemy session psycopg2": sa_session("psycopg2"),
    "sqlalchemy scoped session psycopg": sa_session("psycopg", scoped=True),
    "sqlalchemy async connection asyncpg": sa_async_connection("asyncpg"),
    "sqlalchemy async connection psycopg": sa_async_connection("psycopg"),
    "sqlalchemy async session asyncpg": sa_async_session("asyncpg"),
    "sqlalchemy async session psycopg": sa_async_session("psycopg"),
    "sqlalchemy async scoped session asyncpg": sa_async_session("asyncpg", scoped=True),
    "django": django_with(),
    "django proxy": django_with(proxy=True),
    "django without zones": django_with(use_tz=False),
}

SQLITE: dict[str, Opener] = {
    "sqlite3": sqlite3_with(),
    "sqlite3 explicit begin": sqlite3_with(isolation_level=None),
    "sqlite3 rows": sqlite3_with(row_factory=sqlite3.Row),
    "sqlite3 rows as dicts": sqlite3_with(row_factory=as_dict),
    "sqlite3 text as bytes": sqlite3_with(text_factory=bytes),
    "aiosqlite": aiosqlite_single,
    "sqlalchemy connection pysqlite": sa_connection("pysqlite"),
    "sqlalchemy session pysqlite": sa_session("pysqlite"),
    "sqlalchemy async connection aiosqlite": sa_async_connection("aiosqlite"),
    "sqlalchemy async session aiosqlite": sa_async_session("aiosqlite"),
    "django sqlite": django_with(),
}


def play(story: Coroutine[Any, Any, None], name: str) -> None:
    """Run a story: on an event loop if its library is async, else without one."""
    if "async" in name or "aiosqlite" in name:
        asyncio.run(story)
        return
    try:
        story.send(None)
    except StopIteration:
        return
    raise AssertionError("a plain caller waited")
