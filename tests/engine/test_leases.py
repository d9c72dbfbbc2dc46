"""Real workers in this process whose leases are put to the test: clocks that are set, answers that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from duly import Duly, Limit
from duly.core.clock import DatabaseClock
from duly.core.errors import StoreUnavailable
from duly.engine.worker import Worker
from tests.engine import apps
from tests.engine.apps import seen, tasks_on
from tests.process.fleet import until
from tests.support import claim, leases

QUICK = {"lease_seconds": 2, "beat_seconds": 0.2, "sweep_seconds": 0.2, "drain_seconds": 0.2}


class Clock(DatabaseClock):
    """The database's clock, as a person sets it."""

    def __init__(self, app: Duly, shift: float) -> None:
        self.shift = shift
        super().__init__(lambda: app.internals.store.now() + timedelta(seconds=self.shift))


class House:
    """Apps on one database, each with its workers and its idea of the time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: list[Duly] = []
        self._workers: list[Worker] = []

    def app(self, shift: float = 0.0) -> Duly:
        one = tasks_on(Duly(self._url, **QUICK))
        one.internals.spec = "tests.engine.apps:app"
        one.internals.database._clock = Clock(one, shift)
        self._opened.append(one)

        @one.task(limits=Limit("rare", 100))
        async def rare() -> None: ...

        return one

    def stranger(self) -> Duly:
        """An app on the same database that knows none of these tasks."""
        one = Duly(self._url, **QUICK)
        one.internals.spec = "tests.engine.apps:app"
        self._opened.append(one)

        @one.task
        async def foreign() -> None: ...

        return one

    def worker(self, app: Duly, *tasks: str) -> Worker:
        one = app.worker(tasks=tasks)
        one.start()
        self._workers.append(one)
        return one

    def close(self) -> None:
        apps.gate.set()
        for worker in self._workers:
            worker.stop()
            worker.drain()
        for app in self._opened:
            app.close()


@pytest.fixture
def house(database_url: str) -> Iterator[House]:
    seen.clear()
    apps.gate.clear()
    one = House(database_url)
    yield one
    one.close()


def lease_of(app: Duly, item_id: int) -> datetime | None:
    return app.read.story(item_id).lease_until


def renewals(app: Duly, item_id: int, count: int) -> None:
    """Wait until the lease of this item was renewed so often."""
    for _ in range(count):
        before = lease_of(app, item_id)
        until(lambda before=before: lease_of(app, item_id) != before, 20, lambda: app.read.item(item_id))


def test_a_new_try_of_a_cancelled_item_is_not_stopped_with_the_old_one(house: House) -> None:
    app = house.app()
    house.worker(app, "wait")
    item_id = app.task_named("wait").options(tries=1).put().id
    for tries in range(1, 6):  # somewhere between two heartbeats
        until(lambda tries=tries: len(seen["began"]) == tries)
        if tries < 5:
            app.cancel(item_id)
            app.retry(item_id)
    until(lambda: len(seen["cancelled"]) == 4)
    renewals(app, item_id, 5)
    row = app.read.item(item_id)
    assert (row.state, row.attempt, row.losses) == ("running", 1, 0)
    assert len(seen["cancelled"]) == 4, "the last try was stopped as well"


def test_a_clock_that_is_set_back_ends_no_lease_and_no_handler(house: House) -> None:
    app = house.app()
    worker = house.worker(app, "wait")
    item_id = app.task_named("wait").options(tries=1).put().id
    until(lambda: seen["began"])
    clock: Any = app.clock
    clock.shift = -3600.0
    worker._engine.check_clock(app.clock.now())
    renewals(app, item_id, 12)  # more than a lease
    row = app.read.item(item_id)
    assert (row.state, row.attempt, row.losses) == ("running", 1, 0)
    assert seen["cancelled"] == []
    lease = lease_of(app, item_id)
    assert lease is not None
    assert lease < app.internals.store.now() - timedelta(minutes=50), "it is kept by the new time"


def test_a_worker_that_starts_after_the_clock_was_set_forward_rescues_nobody_who_lives(house: House) -> None:
    app = house.app()
    house.worker(app, "wait")
    item_id = app.task_named("wait").options(tries=1).put().id
    until(lambda: seen["began"])
    house.worker(house.app(shift=3600.0), "wait")
    renewals(app, item_id, 20)  # two leases of a worker that has not noticed yet
    row = app.read.item(item_id)
    assert (row.state, row.attempt, row.losses) == ("running", 1, 0)
    assert len(seen["began"]) == 1


def test_a_worker_of_another_app_does_not_decide_about_tasks_that_it_does_not_know(house: House) -> None:
    app, stranger = house.app(), house.stranger()
    item_id, foreign_id = app.task_named("wait").options(tries=1).put().id, stranger.put("foreign").id
    for task in ("wait", "foreign"):  # of a worker that dies at once
        assert claim(app.internals.store, tasks=(task,), now=app.internals.store.now(), lease=timedelta(seconds=1))
    house.worker(stranger, "foreign")
    until(lambda: stranger.read.item(foreign_id).losses == 1, 20)
    row = app.read.item(item_id)
    assert (row.state, row.attempt) == ("running", 1), "only who knows its tries can tell what becomes of it"
    house.worker(app, "wait")
    until(lambda: app.read.item(item_id).state == "failed", 20)
    assert seen["began"] == []


@pytest.mark.parametrize("verb", ["claim", "claim_metered"])
def test_items_of_a_claim_whose_answer_was_lost_run_in_the_end_with_all_their_tries(
    house: House, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    app = house.app()
    task = "tick" if verb == "claim" else "rare"
    ids = [app.task_named(task).options(tries=1).put().id for _ in range(5)]
    real: Callable[..., Any] = getattr(app.internals.store, verb)
    lost: list[Any] = []

    def forgetful(*given: Any) -> Any:
        answer = real(*given)
        if answer and answer != ([], 0, None) and not lost:
            lost.append(answer)
            raise StoreUnavailable("the connection broke after the commit")
        return answer

    monkeypatch.setattr(app.internals.store, verb, forgetful)
    house.worker(app, task)
    until(lambda: all(app.read.item(item_id).state != "waiting" for item_id in ids), 20)
    until(lambda: all(app.read.item(item_id).state in ("done", "failed") for item_id in ids), 20)
    assert lost
    assert {(row.state, row.attempt, row.losses) for row in map(app.read.item, ids)} == {("done", 1, 0)}
    until(lambda: leases(app.internals.store) == {}, 20)
