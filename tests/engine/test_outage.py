"""What becomes of work that waits for connections, and what a worker says of itself when nothing moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duly import Attempt, Duly
from duly.core.shown import Row
from duly.engine.worker import Worker
from tests.process.fleet import until

QUICK = {"sweep_seconds": 0.2, "drain_seconds": 0.2}


@contextmanager
def working(app: Duly) -> Iterator[Worker]:
    worker = app.worker()
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        worker.drain()
        app.close()


@pytest.mark.parametrize(
    ("patience", "deadline"), [(0.5, 1800.0), (30.0, 2.0)], ids=["the store's time", "the try's own deadline"]
)
def test_a_handler_that_waits_too_long_for_one_of_our_connections_is_given_back_and_not_blamed(
    postgres_url: str, patience: float, deadline: float
) -> None:
    app = Duly(postgres_url, pool_size=1, concurrency=2, store_timeout_seconds=patience, **QUICK)
    holds, gate = threading.Event(), threading.Event()

    @app.task
    def hold(attempt: Attempt) -> None:
        attempt.connection.execute("select 1")
        holds.set()
        gate.wait(60)

    @app.task(deadline=deadline)
    def need(attempt: Attempt) -> None:
        attempt.connection.execute("select 1")

    def look(item_id: int, *, is_over: bool) -> Row | None:
        row = app.read.item(item_id)
        assert row.state != "failed", row.last_error
        return row if (row.state == "done" if is_over else row.outcome == "released") else None

    with working(app):
        app.put("hold")
        assert holds.wait(30)
        item_id = app.task_named("need").options(tries=1).put().id
        until(lambda: look(item_id, is_over=False), 30)
        gate.set()
        row = until(lambda: look(item_id, is_over=True), 30)
    assert (row.attempt, row.failures) == (1, 0)


def test_a_worker_whose_claimer_gets_nowhere_says_so(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Duly(database_url, store_timeout_seconds=0.2, **QUICK)
    gate = threading.Event()

    @app.task
    def ring() -> None: ...

    with working(app) as worker:
        assert worker.ailing() is None
        survey = app.internals.store.survey

        def hang(*given: Any) -> object:
            gate.wait(60)
            return survey(*given)

        monkeypatch.setattr(app.internals.store, "survey", hang)
        assert until(worker.ailing, 30).endswith("claimer")
        gate.set()
        until(lambda: worker.ailing() is None, 30)
