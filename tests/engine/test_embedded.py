"""A worker inside another program: for a block, for the life of an ASGI app, or in a thread of the program's own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from duly import Duly
from duly.core.errors import StoreError
from duly.store import migrate
from tests.process.fleet import until

QUICK = {"lease_seconds": 2, "beat_seconds": 0.2, "sweep_seconds": 0.2, "drain_seconds": 5}


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url, **QUICK)

    @one.task
    def greet(name: str) -> str:
        return f"hello {name}"

    yield one
    one.close()


def threads() -> set[str]:
    """The names of the threads that a worker has, without the number at their end."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("duly-")}


def test_a_worker_works_to_the_end_of_its_block_and_no_longer(app: Duly) -> None:
    with app.worker() as worker:
        assert app.put("greet", name="Ana").wait(timeout=60) == "hello Ana"
        assert worker.ailing() is None
    assert "not running: claimer" in str(worker.ailing())
    later = app.put("greet", name="Bob")
    with pytest.raises(TimeoutError):
        later.wait(timeout=0.5)
    worker.close()  # again, which does nothing


def test_a_run_in_a_thread_ends_when_its_app_is_closed(app: Duly) -> None:
    running = threading.Thread(target=app.run)
    running.start()
    assert app.put("greet", name="Ana").wait(timeout=60) == "hello Ana"
    app.close()
    running.join(60)
    assert not running.is_alive()
    assert app.read.signs().alerts == []  # an app that was closed opens its database again when it is used


def test_closing_waits_for_the_handler_that_runs(app: Duly) -> None:
    began, goes_on = threading.Event(), threading.Event()

    @app.task
    def linger() -> str:
        began.set()
        goes_on.wait(60)
        return "made it"

    app.worker().start()
    placed = app.put("linger")
    assert began.wait(60)
    threading.Timer(0.2, goes_on.set).start()
    app.close()
    assert app.read.item(placed.id).result == "made it"


def test_a_worker_that_never_started_is_closed_for_nothing(app: Duly) -> None:
    app.worker().close()
    app.close()


def test_a_worker_that_is_closed_while_it_starts_ends(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on, check = threading.Event(), threading.Event(), migrate.check

    def slowly(*given: Any) -> None:
        began.set()
        goes_on.wait(60)
        check(*given)

    monkeypatch.setattr(migrate, "check", slowly)
    before, worker = threads(), app.worker()
    starting, closing = threading.Thread(target=worker.start), threading.Thread(target=app.close)
    starting.start()
    assert began.wait(60)
    closing.start()
    closing.join(0.3)
    is_waiting = closing.is_alive()
    goes_on.set()
    for each in (starting, closing):
        each.join(60)
    assert is_waiting, "it did not wait for the start"
    assert "not running: claimer" in str(worker.ailing())
    until(lambda: threads() <= before, 10, threads)


def test_a_worker_that_is_asked_to_stop_while_it_starts_ends(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, check = app.worker(), migrate.check

    def asked(*given: Any) -> None:
        worker.stop()
        check(*given)

    monkeypatch.setattr(migrate, "check", asked)
    worker.start()
    assert worker.is_over
    assert "not running: claimer" in str(worker.ailing())


def test_a_worker_that_was_closed_before_does_not_start(app: Duly) -> None:
    before, worker = threads(), app.worker()
    worker.close()
    worker.start()
    assert threads() <= before
    worker.run()  # which has nothing to wait for
    assert not worker.is_over


def test_closing_does_not_hurry_a_worker_that_was_asked_to_stop(app: Duly) -> None:
    began, goes_on = threading.Event(), threading.Event()

    @app.task
    def linger() -> str:
        began.set()
        goes_on.wait(60)
        return "made it"

    worker = app.worker()
    worker.start()
    placed = app.put("linger")
    assert began.wait(60)
    worker.stop()
    closers = [threading.Thread(target=worker.close) for _ in range(2)]
    for each in closers:
        each.start()
    closers[0].join(1)  # longer than a worker in a hurry waits
    goes_on.set()
    for each in closers:
        each.join(60)
    row = app.read.item(placed.id)
    assert (row.state, row.result) == ("done", "made it")


def test_a_run_that_failed_is_not_waited_for(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise StoreError("it is broken")

    def run() -> None:
        with pytest.raises(StoreError):
            worker.run()
        failed.set()
        goes_on.wait(120)  # a thread of a pool, which lives on

    monkeypatch.setattr(migrate, "check", fails)
    worker, failed, goes_on = app.worker(), threading.Event(), threading.Event()
    running = threading.Thread(target=run)
    running.start()
    assert failed.wait(60)
    begun = time.monotonic()
    app.close()
    goes_on.set()
    assert time.monotonic() - begun < 30
    running.join(60)


def test_workers_of_an_app_that_is_closed_drain_at_the_same_time(app: Duly) -> None:
    began, goes_on = threading.Semaphore(0), threading.Event()

    @app.task
    def linger() -> None:
        began.release()
        goes_on.wait(60)

    workers = [app.worker(tasks=["linger"]), app.worker(tasks=["greet"])]
    for worker in workers:
        worker.start()
    app.put("linger")
    assert began.acquire(timeout=60)
    closing = threading.Thread(target=app.close)
    closing.start()
    until(lambda: all(worker._stop.is_set() for worker in workers), 3)
    goes_on.set()
    closing.join(60)
    assert all(worker.is_over for worker in workers)


def test_a_lifespan_leaves_the_other_workers_of_its_app_alone(app: Duly) -> None:
    with app.worker() as other:
        with TestClient(FastAPI(lifespan=app.lifespan)):
            assert app.put("greet", name="Ana").wait(timeout=60) == "hello Ana"
        assert other.ailing() is None
        assert app.put("greet", name="Bob").wait(timeout=60) == "hello Bob"


def test_an_asgi_app_has_a_worker_for_as_long_as_it_lives(app: Duly) -> None:
    web = FastAPI(lifespan=app.lifespan)

    @web.post("/greetings")
    async def post_greeting(name: str) -> str:
        placed = await app.task_named("greet").aput(name=name)
        answer: str = await placed.await_(timeout=60)
        return answer

    before = threads()
    with TestClient(web) as client:
        assert client.post("/greetings", params={"name": "Ana"}).json() == "hello Ana"
    until(lambda: threads() <= before, 10, threads)


def test_a_lifespan_that_cannot_begin_leaves_nothing_behind(blank_url: str, tmp_path: Path) -> None:
    if blank_url.startswith("sqlite"):
        (tmp_path / "junk.db").write_bytes(b"not a database, and long enough to see that" * 100)
        blank_url = f"sqlite:///{tmp_path / 'junk.db'}"
    app = Duly(blank_url, store_timeout_seconds=0.5, **QUICK)
    app.task(name="nothing")(lambda: None)

    async def live() -> None:
        async with app.lifespan():
            raise AssertionError("it has no database")

    with pytest.raises(StoreError):
        asyncio.run(live())
