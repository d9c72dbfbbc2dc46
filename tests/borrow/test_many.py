"""Many items, or a job with its rows, inside the caller's own transaction, with the real libraries: all or none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest

from duly import Duly, InputError, KeyConflict
from duly.core.errors import DoesNotExist, NotMigrated
from duly.store import borrow
from tests.borrow.callers import POSTGRES, SQLITE, play
from tests.borrow.test_put import CALLERS, Scene


@pytest.fixture(params=CALLERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    kind = "postgres_url" if request.param in POSTGRES else "sqlite_url"
    scene = Scene(request.getfixturevalue(kind), request.param)
    yield scene
    scene.app.close()


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)

    @app.task(name="ring")
    def ring(note: str) -> None: ...

    yield app
    app.close()


def notes(scene: Scene) -> list[str]:
    """What the committed items say, in the order of their ids."""
    rows = scene.store.query("select cast(args as text) from duly_item where task = 'ring' order by id", {})
    return [args for (args,) in rows]


def rows(*said: str) -> Iterator[dict[str, str]]:
    for note in said:
        if note == "stop":
            raise LookupError("the rows ended early")
        yield {"note": note}


def jobs(scene: Scene) -> int:
    return int(scene.store.query("select count(*) from duly_job", {})[0][0])


def row_ids(scene: Scene) -> list[int]:
    rows = scene.store.query("select id from duly_item where job_id is not null order by row_no", {})
    return [item_id for (item_id,) in rows]


@pytest.fixture
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borrow, "PORTION", 2)


small_portions = pytest.mark.usefixtures("_small_portions")


@small_portions
def test_many_items_and_the_business_row_come_to_be_together_at_the_commit(scene: Scene) -> None:
    said = ["a", "50 % off: 'b' \\ \"c\" š :x", "c\n", "d", "e"]

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            assert await caller.put_many(rows(*said)) == 5
            assert (notes(scene), scene.visits()) == ([], 0)
            await caller.commit()
        items = sorted(scene.store.fetch(scene.claimed()), key=lambda item: item.id)
        assert [item.args for item in items] == [scene.task.new(note=note).args for note in said]
        assert scene.visits() == 1

    play(story(), scene.name)


@small_portions
def test_after_a_rollback_there_is_none_of_them(scene: Scene) -> None:
    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            await caller.put_many(rows("a", "b", "c"))
            await caller.job(scene.app, rows("a", "b", "c"))
            await caller.rollback()
        assert (notes(scene), jobs(scene), scene.visits()) == ([], 0, 0)

    play(story(), scene.name)


@small_portions
@pytest.mark.parametrize("scene", SQLITE, indirect=True)
def test_they_may_be_the_first_that_a_transaction_writes(scene: Scene) -> None:
    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.put_many(rows("a", "b", "c"))
            assert notes(scene) == []
            await caller.rollback()
        assert notes(scene) == []

    play(story(), scene.name)


@small_portions
def test_rows_that_end_in_an_error_leave_nothing_in_the_transaction_which_goes_on(scene: Scene) -> None:
    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            await caller.put(note="before")
            for put in (caller.put_many, lambda given: caller.job(scene.app, given)):
                with pytest.raises(LookupError, match="ended early"):
                    await put(rows("a", "b", "c", "stop"))
                with pytest.raises(InputError, match=r"^rows\[2\]\.mood"):
                    await put([*rows("a", "b"), {"mood": "bad"}])
            await caller.execute("insert into visit values (2, 'b')")
            await caller.put(note="after")
            await caller.commit()
        assert notes(scene) == ['{"note":"before"}', '{"note":"after"}']
        assert (jobs(scene), scene.visits()) == (0, 2)

    play(story(), scene.name)


@small_portions
def test_a_key_is_put_once_and_one_that_conflicts_midway_takes_all_rows_back(scene: Scene) -> None:
    make = scene.task.options(key="k").new
    scene.task.options(key="k").put(note="live")

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            twice = scene.task.options(key="twice").new(note="t")
            assert await caller.put_many([make(note="live"), twice, {"note": "a"}, twice, make(note="live")]) == 2
            with pytest.raises(KeyConflict, match="other arguments"):
                await caller.put_many([{"note": "b"}, {"note": "c"}, make(note="other")])
            with pytest.raises(KeyConflict, match=r"row 3: another row or a live item of ring has the key 'k'"):
                await caller.job(scene.app, [{"note": "b"}, {"note": "c"}, make(note="live")])
            await caller.commit()
        assert notes(scene) == ['{"note":"live"}', '{"note":"t"}', '{"note":"a"}']
        assert jobs(scene) == 0

    play(story(), scene.name)


@small_portions
def test_a_job_with_its_rows_exists_if_the_transaction_commits_and_is_followed_by_then(scene: Scene) -> None:
    @scene.app.task
    def report(job: dict[str, Any]) -> None: ...

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            job = await caller.job(scene.app, rows("a", "b", "c"), then=report, owner="ana")
            with pytest.raises(DoesNotExist):
                job.counts()
            with pytest.raises(TimeoutError, match="its transaction has not committed"):
                job.wait(timeout=0.01)
            await caller.commit()
        counts = job.counts()
        assert (counts.total, counts.is_sealed, counts.owner, counts.ended) == (3, True, "ana", 0)
        (line,) = scene.app.internals.verbs.audit.page(f"job:{job.id}")
        assert (line.action, line.actor, line.details) == ("job.opened", "local", {"task": "ring"})
        assert [(item.job_id, item.status, item.owner, item.queue) for item in scene.store.fetch(row_ids(scene))] == [
            (job.id, "PENDING", "ana", f"ring/job-{job.id}")
        ] * 3

    play(story(), scene.name)


@pytest.mark.parametrize(
    "scene", ["psycopg", "asyncpg", "sqlalchemy session psycopg2", "sqlite3", "aiosqlite"], indirect=True
)
def test_a_worker_runs_the_rows_of_such_a_job_and_its_last_row_puts_then(scene: Scene) -> None:
    scene.app.task(name="report")(lambda job: job)

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            job = await caller.job(scene.app, rows("a", "b", "c"), then="report")
            await caller.commit()
        assert job.kickoff(20).processed == 3
        counts = job.wait(timeout=0)
        assert counts.done == 3
        (then,) = scene.store.fetch([counts.then_id])
        assert b'"done":3' in then.args

    play(story(), scene.name)


@small_portions
def test_a_job_without_rows_is_over_at_the_commit_with_what_follows(scene: Scene) -> None:
    scene.app.task(name="report")(lambda job: None)

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            job = await caller.job(scene.app, [], then="report")
            await caller.commit()
        counts = job.wait(timeout=0)
        assert counts.is_over
        (item,) = scene.store.fetch([counts.then_id])
        assert item.task == "report"
        assert b'"total":0' in item.args

    play(story(), scene.name)


@small_portions
def test_under_a_key_it_is_one_job_and_what_it_has_is_not_put_again(scene: Scene) -> None:
    with pytest.raises(LookupError):
        scene.app.job(scene.task, rows("a", "stop"), key="k")

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            first = await caller.job(scene.app, rows("a", "b", "c"), key="k")
            again = await caller.job(scene.app, rows("stop"), key="k")
            assert first.id == again.id
            await caller.commit()
        counts = first.counts()
        assert (counts.total, counts.is_sealed) == (3, True)
        assert len(notes(scene)) == 3

    play(story(), scene.name)


# -- autocommit: a transaction of its own


@small_portions
def test_in_autocommit_many_items_are_a_transaction_of_their_own(app: Duly) -> None:
    if app.settings.database_url.startswith("sqlite"):
        own: Any = sqlite3.connect(app.settings.database_url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        own = psycopg.connect(app.settings.database_url, autocommit=True)
    task = app.task_named("ring").options(connection=own)
    with closing(own):
        assert task.put_many(rows("a", "b", "c")) == 3
        assert app.job(task, rows("d")).counts().total == 1
        assert len(app.read.page(task="ring")) == 4
        for put in (task.put_many, lambda given: app.job(task, given)):
            with pytest.raises(LookupError):
                put(rows("a", "b", "c", "stop"))
        assert len(app.read.page(task="ring")) == 4
        own.execute("select 1")


@small_portions
def test_without_a_transaction_on_asyncpg_they_are_one_of_their_own(postgres_url: str) -> None:
    app = Duly(postgres_url)
    task = app.task(name="ring")(lambda note: None)

    async def story() -> None:
        own = await asyncpg.connect(postgres_url)
        with pytest.raises(LookupError):
            await task.options(connection=own).aput_many(rows("a", "b", "c", "stop"))
        assert app.read.page() == []
        assert await task.options(connection=own).aput_many(rows("a", "b", "c")) == 3
        assert len(app.read.page()) == 3
        await own.close()

    asyncio.run(story())
    app.close()


# -- what may happen on the way


def test_a_savepoint_of_the_callers_takes_them_back(app: Duly, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        own: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)
        own.execute("begin")
    else:
        own = psycopg.connect(database_url)
    task = app.task_named("ring").options(connection=own)
    with closing(own):
        task.put_many(rows("a"))
        own.execute("savepoint mine")
        task.put_many(rows("b"))
        app.job(task, rows("c"))
        own.execute("rollback to savepoint mine")
        own.commit()
    assert [row.args for row in app.read.page()] == [{"note": "a"}]


@small_portions
def test_a_cancelled_call_leaves_nothing_in_the_transaction(postgres_url: str) -> None:
    app = Duly(postgres_url)
    task = app.task(name="ring")(lambda note: None)

    async def story() -> None:
        own = await asyncpg.connect(postgres_url)
        block = own.transaction()
        await block.start()
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def slow() -> Iterator[dict[str, str]]:
            yield from rows("a", "b", "c")
            loop.call_soon_threadsafe(begun.set)
            while not running.done():
                yield {"note": "more"}

        running = asyncio.ensure_future(task.options(connection=own).aput_many(slow()))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await task.options(connection=own).aput(note="after")
        await block.commit()
        await own.close()
        assert [row.args for row in app.read.page()] == [{"note": "after"}]

    asyncio.run(story())
    app.close()


def test_with_many_times_workers_are_asked_to_look_for_themselves(postgres_url: str) -> None:
    app = Duly(postgres_url)
    task = app.task(name="ring")(lambda note: None)
    with psycopg.connect(postgres_url, autocommit=True) as ear, psycopg.connect(postgres_url) as own:
        ear.execute("listen duly")
        for count in (borrow.MOST_NEWS, borrow.MOST_NEWS + 1):
            made = (task.after(seconds).new(note="a") for seconds in range(count))
            task.options(connection=own).put_many(made)
            own.commit()
            heard = [note.payload for note in ear.notifies(timeout=10, stop_after=count % 2 or count)]
            assert len(heard) == (borrow.MOST_NEWS if count == borrow.MOST_NEWS else 1)
            assert ("" in heard) is (count > borrow.MOST_NEWS)
    app.close()


def test_a_schema_that_is_behind_is_told_and_errors_of_the_driver_leave_as_they_are(
    postgres_url: str, sqlite_url: str
) -> None:
    app = Duly(postgres_url)
    task = app.task(name="ring")(lambda note: None)
    with psycopg.connect(postgres_url) as own:
        own.execute("alter table duly_item drop column trace cascade")
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            task.options(connection=own).put_many(rows("a"))
        own.execute("select 1")  # the transaction goes on
        own.rollback()
    app.close()
    app = Duly(sqlite_url)
    task = app.task(name="ring")(lambda note: None)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as own:
        own.set_authorizer(lambda _, table, *more: int(table == "duly_migration"))
        with pytest.raises(sqlite3.DatabaseError, match="prohibited"):
            task.options(connection=own).put_many(rows("a"))
    app.close()


def test_what_follows_a_job_without_rows_may_be_live_already(app: Duly) -> None:
    task = app.task_named("ring")
    live = task.options(key="k").put(note="live")
    url = app.settings.database_url
    own: Any = sqlite3.connect(url[10:]) if url.startswith("sqlite") else psycopg.connect(url)
    with closing(own):
        job = app.job(task, [], then=task.options(key="k").new(note="other"), connection=own)
        own.commit()
    assert job.wait(timeout=0).then_id == live.id


def test_keys_that_a_put_of_very_many_items_has_reserved_are_not_taken_from_it(sqlite_url: str) -> None:
    app = Duly(sqlite_url)
    task = app.task(name="ring")(lambda note: None)
    app.internals.store.query("insert into duly_load_key values ('ring', 'k', 1, 1, 'digest', 0)", {})
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as own:
        made = [{"note": "a"}, task.options(key="k").new(note="b")]
        for put in (task.options(connection=own).put_many, lambda given: app.job(task, given, connection=own)):
            with pytest.raises(KeyConflict, match=r"key 'k'|'k' of ring is in a put of many items"):
                put(made)
        own.commit()
    assert app.read.page(task="ring") == []
    app.close()
