"""Puts on a caller's own connection where something is in the way: what the caller reads then."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import psycopg
import pytest

from duly import Duly, InputError
from duly.core.errors import NotMigrated
from duly.store.home import Remembered
from duly.verbs import LOCAL
from duly.verbs import jobs as verbs


@pytest.fixture
def app(postgres_url: str) -> Iterator[Duly]:
    app = Duly(postgres_url)

    @app.task
    def ring(note: str) -> None: ...

    yield app
    app.close()


@pytest.fixture
def own(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


def test_an_error_of_the_driver_leaves_a_put_as_it_is(app: Duly, own: psycopg.Connection) -> None:
    own.read_only = True
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        app.task_named("ring").options(connection=own).put(note="a")


def test_a_schema_that_is_behind_is_reported_to_a_put_of_one_item_too(app: Duly, own: psycopg.Connection) -> None:
    own.execute("alter table duly_item drop column trace cascade")
    with pytest.raises(NotMigrated, match="run `duly migrate`"):
        app.task_named("ring").options(connection=own).put(note="a")


def test_many_rows_in_a_transaction_that_has_failed_get_the_error_of_the_driver(
    app: Duly, own: psycopg.Connection
) -> None:
    task = app.task_named("ring").options(connection=own)
    assert task.put_many([{"note": "a"}]) == 1
    with pytest.raises(psycopg.errors.UndefinedTable):
        own.execute("select * from no_such_table")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        task.put_many([{"note": "b"}])


def test_a_pipeline_is_refused_because_a_put_needs_answers(app: Duly, own: psycopg.Connection) -> None:
    task = app.task_named("ring").options(connection=own)
    with own.pipeline(), pytest.raises(InputError, match="connection: is in pipeline mode; put after the pipeline"):
        task.put(note="a")
    assert task.put(note="a").fresh


def test_a_job_without_rows_and_without_a_sequel_is_over_at_once(app: Duly, own: psycopg.Connection) -> None:
    job = app.job("ring", [], connection=own)
    own.commit()
    assert job.wait(timeout=0).total == 0


def test_a_job_that_has_rows_already_is_continued_on_a_connection(
    app: Duly, own: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "PORTION", 2)
    task = app.task_named("ring")
    jobs = app.internals.verbs.jobs
    begun = jobs.open(LOCAL, task, key="march", then=None, owner=None)

    def broken() -> Iterator[dict[str, str]]:
        yield from [{"note": "a"}] * 2
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        jobs.fill(begun, task, broken())
    assert jobs.get(LOCAL, begun.id).total == 2
    job = app.job(task, [{"note": "a"}] * 3, key="march", connection=own)
    own.commit()
    assert (job.id, job.counts().total) == (begun.id, 3)


def test_what_is_known_of_a_connection_outlives_the_end_of_another_one() -> None:
    class Connection: ...

    known, connection, other = Remembered[int](), Connection(), Connection()
    known.set(connection, 1)
    known._forget(id(connection), weakref.ref(other))
    assert known.get(connection) == 1
    known.set(connection, 2)
    assert known.get(connection) == 2
    del connection
    assert len(known) == 0
