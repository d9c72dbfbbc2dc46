"""What is not a connection in a transaction of the caller's is refused by name, and nothing is put."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa

from duly import Duly, InputError
from duly.tasks.task import Task


@pytest.fixture
def ring(postgres_url: str) -> Iterator[Task[..., Any]]:
    app = Duly(postgres_url)

    @app.task
    def ring() -> None: ...

    yield ring
    assert app.read.page() == []
    app.close()


@pytest.mark.parametrize(
    "thing", [object(), "postgresql://", 5, sqlite3, Duly], ids=["object", "url", "number", "module", "class"]
)
def test_a_thing_that_is_no_connection_is_refused(ring: Task[..., Any], thing: Any) -> None:
    with pytest.raises(InputError, match=r"^connection: put cannot use a ") as refused:
        ring.options(connection=thing).put()
    assert refused.value.field == "connection"
    with pytest.raises(InputError, match=r"^connection: aput cannot use a "):
        asyncio.run(ring.options(connection=thing).aput())


def test_an_engine_a_pool_and_a_cursor_are_in_no_transaction_of_the_callers(
    ring: Task[..., Any], postgres_url: str
) -> None:
    engine = sa.create_engine(f"postgresql+psycopg://{postgres_url.partition('://')[2]}")
    with pytest.raises(InputError, match=r"cannot use a sqlalchemy\.engine\.base\.Engine"):
        ring.options(connection=engine).put()
    engine.dispose()
    pool = psycopg_pool.ConnectionPool(postgres_url, min_size=1, open=False)
    with pytest.raises(InputError, match=r"cannot use a psycopg_pool\.pool\.ConnectionPool"):
        ring.options(connection=pool).put()
    with psycopg.connect(postgres_url) as connection, pytest.raises(InputError, match=r"cannot use a psycopg\.Cursor"):
        ring.options(connection=connection.cursor()).put()

    async def with_pool() -> None:
        async with asyncpg.create_pool(postgres_url, min_size=0) as pool:
            with pytest.raises(InputError, match=r"cannot use a asyncpg\.pool\.Pool"):
                await ring.options(connection=pool).aput()

    asyncio.run(with_pool())


def test_the_other_colour_is_told_which_verb_to_use(ring: Task[..., Any], postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection, pytest.raises(InputError, match=r"other colour, use put$"):
        asyncio.run(ring.options(connection=connection).aput())

    async def with_async() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            with pytest.raises(InputError, match=r"other colour, use aput$"):
                ring.options(connection=connection).put()

    asyncio.run(with_async())


def test_a_database_that_duly_does_not_know_is_refused(ring: Task[..., Any]) -> None:
    engine = sa.create_engine("sqlite://")
    engine.dialect.name = "oracle"
    with (
        engine.connect() as connection,
        pytest.raises(InputError, match=r"^connection: .* this connection is to oracle"),
    ):
        ring.options(connection=connection).put()
