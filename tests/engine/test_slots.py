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
from prometheus_client import generate_latest

from duly import NEVER, Attempt, Duly, Limit, Pace
from duly.apps.deliver import http_on
from duly.core.model import Failed, Released
from duly.engine import coroutines
from duly.engine.gate import PaceGate
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

    for kind, cpu in (("thread", False), ("cpu", True)):

        @app.task(name=f"paced_{kind}", pace=Pace("shop"), retry=NEVER, deadline=2, cpu=cpu)
        def paced(seconds: float) -> None:
            gate.wait(seconds)

    @app.task(pace=Pace("shop"), retry=NEVER, deadline=2)
    async def paced_async(seconds: float) -> None:
        await asyncio.sleep(seconds)

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
        until(lambda: "was stopped but runs on; 1 such handlers" in caplog.text, 20)
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


def shown(one: Duly, kind: str) -> float:
    (line,) = [
        line
        for line in generate_latest(one.registry).decode().splitlines()
        if line.startswith(f'duly_runaway_handlers{{kind="{kind}"}}')
    ]
    return float(line.rpartition(" ")[2])


def hang(one: Duly, count: int) -> None:
    """One by one, handlers hang in their threads, and their items are cancelled."""
    for _ in range(count):
        before = len(seen["hung"])
        item_id = one.put("hang_thread").id
        until(lambda before=before: len(seen["hung"]) == before + 1, 20)
        one.cancel(item_id)


