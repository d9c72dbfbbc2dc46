"""Slots under pressure: handlers that hang, that cannot be stopped or do not want to, beside others with work to do."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duly import NEVER, Attempt, Duly, Limit
from duly.apps.deliver import http_on
from duly.engine.threads import ThreadPool
from duly.engine.worker import Worker
from tests.process.fleet import until
from tests.support import leases

SETTINGS = {"lease_seconds": 20, "beat_seconds": 5, "sweep_seconds": 0.5, "drain_seconds": 0.2, "cpu_slots": 2}

seen: dict[str, list[Any]] = defaultdict(list)
gate = threading.Event()


def tasks_on(app: Duly) -> Duly:
    @app.task
    async def hang_async(attempt: Attempt) -> None:
        seen["hung"].append(attempt.id)
        await asyncio.sleep(3600)

    @app.task
    def hang_thread(attempt: Attempt) -> None:
        seen["hung"].append(attempt.id)
        gate.wait(60)

    @app.task(cpu=True)
    def hang_cpu() -> None:
        time.sleep(3600)

    @app.task
    async def tick_async(attempt: Attempt) -> None:
        seen["ticks"].append(attempt.id)

    @app.task
    def tick_thread(attempt: Attempt) -> None:
        seen["ticks"].append(attempt.id)

    @app.task(cpu=True)
    def tick_cpu() -> None: ...

    @app.task(retry=NEVER, deadline=0.2)
    async def deaf(attempt: Attempt) -> str:
        seen["began"].append(attempt.id)
        while not gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                seen["cancelled"].append(attempt.id)
        return "at last"

    @app.task(retry=NEVER, deadline=0.2, limits=Limit("gpu", 1))
    def on_gpu(n: int) -> None:
        seen["in"].append(n)
        seen["most"].append(len(seen["in"]) - len(seen["out"]))
        gate.wait(60)
        seen["out"].append(n)

    return app


app = tasks_on(Duly(cpu_slots=2))


@pytest.fixture(autouse=True)
def open_the_gate_at_the_end() -> Iterator[None]:
    seen.clear()
    gate.clear()
    yield
    gate.set()


@contextmanager
def at_work(one: Duly, *tasks: str) -> Iterator[Worker]:
    one.internals.spec = "tests.engine.test_slots:app"
    worker = one.worker(tasks or None)
    worker.start()
    try:
        yield worker
    finally:
        gate.set()
        worker.stop()
        worker.drain()
        one.close()


def states(one: Duly, ids: list[int]) -> set[str]:
    return {one.read.item(item_id).state for item_id in ids}


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_queue_whose_handlers_hang_keeps_no_other_from_its_slots(database_url: str, kind: str) -> None:
    one = tasks_on(Duly(database_url, **SETTINGS))
    one.tasks[f"hang_{kind}"].put_many({} for _ in range(100))
    with at_work(one, f"hang_{kind}", f"tick_{kind}"):
        until(lambda: len(seen["hung"]) == 7, 20)
        begun = time.monotonic()
        for n in range(20):
            ticks = [one.put(f"tick_{kind}").id]
            until(lambda n=n: len(seen["ticks"]) == n + 1, 20)
        assert time.monotonic() - begun < 20, "each waited for a poll or a sweep"
        assert len(seen["hung"]) == 7, "a quarter is left to others"
        assert states(one, ticks) <= {"running", "done"}


@pytest.mark.parametrize("kind", ["async", "thread", "cpu"])
def test_a_cancel_frees_the_slot_long_before_the_next_beat(database_url: str, kind: str) -> None:
    one = tasks_on(Duly(database_url, **SETTINGS | {"lease_seconds": 150, "beat_seconds": 60}))
    hung = [one.put(f"hang_{kind}").id for _ in range(30)]
    with at_work(one, f"hang_{kind}", f"tick_{kind}"):
        until(lambda: "running" in states(one, hung), 20)
        if kind != "cpu":
            until(lambda: len(seen["hung"]) == 7, 20)
        one.cancel(*hung)
        begun = time.monotonic()
        after = [one.put(f"tick_{kind}").id for _ in range(20)]
        again = one.put(f"hang_{kind}").id
        until(lambda: states(one, after) == {"done"}, 30)
        until(lambda: states(one, [again]) == {"running"}, 30)
        assert time.monotonic() - begun < 50, "it was noticed at a beat"
        gate.set()
        if kind != "thread":  # whose threads end now
            one.cancel(again)
        until(lambda: not leases(one.internals.store), 20)  # they go with the handlers


def test_system_work_has_slots_of_its_own(database_url: str) -> None:
    from duly.verbs import LOCAL

    one = tasks_on(Duly(database_url, concurrency=1, **SETTINGS))
    one.put("hang_thread")
    waiting = [one.task_named("tick_thread").after(3600).put().id for _ in range(3)]
    with at_work(one):
        until(lambda: seen["hung"], 20)
        act = one.internals.verbs.acts.order(LOCAL, "cancel", {"task": "tick_thread"}).id
        until(lambda: one.internals.verbs.acts.get(LOCAL, act).state == "done", 20)
        assert states(one, waiting) == {"cancelled"}


def test_a_thread_that_cannot_be_stopped_holds_its_limit_until_it_ends(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = tasks_on(Duly(database_url, concurrency=2, **SETTINGS | {"lease_seconds": 2, "beat_seconds": 0.2}))
    ids = [one.put("on_gpu", n=n).id for n in range(4)]
    with at_work(one, "on_gpu") as worker, caplog.at_level(logging.WARNING):
        until(lambda: "failed" in states(one, ids), 20)
        until(lambda: "its thread cannot be" in caplog.text, 20)
        held = time.monotonic() + 3  # more than a lease
        until(lambda: time.monotonic() > held, 20)
        assert len(seen["in"]) == 1, "another one holds the only place"
        assert len(leases(one.internals.store)) == 1
        assert worker.ailing() is None, "one thread is not the end"
        gate.set()
        until(lambda: "waiting" not in states(one, ids), 20)
        assert seen["most"] == [1] * len(seen["most"])
        until(lambda: len(seen["in"]) == 4, 20)
        until(lambda: not leases(one.internals.store), 20)


def test_a_worker_tells_when_more_threads_run_on_than_it_has_slots(sqlite_url: str) -> None:
    one = tasks_on(Duly(sqlite_url, concurrency=1, **SETTINGS))
    with at_work(one, "hang_thread") as worker:
        for n in (1, 2):
            item_id = one.put("hang_thread").id
            until(lambda n=n: len(seen["hung"]) == n, 20)
            one.cancel(item_id)
        until(lambda: "threads that run on for handlers that were stopped: 2" in str(worker.ailing()), 20)
        gate.set()
        until(lambda: worker.ailing() is None, 20)


def test_a_coroutine_that_swallows_its_cancellation_loses_its_slot_and_is_told_of(database_url: str) -> None:
    one = tasks_on(Duly(database_url, concurrency=2, **SETTINGS))
    ids = [one.put("deaf").id for _ in range(4)]
    with at_work(one, "deaf", "tick_async") as worker:
        until(lambda: states(one, ids) == {"failed"}, 30)
        after = [one.put("tick_async").id for _ in range(5)]
        until(lambda: states(one, after) == {"done"}, 20)
        until(lambda: "ignore their cancellation: 4" in str(worker.ailing()), 20)
        gate.set()
        until(lambda: worker.ailing() is None, 20)
        assert {one.read.item(item_id).result for item_id in ids} == {None}, "a late end is nobody's result"
        until(lambda: not leases(one.internals.store), 20)


@pytest.mark.parametrize("phase", ["connect", "tls", "answer"])
def test_a_cancel_ends_a_call_that_waits_for_the_network(database_url: str, phase: str) -> None:
    one = Duly(database_url, outbound_allow="127.0.0.1", **SETTINGS)
    http_on(one)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, at_work(one) as worker:
        port = server.getsockname()[1]
        if phase == "connect":  # nobody takes these up, so the next one is not answered
            crowd = [socket.socket() for _ in range(3)]
            for each in crowd:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
        url = f"{'https' if phase == 'tls' else 'http'}://127.0.0.1:{port}/"
        item_id = one.put("http", url=url, timeout=300).id
        (pool,) = [
            each for each in worker._engine.flow.pools.claiming if isinstance(each, ThreadPool) and "http" in each.tasks
        ]
        until(lambda: pool._running, 20)
        if phase != "connect":
            taken, _ = server.accept()  # and never answered
            taken.recv(1)
        one.cancel(item_id)
        until(lambda: not pool._running and pool.free_calls() == pool.size, 20)
        until(lambda: not pool._left and not pool._leaked, 20, lambda: "its thread still waits")


def test_what_a_hanging_queue_left_waiting_here_goes_back_to_others(sqlite_url: str) -> None:
    one = tasks_on(Duly(sqlite_url, **SETTINGS))
    with at_work(one, "hang_async", "tick_async") as worker:
        (pool,) = [each for each in worker._engine.flow.pools.claiming if "hang_async" in each.tasks]
        pool._rows.all.ran += 1_000_000  # as if it had gone fast until now
        pool.allowance = lambda line: 30  # type: ignore[method-assign]
        ids = [one.put("hang_async").id for _ in range(20)]
        until(lambda: pool._begun - pool._ended > 7, 20)
        del pool.allowance
        until(lambda: pool._begun - pool._ended == 7, 20)
        until(lambda: [one.read.item(each).state for each in ids].count("running") == 7, 20)
        assert {one.read.item(each).attempt for each in ids} == {0, 1}
