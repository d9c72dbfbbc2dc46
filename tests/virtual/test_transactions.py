"""Puts on a caller's own connection in virtual time: they commit or roll back with it, and only the world runs them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly import Attempt, Duly, InputError, KeyConflict, testing
from duly.core.errors import NotMigrated, StoreUnavailable
from duly.store import virtual
from duly.virtual import world as worlds
from tests.borrow.callers import POSTGRES, SQLITE, play
from tests.support import opened

CALLERS = {**POSTGRES, **SQLITE}
SOME = (
    "psycopg", "psycopg async", "psycopg2", "asyncpg", "sqlalchemy session psycopg", "django", "sqlite3", "aiosqlite",
    "sqlalchemy async session aiosqlite", "django sqlite", "sqlalchemy async connection asyncpg",
)  # fmt: skip


class Scene:
    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Duly(url)
        self.rung: list[str] = []
        self.ring = self.app.task(name="ring")(self._ring)
        self.report = self.app.task(name="report")(self._report)

    def _ring(self, note: str) -> str:
        self.rung.append(note)
        return note.upper()

    def _report(self, job: dict[str, Any]) -> None:
        self.rung.append(f"{job['done']} of {job['total']}")

    def real(self) -> list[Any]:
        """All that there is in the app's own database."""
        with opened(self.url) as store:
            tables = ("duly_item", "duly_job", "duly_audit", "duly_virtual_put")
            return [row for table in tables for row in store.query(f"select * from {table}", {})]

    def connect(self) -> Any:
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///"))
        return psycopg.connect(self.url)


@pytest.fixture
def scene(database_url: str) -> Iterator[Scene]:
    scene = Scene(database_url)
    yield scene
    assert scene.real() == [], "nothing of a test is left in the app's own database"
    scene.app.close()