def test_threads_that_run_on_are_counted_reported_and_bounded(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = tasks_on(Duly(database_url, concurrency=2, runaways_most=2, **SETTINGS))
    with at_work(one, "hang_thread") as worker, caplog.at_level(logging.WARNING):
        hang(one, 1)
        until(lambda: shown(one, "thread") == 1, 20)
        assert worker.ailing() is None, "one thread is not the end"
        hang(one, 3)
        until(lambda: shown(one, "thread") == 4, 20)
        words = "handlers that run on after they were stopped: 4 thread"
        assert worker.ailing() == words
        assert "cannot replace itself; restart that program" in caplog.text
        until(lambda: [each.ailing for each in one.read.workers()] == [words], 20)
        assert [each.runaways for each in one.read.workers()] == [4]
        (pool,) = [each for each in worker._engine.flow.pools.claiming if "hang_thread" in each.tasks]
        assert pool.room() == 0, "the last two keep their slots"
        assert sum(thread.name == "duly-slot" for thread in threading.enumerate()) <= 4 + 2, "with two of duly's own"
        waiting = one.put("hang_thread").id
        gate.set()
        until(lambda: states(one, [waiting]) == {"done"}, 20)
        until(lambda: worker.ailing() is None, 20)
        until(lambda: shown(one, "thread") == 0, 20)


def test_coroutines_that_ignore_their_cancellation_are_bounded_too(database_url: str) -> None:
    one = tasks_on(Duly(database_url, concurrency=2, runaways_most=4, **SETTINGS))
    ids = [one.put("deaf").id for _ in range(4)]
    with at_work(one, "deaf", "tick_async") as worker:
        until(lambda: states(one, ids) == {"failed"}, 30)
        after = [one.put("tick_async").id for _ in range(5)]
        until(lambda: states(one, after) == {"done"}, 20)
        until(lambda: worker.ailing() == "handlers that run on after they were stopped: 4 async", 20)
        assert shown(one, "async") == 4
        last = one.put("deaf").id
        until(lambda: states(one, [last]) == {"failed"}, 30)
        until(lambda: shown(one, "async") == 5, 20)
        (pool,) = [each for each in worker._engine.flow.pools.claiming if "deaf" in each.tasks]
        assert len(pool._deaf) == 4, "the fifth keeps its slot"
        gate.set()
        until(lambda: worker.ailing() is None, 20)
        until(lambda: shown(one, "async") == 0, 20)
        until(lambda: not leases(one.internals.store), 20)
        done = one.put("tick_async").id
        until(lambda: states(one, [done]) == {"done"}, 20)
        assert {one.read.item(item_id).result for item_id in ids} == {None}, "a late end is nobody's result"


def test_an_event_loop_that_is_blocked_past_a_deadline_is_reported(database_url: str) -> None:
    one = Duly(database_url, **SETTINGS)
    begun = threading.Event()

    @one.task(retry=NEVER, deadline=0.2)
    async def block() -> None:
        begun.set()
        gate.wait(60)

    with at_work(one, "block") as worker:
        item_id = one.put("block").id
        begun.wait(60)
        until(lambda: states(one, [item_id]) == {"failed"}, 20)
        until(lambda: worker.ailing() == "an async handler blocks the event loop past its deadline", 20)
        assert shown(one, "async") == 1
        until(lambda: [each.runaways for each in one.read.workers()] == [1], 20)
        gate.set()
        until(lambda: worker.ailing() is None, 20)
        assert shown(one, "async") == 0


def test_a_drain_does_not_wait_for_coroutines_behind_one_that_blocks_their_event_loop(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "BLOCKED", 0.5)
    one = tasks_on(Duly(database_url, **SETTINGS | {"drain_seconds": 3600}))
    goes_on = threading.Event()

    @one.task(retry=NEVER, deadline=0.2)
    async def block() -> None:
        seen["blocks"].append(1)
        gate.wait(600)

    @one.task
    def last() -> None:
        seen["last"].append(1)
        goes_on.wait(600)

    with at_work(one, "hang_async", "block", "last") as worker:
        behind = one.put("hang_async").id
        until(lambda: seen["hung"])
        one.put("block")
        until(lambda: worker.ailing() == "an async handler blocks the event loop past its deadline")
        other = one.put("last").id
        until(lambda: seen["last"])
        worker.stop()  # so that the one at the end of this block lets it hurry, in case that it waits
        drain = threading.Thread(target=worker.drain)
        drain.start()
        until(lambda: not worker._engine.claims.is_alive())
        assert not worker.is_over, "what can end is waited for"
        goes_on.set()
        until(lambda: worker.is_over)
        drain.join()
        assert states(one, [other]) == {"done"}
        assert (one.read.item(behind).state, one.read.item(behind).attempt) == ("waiting", 0)


def test_a_process_can_be_stopped_so_nothing_runs_on(database_url: str) -> None:
    one = tasks_on(Duly(database_url, runaways_most=1, **SETTINGS))
    with at_work(one, "hang_cpu") as worker:
        item_id = one.put("hang_cpu").id
        until(lambda: states(one, [item_id]) == {"running"}, 20)
        one.cancel(item_id)
        until(lambda: not leases(one.internals.store), 20)
        assert worker.ailing() is None
        assert [shown(one, kind) for kind in ("async", "thread")] == [0, 0]


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
        until(lambda: not pool._left and not pool._runaways, 20, lambda: "its thread still waits")


KINDS = pytest.mark.parametrize("kind", ["async", "thread", "cpu"])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The verdicts that paces were told, without those that say nothing about a provider."""
    told: list[Any] = []
    ended = PaceGate.ended

    def record(self: PaceGate, started: float, in_flight: int, verdicts: list[Any]) -> None:
        told.extend(verdict for verdict in verdicts if not isinstance(verdict, Released))
        ended(self, started, in_flight, verdicts)

    monkeypatch.setattr(PaceGate, "ended", record)
    return told


@KINDS
def test_a_call_that_is_stopped_at_its_deadline_counts_once_for_its_pace(
    database_url: str, counted: list[Any], kind: str
) -> None:
    one = tasks_on(Duly(database_url, **SETTINGS))
    with at_work(one, f"paced_{kind}"):
        item_id = one.put(f"paced_{kind}", seconds=3600).id
        until(lambda: states(one, [item_id]) == {"failed"}, 30)
        gate.set()
        until(lambda: not leases(one.internals.store), 20)  # it has really ended
    assert counted == [Failed("", ("TimeoutError",))]


@KINDS
def test_a_call_that_a_person_stops_does_not_count_for_its_pace(
    database_url: str, counted: list[Any], kind: str
) -> None:
    one = tasks_on(Duly(database_url, **SETTINGS))
    for task in ("paced_async", "paced_thread", "paced_cpu"):
        one.tasks[task].deadline = 3600
    with at_work(one, f"paced_{kind}") as worker:
        item_id = one.put(f"paced_{kind}", seconds=3600).id
        until(lambda: [work for work in worker._engine.flow.in_flight.works() if work.deadline < float("inf")], 30)
        one.cancel(item_id)
        until(lambda: not worker._engine.flow.in_flight.works(), 20)
        gate.set()
        until(lambda: not leases(one.internals.store), 20)
    assert counted == []


@KINDS
def test_a_call_that_ends_by_itself_just_as_it_is_stopped_counts_once_for_its_pace(
    database_url: str, counted: list[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tasks_on(Duly(database_url, **SETTINGS))
    ended = PaceGate.ended
    with at_work(one, f"paced_{kind}") as worker:
        flow = worker._engine.flow

        def is_stopped(self: PaceGate, started: float, in_flight: int, verdicts: list[Any]) -> None:
            ended(self, started, in_flight, verdicts)
            for work in flow.in_flight.works():
                work.deadline = 0.0
                flow.settler.finish(work, [Failed("late")], stop=True)

        monkeypatch.setattr(PaceGate, "ended", is_stopped)
        item_id = one.put(f"paced_{kind}", seconds=0).id
        until(lambda: states(one, [item_id]) == {"failed"}, 30)
        until(lambda: not leases(one.internals.store), 20)
    assert len(counted) == 1  # on a busy machine, its process may not have been up before its deadline


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
