"""A fresh process begins with a put inside the caller's transaction, which may hold SQLite's write lock."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from duly import Duly
from duly.core.errors import NotMigrated
from duly.store import migrate as migrating
from duly.store.migrate import current, latest, migrate, migrations
from duly.tasks.task import Task
from tests.borrow.callers import POSTGRES, SQLITE, play
from tests.support import opened

# What a put may say, and so all that it may have to look up.
PUTS: dict[str, dict[str, Any]] = {
    "now": {},
    "after a delay": {"delay": 60},
    "at a time": {"at": "2030-05-01T09:30+02:00"},
    "once": {"key": "k", "delay": 60, "max_lateness": 60},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.db"


@pytest.fixture
def app(path: Path) -> Iterator[Duly]:
    """As a fresh process has it: nothing is opened yet. It gives up soon, though still much later than it should."""
    app = Duly(f"sqlite:///{path}", store_timeout_seconds=1)
    yield app
    app.close()


@pytest.fixture
def task(app: Duly) -> Task[..., Any]:
    return app.task(name="ring")(ring)


def ring(note: str) -> None: ...


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as light:
        return {row[0] for row in light.execute("select name from sqlite_master where type = 'table'")}


@pytest.mark.parametrize("said", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize("name", SQLITE)
def test_a_blank_file_is_migrated_by_the_callers_own_transaction(
    path: Path, app: Duly, task: Task[..., Any], name: str, said: dict[str, Any]
) -> None:
    async def story() -> None:
        async with SQLITE[name](f"sqlite:///{path}", task) as caller:
            await caller.execute("create table visit (id integer)")
            await caller.execute("insert into visit values (1)")
            placed = await caller.put(said, note="a")
            assert placed.fresh
            await caller.execute("insert into visit values (2)")
            await caller.commit()
        assert app.read.item(placed.id).state == "waiting"
        assert current(app.internals.store) == latest(app.internals.store)
        with closing(sqlite3.connect(path)) as light:
            assert light.execute("select count(*) from visit").fetchone() == (2,)
            assert light.execute("pragma journal_mode").fetchone() == ("wal",), "the store's settings came with it"

    play(story(), name)


@pytest.mark.parametrize("name", SQLITE)
def test_what_the_caller_rolls_back_is_found_missing_again(
    path: Path, app: Duly, task: Task[..., Any], name: str
) -> None:
    with closing(sqlite3.connect(path)) as light:
        light.execute("create table visit (id integer)")

    async def story() -> None:
        async with SQLITE[name](f"sqlite:///{path}", task) as caller:
            await caller.execute("insert into visit values (1)")
            await caller.put(note="a")
            await caller.rollback()
        assert tables(path) == {"visit"}
        async with SQLITE[name](f"sqlite:///{path}", task) as caller:
            await caller.execute("insert into visit values (1)")
            placed = await caller.put(note="a")
            await caller.commit()
        assert [row.id for row in app.read.page()] == [placed.id]

    play(story(), name)


@pytest.mark.parametrize("said", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize("name", SQLITE)
def test_a_migrated_file_needs_nothing_more(
    path: Path, app: Duly, task: Task[..., Any], name: str, said: dict[str, Any]
) -> None:
    with opened(f"sqlite:///{path}") as store, store.transaction() as connection:
        connection.execute("create table visit (id integer)")
    with opened(f"sqlite:///{path}") as store:
        migrate(store)

    async def story() -> None:
        async with SQLITE[name](f"sqlite:///{path}", task) as caller:
            await caller.execute("insert into visit values (1)")
            placed = await caller.put(said, note="a")
            assert app.read.page() == [], "a first look takes no lock either"
            await caller.commit()
        assert app.read.item(placed.id).state == "waiting"

    play(story(), name)


def test_a_put_before_any_transaction_of_the_callers_leaves_a_whole_schema(
    path: Path, app: Duly, task: Task[..., Any]
) -> None:
    with closing(sqlite3.connect(path)) as own:
        task.options(connection=own).put(note="a")
        own.rollback()
        assert own.execute("select max(version) from duly_migration").fetchone() == (latest(app.internals.store),)
    assert app.read.page() == []


def test_an_older_file_is_brought_up_to_date(path: Path, app: Duly, task: Task[..., Any]) -> None:
    with opened(f"sqlite:///{path}") as store, store.migrations() as connection:
        assert migrating.apply(connection, migrations("sqlite")[0])
    with closing(sqlite3.connect(path)) as own, own:
        own.execute("create table visit (id integer)")
        own.execute("insert into visit values (1)")
        placed = task.options(connection=own).put(note="a")
    assert app.read.item(placed.id).state == "waiting"
    assert current(app.internals.store) == latest(app.internals.store)


def test_a_migration_that_fails_on_the_way_leaves_the_callers_transaction_as_it_was(
    path: Path, task: Task[..., Any]
) -> None:
    with closing(sqlite3.connect(path)) as own, own:
        own.execute("create table duly_queue (name text)")  # in the way
        own.execute("insert into duly_queue values ('mine')")
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            task.options(connection=own).put(note="a")
        own.execute("insert into duly_queue values ('mine too')")
    assert tables(path) == {"duly_queue"}
    with closing(sqlite3.connect(path)) as light:
        assert light.execute("select count(*) from duly_queue").fetchone() == (2,)


def test_a_schema_that_only_claims_to_be_whole_is_told_by_the_driver(path: Path, task: Task[..., Any]) -> None:
    with opened(f"sqlite:///{path}") as store:
        migrate(store)
    with closing(sqlite3.connect(path)) as own, own:
        own.execute("drop table duly_item")
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            task.options(connection=own).put(note="a")


@pytest.mark.parametrize("said", PUTS.values(), ids=PUTS)
def test_on_postgres_it_is_the_first_act_of_a_process_too(postgres_url: str, said: dict[str, Any]) -> None:
    program = (
        "import sys, psycopg; from duly import Duly\n"
        "app = Duly(sys.argv[1])\n"
        "@app.task\n"
        "def ring(note: str) -> None: ...\n"
        "with psycopg.connect(sys.argv[1]) as own:\n"
        f"    print(ring.options(connection=own, **{said!r}).put(note='a').id)\n"
        "app.close()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, postgres_url], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    app = Duly(postgres_url)
    assert app.read.item(int(ended.stdout)).state == "waiting"
    app.close()


@pytest.mark.parametrize("name", POSTGRES)
def test_a_blank_postgres_says_at_once_what_to_do(blank_postgres_url: str, name: str) -> None:
    app = Duly(blank_postgres_url)
    task = app.task(name="ring")(ring)

    async def story() -> None:
        async with POSTGRES[name](blank_postgres_url, task) as caller:
            with pytest.raises(NotMigrated, match="run `duly migrate`"):
                await caller.put({"at": app.clock.now() + timedelta(days=1)}, note="a")
            await caller.rollback()

    play(story(), name)
    app.close()


def test_other_errors_of_the_driver_leave_as_they_are(postgres_url: str, path: Path, task: Task[..., Any]) -> None:
    with psycopg.connect(postgres_url) as own:
        with pytest.raises(psycopg.errors.DivisionByZero):
            own.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            task.options(connection=own).put(note="a")
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as closed:
        pass
    with pytest.raises(sa.exc.ResourceClosedError):
        task.options(connection=closed).put(note="a")
    engine.dispose()
