"""A put inside the caller's own transaction, with the real libraries: it shares that transaction's fate."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest

from duly import Duly, KeyConflict, Placed
from duly.store import Store
from duly.store.borrow import _place
from duly.store.contract import News
from duly.store.dialects import named
from duly.store.lenders import Lender
from duly.store.sql import sections
from duly.tasks.task import Task
from tests.borrow.callers import POSTGRES, SQLITE, Opener, play
from tests.support import claim, exists, new

AT = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # the first 2:30 of two in Zagreb
CALLERS = {**POSTGRES, **SQLITE}


class Scene:
    """A database with a business table, a task, and one caller of a library."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.app = Duly(url)
        self.task: Task[..., Any] = self.app.task(name="ring")(ring)
        self.store: Store = self.app.internals.store
        self.open: Opener = CALLERS[name]
        with self.store.transaction() as connection:
            connection.execute("drop table if exists visit")
            connection.execute("create table visit (id integer primary key, note text)")

    def visits(self) -> int:
        """As another connection sees them."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as light:
                return int(light.execute("select count(*) from visit").fetchone()[0])
        with psycopg.connect(self.url) as other:
            return int(other.execute("select count(*) from visit").fetchall()[0][0])

    def claimed(self) -> list[int]:
        """What a worker could take in a moment."""
        return [item.id for item in claim(self.store, now=self.store.now() + timedelta(seconds=1))]


def ring(note: str) -> None:
    pass


@pytest.fixture(params=CALLERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    kind = "postgres_url" if request.param in POSTGRES else "sqlite_url"
    scene = Scene(request.getfixturevalue(kind), request.param)
    yield scene
    scene.app.close()


def test_the_item_and_the_business_row_come_to_be_together_at_the_commit(scene: Scene) -> None:
    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            placed = await caller.put(note="a")
            assert placed.fresh
            assert not exists(scene.store, placed.id)
            assert scene.visits() == 0
            await caller.commit()
            (item,) = scene.store.fetch([placed.id])
            assert (item.execution_key, item.args) == (placed.execution_key, b'{"note":"a"}')
            assert scene.visits() == 1
            assert scene.claimed() == [placed.id]

    play(story(), scene.name)


def test_neither_comes_to_be_after_a_rollback(scene: Scene) -> None:
    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            await caller.execute("insert into visit values (1, 'a')")
            placed = await caller.put({"key": "k"}, note="a")
            await caller.rollback()
            assert not exists(scene.store, placed.id)
        assert scene.visits() == 0
        assert scene.claimed() == []
        assert scene.task.options(key="k").put(note="b").fresh  # the key is free

    play(story(), scene.name)


def test_a_live_key_answers_its_item_or_conflicts_and_the_transaction_goes_on(scene: Scene) -> None:
    first = scene.task.options(key="k", at=AT).put(note="a")

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            again = await caller.put({"key": "k", "at": AT}, note="a")
            assert (again.id, again.execution_key, again.fresh) == (first.id, first.execution_key, False)
            with pytest.raises(KeyConflict, match="other arguments") as refused:
                await caller.put({"key": "k", "at": AT}, note="b")
            assert (refused.value.field, refused.value.item_id) == ("key", first.id)
            with pytest.raises(KeyConflict, match="planned for"):
                await caller.put({"key": "k", "at": AT + timedelta(hours=1)}, note="a")
            delayed = [await caller.put({"key": "later", "delay": 60}, note="a") for _ in range(2)]
            assert [each.fresh for each in delayed] == [True, False]
            other = await caller.put(
                {"key": "100%", "rank": 5, "tries": 2, "at": AT}, note="50 % off: 'a' \\ \"b\" š :x"
            )
            same = await caller.put({"key": "100%", "at": AT}, note="50 % off: 'a' \\ \"b\" š :x")
            assert (same.id, same.fresh) == (other.id, False)
            await caller.execute("insert into visit values (1, 'a')")
            await caller.commit()
            (item,) = scene.store.fetch([other.id])
            assert (item.rank, item.max_attempts, item.planned_at) == (5, 2, AT)
            assert item.args == '{"note":"50 % off: \'a\' \\\\ \\"b\\" š :x"}'.encode()
        assert scene.visits() == 1

    play(story(), scene.name)


@pytest.mark.parametrize("scene", POSTGRES, indirect=True)
def test_idle_workers_are_told_at_the_callers_commit_and_not_before(scene: Scene) -> None:
    news: SimpleQueue[News] = SimpleQueue()
    stop = threading.Event()
    watcher = threading.Thread(target=scene.store.listen, args=(news.put, stop))
    watcher.start()
    marker = scene.app.task(name="marker")(lambda: None)

    async def story() -> None:
        assert news.get(timeout=30) is None  # it listens
        async with scene.open(scene.url, scene.task) as caller:
            await caller.put({"at": AT}, note="a")
            marker.at(AT).put()
            head = news.get(timeout=30)
            assert head is not None
            assert head.line.queue == "marker"
            await caller.commit()
            head = news.get(timeout=30)
            assert head is not None
            assert (head.line.queue, head.due_at) == ("ring", AT)

    try:
        play(story(), scene.name)
    finally:
        stop.set()
        marker.at(AT).put()  # so that it looks up
        watcher.join()


@pytest.mark.parametrize("scene", ["psycopg", "sqlite3"], indirect=True)
def test_a_worker_runs_what_was_put_in_a_callers_transaction(scene: Scene) -> None:
    rung = threading.Event()
    hear = scene.app.task(name="hear")(lambda: rung.set())
    worker = scene.app.worker()
    worker.start()

    async def story() -> None:
        async with scene.open(scene.url, hear) as caller:
            await caller.put()
            await caller.commit()
            assert rung.wait(30)

    try:
        play(story(), scene.name)
    finally:
        worker.stop()
        worker.drain()


@pytest.mark.parametrize("scene", ["psycopg"], indirect=True)
def test_what_is_due_next_year_hurries_nobody_and_is_put_all_the_same(scene: Scene) -> None:
    later = scene.store.now() + timedelta(days=365)

    async def story() -> None:
        async with scene.open(scene.url, scene.task) as caller:
            placed = await caller.put({"at": later}, note="a")
            await caller.commit()
            assert scene.app.read.item(placed.id).due_at == later

    play(story(), scene.name)


def test_a_key_whose_holder_ends_between_two_looks_is_taken() -> None:
    asked: list[str] = []
    answers: list[list[Any]] = [[], [], [(7, "key-7")]]  # someone has it, and is gone

    async def run(sql: str, _: dict[str, Any]) -> list[Any]:
        asked.append(sql)
        return answers[len(asked) - 1]

    placed = asyncio.run(_place(Lender(named("postgres"), run, None), new(key="k")))
    assert asked == [sections("postgres")[name] for name in ("put_one_and_tell", "live", "put_one_and_tell")]
    assert placed == Placed(id=7, execution_key="key-7", fresh=True)
