"""Acts inside the caller's own transaction: each is done with its audit line, as a whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import django
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from django.db import connections, transaction
from psycopg.rows import dict_row
from sqlalchemy import orm

from duly import Duly, InputError
from duly.core.errors import DulyError
from duly.core.shown import Row
from tests.borrow.callers import _django_database, _path, _sa_url, as_dict

Act = Callable[[Duly, int, Any], object]

# Each act on the item, or on something that is named after it.
ACTS: dict[str, Act] = {
    "cancel": lambda app, item, own: app.cancel(item, connection=own),
    "retry": lambda app, item, own: app.retry(item, delay=50, connection=own),
    "edit": lambda app, item, own: app.edit(item, rank=7, connection=own),
    "discard": lambda app, item, own: app.discard(item, connection=own),
    "again": lambda app, item, own: app.again(item, key="again", connection=own),
    "pause": lambda app, item, own: app.pause("ring", own),
    "resume": lambda app, item, own: app.resume("ring", connection=own),
    "set_limit": lambda app, item, own: app.set_limit("calls", "2/1m", connection=own),
    "create": lambda app, item, own: app.schedules.create("ring", "every 1h", {"note": "a"}, key="k", connection=own),
    "create_many": lambda app, item, own: app.schedules.create_many(
        "ring", "every 1h", [{"key": "m", "args": {"note": "a"}}], connection=own
    ),
    "change": lambda app, item, own: app.schedules.change(_schedule(app), rank=3, connection=own),
    "pause schedule": lambda app, item, own: app.schedules.pause(_schedule(app), connection=own),
    "run now": lambda app, item, own: app.schedules.run_now(_schedule(app), connection=own),
    "remove": lambda app, item, own: app.schedules.remove(_schedule(app), connection=own),
}  # fmt: skip
ENDED = {"again": "cancel", "discard": "fail"}
LAST = {"note_each", "note", "enroll"}  # the sections that acts end with
SILENT = {"create_many"}  # it leaves the line to its caller


def _schedule(app: Duly) -> int:
    return app.schedules.find("ring", "old").id


def ring(note: str) -> None:
    pass


# -- connections, each with what ends its transaction

Ends = tuple[Any, Callable[[], None], Callable[[], None]]


@contextmanager
def _sqlite3(url: str, row_factory: Any = None, text_factory: Any = str) -> Iterator[Ends]:
    with closing(sqlite3.connect(_path(url))) as own:
        own.row_factory, own.text_factory = row_factory, text_factory
        yield own, own.commit, own.rollback
        assert (own.row_factory, own.text_factory) == (row_factory, text_factory)


@contextmanager
def _begun(url: str) -> Iterator[Ends]:
    with closing(sqlite3.connect(_path(url), isolation_level=None)) as own:
        own.execute("begin")
        yield own, lambda: own.execute("commit") and None, lambda: own.execute("rollback") and None


@contextmanager
def _psycopg(url: str, **options: Any) -> Iterator[Ends]:
    with psycopg.connect(url, **options) as own:
        yield own, own.commit, own.rollback


@contextmanager
def _sqlalchemy(url: str, driver: str, is_session: bool = False) -> Iterator[Ends]:
    engine = sa.create_engine(_sa_url(url, driver))
    with orm.Session(engine) if is_session else engine.connect() as own:
        yield own, own.commit, own.rollback
    engine.dispose()


@contextmanager
def _django(url: str) -> Iterator[Ends]:
    connections.databases["default"] = _django_database(url)
    block, undo = transaction.atomic(), RuntimeError("never mind")
    block.__enter__()
    try:
        yield (
            django.db.connection,
            lambda: block.__exit__(None, None, None),
            lambda: block.__exit__(RuntimeError, undo, None) and None,
        )
    finally:
        connections["default"].close()
        del connections["default"]


OPENED: dict[str, Callable[[str], Any]] = {
    "sqlite3": _sqlite3,
    "sqlite3 dicts": lambda url: _sqlite3(url, as_dict, bytes),
    "sqlite3 begin": _begun,
    "sqlite sqlalchemy": lambda url: _sqlalchemy(url, "pysqlite"),
    "sqlite session": lambda url: _sqlalchemy(url, "pysqlite", is_session=True),
    "sqlite django": _django,
    "psycopg": _psycopg,
    "psycopg dicts": lambda url: _psycopg(url, row_factory=dict_row),
    "psycopg raw": lambda url: _psycopg(url, cursor_factory=psycopg.RawCursor),
    "postgres sqlalchemy": lambda url: _sqlalchemy(url, "psycopg"),
    "postgres session": lambda url: _sqlalchemy(url, "psycopg", is_session=True),
    "postgres django": _django,
}


class Scene:
    def __init__(self, url: str, act: str) -> None:
        self.url, self.act = url, act
        self.app = Duly(url)
        self.app.task(name="ring")(ring)
        self.app.schedules.create("ring", "every 1h", {"note": "a"}, key="old")
        self.item = self.app.task_named("ring").options(delay=500).put(note="a").id
        if ENDED.get(act) == "cancel":
            self.app.cancel(self.item)
        elif ENDED.get(act) == "fail":
            with self.app.internals.store.transaction() as own:
                own.execute(f"update duly_item set state = 'failed' where id = {self.item}")

    def picture(self) -> tuple[Any, ...]:
        """All that acts change, as other connections see it."""
        store, rows = self.app.internals.store, self.app.read.page(most=1_000)
        tables = {name: store.query(f"select * from {name}", {}) for name in ("duly_queue", "duly_schedule")}
        return _sorted(rows), tables, self.app.read.limit("calls")

    def lines(self) -> int:
        return len(self.app.internals.verbs.audit.page())

    def run(self, own: Any) -> object:
        return ACTS[self.act](self.app, self.item, own)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


def scene_on(request: pytest.FixtureRequest, connection: str, act: str) -> Scene:
    is_postgres = connection.startswith(("psycopg", "postgres"))
    scene = Scene(request.getfixturevalue("postgres_url" if is_postgres else "sqlite_url"), act)
    request.addfinalizer(scene.app.close)
    return scene


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("connection", OPENED)
def test_an_act_and_its_audit_line_commit_with_the_callers_transaction_or_not_at_all(
    request: pytest.FixtureRequest, connection: str, act: str
) -> None:
    scene = scene_on(request, connection, act)
    before, lines = scene.picture(), scene.lines()
    with OPENED[connection](scene.url) as (own, _, rollback):
        scene.run(own)
        assert scene.picture() == before
        rollback()
    assert (scene.picture(), scene.lines()) == (before, lines)
    with OPENED[connection](scene.url) as (own, commit, _):
        scene.run(own)
        commit()
    assert (scene.picture() != before) is (act != "resume")
    assert scene.lines() == lines + (act not in SILENT)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("connection", OPENED)
def test_an_act_that_fails_at_its_end_leaves_nothing_for_the_caller_to_commit(
    request: pytest.FixtureRequest, connection: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_on(request, connection, act)
    kind: Any = type(scene.app.internals.store)
    before, lines = scene.picture(), scene.lines()

    def failing_late(run: Callable[..., Any]) -> Callable[..., Any]:
        def fails_late(self: Any, name: str, *given: Any, **columns: Any) -> Any:
            found = run(self, name, *given, **columns)
            if name in LAST:
                raise DulyError("the last step failed")
            return found

        return fails_late

    with OPENED[connection](scene.url) as (own, commit, _):
        with monkeypatch.context() as patch:
            for name in ("_run", "_run_many"):
                patch.setattr(kind, name, failing_late(getattr(kind, name)))
            with pytest.raises(DulyError, match="the last step failed"):
                scene.run(own)
        commit()
    assert (scene.picture(), scene.lines()) == (before, lines)


@pytest.mark.parametrize("act", ACTS)
def test_what_is_no_connection_to_this_database_is_refused_before_anything_is_written(
    act: str, database_url: str, postgres_url: str, sqlite_url: str
) -> None:
    scene = Scene(database_url, act)
    before, lines = scene.picture(), scene.lines()
    other = psycopg.connect(postgres_url) if database_url == sqlite_url else sqlite3.connect(_path(sqlite_url))
    with closing(other), closing(psycopg2.connect(postgres_url)) as unknown:
        for thing in (5, "connection", Duly, other, unknown):
            with pytest.raises(InputError, match=r"^connection: must be an open connection of (psycopg|sqlite3), "):
                scene.run(thing)
    assert (scene.picture(), scene.lines()) == (before, lines)
    scene.app.close()


@pytest.mark.parametrize("connection", OPENED)
def test_an_act_sees_what_the_caller_has_put_before(request: pytest.FixtureRequest, connection: str) -> None:
    scene = scene_on(request, connection, "cancel")
    with OPENED[connection](scene.url) as (own, commit, _):
        put = scene.app.task_named("ring").options(delay=500, connection=own).put(note="b")
        assert scene.app.edit(put.id, rank=3, connection=own).rank == 3
        assert scene.app.cancel(put.id, connection=own) == [put.id]
        again = scene.app.again(put.id, connection=own)
        commit()
    assert scene.app.read.item(put.id).state == "cancelled"
    assert scene.app.read.item(again.id).rank == 3


def test_on_a_connection_in_autocommit_an_act_is_a_transaction_of_its_own(database_url: str) -> None:
    scene = Scene(database_url, "cancel")
    if database_url.startswith("sqlite"):
        own: Any = sqlite3.connect(_path(database_url), isolation_level=None)
    else:
        own = psycopg.connect(database_url, autocommit=True)
    with closing(own):
        scene.run(own)
        assert scene.app.read.item(scene.item).state == "cancelled"
        with pytest.raises(DulyError):
            scene.run(own)
    scene.app.close()


def test_a_refused_act_does_not_keep_sqlites_write_lock_for_the_caller(sqlite_url: str) -> None:
    scene = Scene(sqlite_url, "cancel")
    with closing(sqlite3.connect(_path(sqlite_url))) as own, closing(sqlite3.connect(_path(sqlite_url))) as other:
        with pytest.raises(DulyError):
            scene.app.cancel(999, connection=own)
        other.execute("pragma busy_timeout = 0")
        other.execute("begin immediate")
        other.rollback()
        own.execute("create table mine (id integer)")
        own.execute("insert into mine values (1)")
        with pytest.raises(DulyError):
            scene.app.cancel(999, connection=own)
        own.commit()  # what the caller wrote before a refused act stays
        assert other.execute("select id from mine").fetchall() == [(1,)]
    scene.app.close()
