"""A handler that writes on `attempt.connection`: its row and the end of its item commit together, or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from duly import Duly
from tests.apps.conftest import eventually, process
from tests.borrow.ledger import ledger_on

ROOT = Path(__file__).parents[2]
WORKER = "from tests.borrow.ledger import app; app.run()"
HASTY = {"lease_seconds": 4.0, "beat_seconds": 0.5, "sweep_seconds": 0.3}


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, **HASTY)
    with app.internals.store.transaction() as connection:
        connection.execute("drop table if exists entry")
        connection.execute("create table entry (item integer, note text)")
    yield ledger_on(app)
    app.close()


def entries(app: Duly) -> list[tuple[int, str]]:
    """The business rows, as a connection of nobody's sees them."""
    url = app.settings.database_url
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as light:
            return light.execute("select item, note from entry").fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute("select item, note from entry").fetchall()


@contextmanager
def working(app: Duly) -> Iterator[None]:
    app.internals.spec = "tests.borrow.ledger:app"
    worker = app.worker([name for name, task in app.tasks.items() if task.kind != "cpu"])
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        worker.drain()


@contextmanager
def another_worker(app: Duly) -> Iterator[None]:
    settings = {f"DULY_{name.upper()}": str(value) for name, value in HASTY.items()}
    env = {**os.environ, **settings, "DULY_DATABASE_URL": app.settings.database_url, "PYTHONPATH": str(ROOT)}
    with process(WORKER, env):
        yield


@pytest.mark.parametrize("task", ["book", "book_quietly"])
def test_after_success_both_are_there(app: Duly, task: str) -> None:
    placed = [app.put(task, note=str(n)) for n in range(20)]
    with working(app):
        eventually(lambda: all(app.read.item(each.id).state == "done" for each in placed))
    assert sorted(entries(app)) == [(each.id, str(n)) for n, each in enumerate(placed)]
    row = app.read.item(placed[0].id)
    assert row.result == ({"booked": "0"} if task == "book" else None)
    assert row.attempt == 1


@pytest.mark.parametrize(
    ("task", "state", "word"),
    [
        ("book_and_fail", "waiting", "the till is closed"),
        ("book_and_give_up", "failed", "no such account"),
        ("book_and_exit", "waiting", "wants to go home"),
        ("book_nonsense", "waiting", "nowhere"),
    ],
)
def test_a_handler_that_raises_leaves_neither(app: Duly, task: str, state: str, word: str) -> None:
    placed = app.put(task, note="a")
    with working(app):
        eventually(lambda: app.read.item(placed.id).outcome)
        after = app.put("book", note="next")  # and holds nobody up
        eventually(lambda: app.read.item(after.id).state == "done")
    row = app.read.item(placed.id)
    assert (row.state, row.attempt) == (state, 1)
    assert word in (row.last_error or "")
    assert entries(app) == [(after.id, "next")]


def test_an_outcome_that_is_returned_is_written_with_the_row(app: Duly) -> None:
    placed = app.put("book_and_skip", note="a")
    with working(app):
        eventually(lambda: app.read.item(placed.id).outcome)
    row = app.read.item(placed.id)
    assert (row.state, row.outcome) == ("done", "skipped")
    assert entries(app) == [(placed.id, "a")]


def test_a_row_for_an_item_that_was_taken_away_is_rolled_back(app: Duly) -> None:
    placed = app.put("book_what_was_taken_away", note="a")
    with working(app):
        eventually(lambda: app.read.item(placed.id).state == "cancelled")
    assert entries(app) == []
    assert app.read.item(placed.id).state == "cancelled"


def test_an_async_handler_is_told_that_it_has_no_connection(app: Duly) -> None:
    placed = app.put("book_async", note="a")
    with working(app):
        eventually(lambda: app.read.item(placed.id).outcome)
    assert "attempt.connection: only plain (def) and cpu handlers" in (app.read.item(placed.id).last_error or "")


def test_a_worker_killed_between_the_write_and_the_commit_leaves_one_row_in_the_end(app: Duly) -> None:
    placed = app.put("book_and_die_once", note="a")
    with another_worker(app):
        eventually(lambda: app.read.item(placed.id).attempt == 1)
        with another_worker(app):
            eventually(lambda: app.read.item(placed.id).state == "done")
    assert entries(app) == [(placed.id, "a")]
    story = app.read.story(placed.id)
    assert (story.item.attempt, [each.outcome for each in story.tries]) == (2, ["lost"])


def test_a_process_killed_between_the_write_and_the_commit_leaves_one_row_in_the_end(app: Duly) -> None:
    placed = app.put("book_apart_and_die_once", note="a")
    with another_worker(app):
        eventually(lambda: app.read.item(placed.id).state == "done")
    assert entries(app) == [(placed.id, "a")]
    story = app.read.story(placed.id)
    assert (story.item.attempt, [each.outcome for each in story.tries]) == (2, ["crashed"])