def test_what_is_committed_is_run_by_the_world_and_what_is_rolled_back_is_not(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        put = scene.ring.options(connection=own)
        gone = put.put(note="gone")
        own.rollback()
        placed = put.put(note="kept")
        assert world.run() == 0
        assert world.items() == []
        own.commit()
        assert world.item(placed).state == "waiting"
        assert world.run() == 1
        assert placed.wait(0) == "KEPT"
        assert world.item(placed).execution_key == placed.execution_key
        with pytest.raises(TimeoutError):
            gone.wait(0)
    assert scene.rung == ["kept"]


@pytest.mark.parametrize("name", SOME)
def test_every_library_takes_part(request: pytest.FixtureRequest, name: str) -> None:
    scene = Scene(request.getfixturevalue("postgres_url" if name in POSTGRES else "sqlite_url"))

    async def story(world: testing.World) -> None:
        async with CALLERS[name](scene.url, scene.ring) as caller:
            await caller.put(note="a")
            assert await caller.put_many([{"note": "b"}, {"note": "c"}]) == 2
            job = await caller.job(scene.app, [{"note": "d"}], then=scene.report)
            assert world.run() == 0
            await caller.commit()
        assert world.run() == 5
        assert sorted(scene.rung) == ["1 of 1", "a", "b", "c", "d"]
        assert job.wait(timeout=0).done == 1

    with testing.virtual(scene.app) as world:
        play(story(world), name)
    assert scene.real() == []
    scene.app.close()


def test_it_runs_at_its_virtual_time(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        scene.ring.options(connection=own, delay=60).put(note="later")
        own.commit()
        assert world.advance(59) == 0
        assert world.advance(1) == 1


def test_a_savepoint_that_is_rolled_back_takes_its_puts_with_it(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        put = scene.ring.options(connection=own)
        put.put(note="a")
        own.execute("savepoint mine")
        put.put(note="b")
        own.execute("rollback to savepoint mine")
        own.commit()
        assert world.run() == 1
    assert scene.rung == ["a"]


def test_a_key_is_put_once_within_a_transaction_and_after_it(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        put = scene.ring.options(connection=own, key="k")
        put.put(note="gone")
        own.rollback()  # the key is free again
        first = put.put(note="a")
        again = put.put(note="a")
        assert (again.id, again.fresh) == (first.id, False)
        with pytest.raises(KeyConflict, match="other arguments"):
            put.put(note="b")
        assert scene.ring.options(connection=own).put_many([put_new(scene, "a"), put_new(scene, "a")]) == 0
        own.commit()
        assert world.item(first).key == "k"
        assert put.put(note="a").id == first.id
        with pytest.raises(KeyConflict, match="other arguments"):
            scene.ring.options(key="k").put(note="b")
        assert world.run() == 1
        assert put.put(note="b").fresh
        own.commit()
        assert world.run() == 1
    assert scene.rung == ["a", "b"]


def put_new(scene: Scene, note: str) -> Any:
    return scene.ring.options(key="k").new(note=note)


def test_a_job_is_one_under_its_key(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:

        def put() -> int:
            return scene.app.job(scene.ring, [{"note": "a"}, {"note": "b"}], key="k", connection=own).id

        put()
        own.rollback()
        first = put()
        assert put() == first
        own.commit()
        assert world.run() == 2
        assert put() == first
        own.commit()
        assert world.run() == 0
        lines = [line.subject for line in scene.app.internals.verbs.audit.page(f"job:{first}")]
        assert lines == [f"job:{first}"]


def test_rows_that_are_rejected_leave_nothing(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        with pytest.raises(InputError, match=r"^rows\[1\]"):
            scene.ring.options(connection=own).put_many([{"note": "a"}, {"mood": "b"}])
        own.commit()
        assert world.run() == 0


def test_a_handler_puts_on_its_attempts_connection_and_on_one_of_its_own(scene: Scene) -> None:
    @scene.app.task
    def order(attempt: Attempt) -> None:
        scene.ring.options(connection=attempt.connection).put(note="with the item")
        scene.ring.options(connection=attempt.connection).put_many([{"note": "many"}])
        scene.app.job(scene.ring, [{"note": "job"}], connection=attempt.connection)
        with closing(scene.connect()) as own:
            scene.ring.options(connection=own).put(note="with the order")
            own.commit()

    with testing.virtual(scene.app) as world:
        order.put()
        assert world.run() == 5
    assert sorted(scene.rung) == ["job", "many", "with the item", "with the order"]


def test_other_acts_say_what_to_do_instead(scene: Scene) -> None:
    with testing.virtual(scene.app), closing(scene.connect()) as own:
        for act in (
            lambda: scene.app.pause("ring", connection=own),
            lambda: scene.app.cancel(1, connection=own),
            lambda: scene.app.schedules.create("ring", "every 1h", {"note": "a"}, key="k", connection=own),
        ):
            with pytest.raises(InputError, match=r"^connection: is to the .* do this without `connection`$"):
                act()
        own.rollback()


def test_a_connection_to_another_database_is_rejected_here_too(scene: Scene, tmp_path: Path) -> None:
    with testing.virtual(scene.app) as world, closing(sqlite3.connect(tmp_path / "other.db")) as own:
        with pytest.raises(InputError, match=r"^connection: is to the SQLite file .*other\.db, but this app works on"):
            scene.ring.options(connection=own).put(note="a")
        assert own.execute("select count(*) from sqlite_master").fetchone() == (0,)
        assert world.run() == 0


def test_a_blank_file_gets_its_tables_with_the_callers_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "PATIENCE", 0.05)
    scene = Scene(f"sqlite:///{tmp_path / 'blank.db'}")
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        own.execute("create table sale (id integer)")
        own.execute("insert into sale values (1)")
        scene.ring.options(connection=own).put(note="a")
        assert world.run() == 0  # the transaction locks the file
        own.commit()
        monkeypatch.undo()
        scene.app.internals.borrowing._real = None  # type: ignore[attr-defined] # with more patience
        assert world.run() == 1
    assert scene.real() == []
    scene.app.close()


def test_a_database_that_does_not_answer_is_an_error_unless_it_is_a_locked_file() -> None:
    with opened("postgresql://127.0.0.1:1/nowhere", timeout=0.1) as store, pytest.raises(StoreUnavailable):
        virtual.committed(store, ["00000000-0000-0000-0000-000000000000"])


def test_what_the_world_has_under_a_key_meanwhile_stays(scene: Scene) -> None:
    with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
        scene.ring.options(key="k", connection=own).put(note="a")
        scene.app.job(scene.ring, [{"note": "b"}], key="k", connection=own)
        scene.ring.options(key="k").put(note="a")
        scene.app.job(scene.ring, [{"note": "b"}], key="k")
        own.commit()
        assert world.run() == 2


def test_a_blank_postgres_says_what_to_do(blank_postgres_url: str) -> None:
    scene = Scene(blank_postgres_url)
    with (
        testing.virtual(scene.app),
        psycopg.connect(blank_postgres_url) as own,
        pytest.raises(NotMigrated, match="run `duly migrate`"),
    ):
        scene.ring.options(connection=own).put(note="a")
    scene.app.close()


def test_what_commits_after_the_world_has_ended_is_never_work(postgres_url: str) -> None:
    scene = Scene(postgres_url)
    with closing(scene.connect()) as own:
        with testing.virtual(scene.app):
            scene.ring.options(connection=own).put(note="a")
        own.commit()
        own.execute("update duly_virtual_put set put_at = put_at - interval '2 days'")
        own.commit()
        assert len(scene.real()) == 1
        with testing.virtual(scene.app) as world:
            assert world.run() == 0
            scene.ring.options(connection=own).put(note="b")
    assert (scene.real(), scene.rung) == ([], [])
    scene.app.close()


def test_an_async_test_awaits_them(scene: Scene) -> None:
    async def story() -> None:
        with testing.virtual(scene.app) as world, closing(scene.connect()) as own:
            scene.ring.options(connection=own).put(note="a")
            own.commit()
            assert world.run() == 1

    asyncio.run(story())
