"""A whole worker in this process: every kind of handler, verdict and end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from duly import Duly
from duly.core.errors import ConfigError, NotMigrated
from duly.core.model import Item
from duly.core.shown import Row
from duly.engine.work import InFlight, Work
from duly.engine.worker import Worker
from tests.engine import apps
from tests.engine.apps import seen, tasks_on
from tests.process.fleet import until
from tests.support import NOW

ITEM = Item(
    id=7, task="tick", queue="tick", lane="main", rank=0, state="running", planned_at=NOW, due_at=NOW, key=None,
    execution_key="k", args=b"{}", attempt=1, max_attempts=None, failures=0, crashes=0, losses=0, fence=1,
    claimed_by="w", started_at=NOW, trace=None,
)  # fmt: skip
QUICK = {"lease_seconds": 2, "beat_seconds": 0.2, "sweep_seconds": 0.2, "drain_seconds": 0.2}


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    seen.clear()
    apps.gate.clear()
    one = tasks_on(Duly(database_url, **QUICK))
    one.internals.spec = "tests.engine.apps:app"
    yield one
    apps.gate.set()
    one.close()


@pytest.fixture
def worker(app: Duly) -> Iterator[Worker]:
    one = app.worker()
    one.start()
    yield one
    one.stop()
    one.drain()


def ended(app: Duly, item_id: int, *states: str) -> Row:
    def look() -> Row | None:
        row = app.read.item(item_id)
        return row if row.state in (states or ("done", "failed", "cancelled")) else None

    row: Row = until(look, 20, lambda: app.read.item(item_id))
    return row


@pytest.mark.usefixtures("worker")
class TestVerdicts:
    def test_a_handler_that_fails_twice_is_retried_with_the_same_execution_key(self, app: Duly) -> None:
        row = ended(app, app.put("flaky", fails=2).id)
        assert (row.state, row.result, row.attempt, row.failures) == ("done", "made it", 3, 2)
        keys = {key for key, _ in seen["flaky"]}
        assert keys == {row.execution_key}
        assert [number for _, number in seen["flaky"]] == [1, 2, 3]
        tries = app.read.story(row.id).tries
        assert [each.error_class for each in tries] == ["ConnectionError"] * 2
        assert len({each.attempt_key for each in tries} | {row.attempt_key}) == 3

    def test_without_tries_left_it_goes_to_review_with_its_error(self, app: Duly) -> None:
        row = ended(app, app.put("flaky", fails=99).id)
        assert (row.state, row.attempt) == ("failed", 3)
        assert "no luck in try 3" in (row.last_error or "")

    def test_a_failed_try_is_logged_with_its_exception(self, app: Duly, caplog: pytest.LogCaptureFixture) -> None:
        """Sentry and its like see an error only if the log line carries the exception, with its traceback."""
        with caplog.at_level(logging.WARNING, "duly.item"):
            ended(app, app.put("flaky", fails=1).id)
            ended(app, app.task_named("mute").options(tries=1).put().id)
            ended(app, app.task_named("odd").options(tries=1).put(kind="surrogate").id)
            until(lambda: "odd" in caplog.text, 20)  # a line is written a moment after its row
        told = [record.exc_info for record in caplog.records if "failed" in record.message]
        kinds = [exc[0].__name__ for exc in told if exc is not None and exc[0] is not None]
        assert kinds == ["ConnectionError", "TryFailed", "TryFailed"]  # without words, and in a child process
        assert told[0] is not None
        assert told[0][2] is not None
        assert "ValueError" in str(told[2] and told[2][1])
        assert not app.internals.telemetry._caught

    def test_a_handler_that_gives_up_is_logged_in_one_line_with_its_reason(
        self, app: Duly, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            given_up = [app.put("verdict", kind="give_up", raised=raised).id for raised in (True, False)]
            for item_id in [*given_up, app.put("verdict", kind="skip", raised=True).id]:
                ended(app, item_id)
            until(lambda: caplog.text.count("permanently failed: ") == 2, 20)
        assert not [record for record in caplog.records if record.exc_info]
        assert not app.internals.telemetry._caught

    @pytest.mark.parametrize("raised", [True, False])
    @pytest.mark.parametrize(
        ("kind", "state", "outcome"),
        [
            ("skip", "done", "skipped"),
            ("not_found", "done", "not_found"),
            ("cancel", "cancelled", "cancelled"),
            ("give_up", "failed", "gave_up"),
        ],
    )
    def test_a_verdict_may_be_returned_or_raised(
        self, app: Duly, kind: str, state: str, outcome: str, raised: bool
    ) -> None:
        row = ended(app, app.put("verdict", kind=kind, raised=raised).id)
        assert (row.state, row.outcome, row.attempt) == (state, outcome, 1)

    @pytest.mark.parametrize("kind", ["snooze", "throttled"])
    def test_to_be_asked_to_come_later_is_neither_an_attempt_nor_a_failure(self, app: Duly, kind: str) -> None:
        row = ended(app, app.put("verdict", kind=kind, raised=True).id)
        assert (row.state, row.attempt, row.failures) == ("done", 1, 0)
        assert seen["verdict"] == [1, 1]

    @pytest.mark.parametrize("task", ["leave", "aleave"])
    def test_sys_exit_in_a_handler_fails_that_handler_only(self, app: Duly, task: str) -> None:
        item_id = app.task_named(task).options(tries=1).put().id
        assert ended(app, item_id).error_class == "SystemExit"
        assert ended(app, app.put("tick").id).state == "done"

    def test_an_error_that_no_database_can_hold_is_kept_in_a_form_that_it_can(self, app: Duly) -> None:
        row = ended(app, app.task_named("unprintable").options(tries=1).put().id)
        assert row.state == "failed"
        assert "\\ud800 \\x00" in (row.last_error or "")

    @pytest.mark.parametrize(
        "kind", ["object", "large", "deep", "endless", "long number", "seen", "nul", "nan", "infinite"]
    )
    def test_a_result_that_cannot_be_kept_goes_to_review_and_says_that_the_work_was_done(
        self, app: Duly, kind: str
    ) -> None:
        row = ended(app, app.put("answer", kind=kind).id)
        assert row.state == "failed"
        assert "the work was done" in (row.last_error or "")

    def test_results_are_json(self, app: Duly) -> None:
        assert ended(app, app.put("answer", kind="dict").id).result == {"b": 1, "a": [1.5, None]}

    def test_context_variables_do_not_leak_from_one_item_to_the_next(self, app: Duly) -> None:
        ids = [app.put("paint", name=f"color {n}").id for n in range(30)]
        assert {ended(app, item_id).result for item_id in ids} == {"none"}

    def test_an_async_handler_is_told_that_it_has_no_connection(self, app: Duly) -> None:
        assert "attempt.connection" in (
            ended(app, app.task_named("in_async").options(tries=1).put().id).last_error or ""
        )

    def test_cpu_handlers_run_in_a_process_of_their_own(self, app: Duly) -> None:
        assert ended(app, app.put("apart", n=41).id).result == 42


@pytest.mark.usefixtures("worker")
class TestBatches:
    def test_each_item_of_a_batch_has_its_own_outcome(self, app: Duly) -> None:
        skus = ["a", "b", "bad", "c", "d", "e", "f", "g"]
        app.tasks["price"].options(tries=1).put_many([{"sku": sku, "price": 5} for sku in skus])
        until(lambda: not any(row.state in ("waiting", "running") for row in app.read.page(task="price")), 20)
        rows = {row.args["sku"]: row for row in app.read.page(task="price")}
        assert {sku: row.result for sku, row in rows.items() if sku != "bad"} == dict.fromkeys(
            ["a", "b", "c", "d", "e", "f", "g"], 10
        )
        assert (rows["bad"].state, rows["bad"].error_class) == ("failed", "ValueError")
        assert all(len(batch) <= 4 for batch in seen["batches"])
        assert max(len(batch) for batch in seen["batches"]) == 4, "whole batches are claimed"

    def test_an_exception_fails_the_items_of_the_batch_together(self, app: Duly) -> None:
        app.tasks["lose"].options(tries=1).put_many([{"n": n} for n in range(3)])
        until(lambda: [row.state for row in app.read.page(task="lose")] == ["failed"] * 3, 20)


@pytest.mark.usefixtures("worker")
class TestControl:
    def test_a_running_item_that_is_cancelled_has_its_handler_stopped(self, app: Duly) -> None:
        item_id = app.put("wait").id
        until(lambda: seen["began"])
        app.cancel(item_id, reason="changed my mind")
        until(lambda: seen["cancelled"] == [item_id], 10)
        row = app.read.item(item_id)
        assert (row.state, row.last_error) == ("cancelled", "changed my mind")

    @pytest.mark.parametrize("task", ["too_slow", "too_slow_thread"])
    def test_a_handler_past_its_deadline_fails_and_its_slot_is_free_again(self, app: Duly, task: str) -> None:
        ids = [app.put(task).id for _ in range(12)]
        rows = [ended(app, item_id) for item_id in ids]
        assert {row.error_class for row in rows} == {"duly.DeadlineExceeded"}

    def test_progress_can_be_seen_while_it_runs(self, app: Duly) -> None:
        item_id = app.put("steps").id
        until(lambda: app.read.item(item_id).progress == {"done": 3, "total": 10, "note": "counting"}, 10)
        apps.gate.set()
        assert ended(app, item_id).state == "done"

    def test_a_paused_queue_starts_nothing_and_a_resumed_one_goes_on(self, app: Duly) -> None:
        app.pause("tick")
        item_id = app.put("tick").id
        marker = app.put("flaky", fails=0).id
        ended(app, marker)
        assert app.read.item(item_id).state == "waiting"
        app.resume("tick")
        assert ended(app, item_id).state == "done"

    def test_a_future_item_starts_at_its_time_and_not_at_the_next_poll(self, app: Duly) -> None:
        due = app.clock.now() + timedelta(seconds=0.7)
        row = ended(app, app.task_named("tick").at(due).put().id)
        assert row.started_at is not None
        assert row.started_at >= due
        # Polls are a minute apart here and sweeps 0.2 s: what follows is the wake-up, with room for a busy machine.
        assert row.started_at - due < timedelta(seconds=5)


def test_a_suspect_is_run_apart_and_finishes(app: Duly) -> None:
    """An item that lost a worker before runs in a child process, whatever its kind."""
    item_id = app.put("flaky", fails=0).id
    crashed = "update duly_item set crashes = 1, attempt = 1 where state = 'waiting'"
    with app.internals.store.transaction() as connection:
        connection.execute(crashed)
    worker = app.worker()
    worker.start()
    try:
        row = ended(app, item_id)
    finally:
        worker.stop()
        worker.drain()
    assert (row.state, row.result) == ("done", "made it")
    assert seen["flaky"] == [], "it ran in this process"


def test_an_error_that_cannot_be_told_costs_no_slot(app: Duly, worker: Worker) -> None:
    ids = [app.task_named("mute").options(tries=1).put().id for _ in range(15)] + [
        app.task_named("amute").options(tries=1).put().id for _ in range(15)
    ]
    assert {ended(app, item_id).state for item_id in ids} == {"failed"}
    assert ended(app, app.put("tick").id).state == "done"
    assert ended(app, app.put("answer", kind="dict").id).state == "done"


def test_a_cpu_handler_may_answer_anything_without_losing_its_process(app: Duly, worker: Worker) -> None:
    assert ended(app, app.put("odd", kind="not_found").id).outcome == "not_found"
    assert ended(app, app.task_named("odd").options(tries=1).put(kind="surrogate").id).error_class == "ValueError"
    assert ended(app, app.put("apart", n=1).id).result == 2


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_work_that_is_taken_away_before_it_begins_is_never_run(app: Duly, kind: str) -> None:
    first, second = ("wait", "note_async") if kind == "async" else ("steps", "note")
    worker = app.worker(tasks=[first, second])
    worker._engine.flow.in_flight.lease([ITEM], float("inf"))
    (pool,) = [each for each in worker._engine.flow.pools.claiming if first in each.tasks]
    pool.size = 1
    pool.start()
    pool.begin([replace(ITEM, id=1, task=first), replace(ITEM, id=2, task=second)])
    until(lambda: seen["began"])
    worker._engine.flow.in_flight.drop([(2, ITEM.fence)])
    worker._engine.flow.in_flight.drop([(1, ITEM.fence)])
    apps.gate.set()
    until(lambda: pool._begun == pool._ended)
    pool.close()
    assert seen["noted"] == []


def test_an_item_that_comes_back_to_the_same_worker_is_another_work() -> None:
    app = tasks_on(Duly("sqlite:///unused.db"))
    item = Item(
        7, "tick", "tick", "main", 0, "running", NOW, NOW, None, "k", b"{}", 1, None, 0, 0, 0, 1, "w", NOW, None
    )
    old, new = Work(app.tasks["tick"], [item]), Work(app.tasks["tick"], [replace(item, fence=2)])
    in_flight = InFlight()
    in_flight.hold([new])
    assert not in_flight.take(old)
    assert in_flight.take(new)


def test_prefetched_items_go_back_untouched_when_a_worker_stops(app: Duly) -> None:
    ids = [app.put("wait").id for _ in range(25)]
    worker = app.worker(tasks=["wait"])  # with nobody to leave a slot for
    worker.start()
    until(lambda: len(seen["began"]) == 10)
    worker.stop()
    worker.drain()
    rows = [app.read.item(item_id) for item_id in ids]
    assert {(row.state, row.attempt) for row in rows} == {("waiting", 0)}
    assert len(seen["began"]) == 10, "it ran more at once than it was told to"


def test_what_waits_behind_a_blocked_event_loop_goes_to_others(app: Duly) -> None:
    worker = app.worker(tasks=["block", "note_later"])
    (pool,) = [each for each in worker._engine.flow.pools.claiming if "block" in each.tasks]
    pool.size = 1
    stuck = app.task_named("block").options(rank=0).put().id
    worker.start()
    until(lambda: seen["began"])
    waiting = [app.put("note_later").id for _ in range(5)]
    assert ended(app, stuck).error_class == "duly.DeadlineExceeded"
    until(worker.ailing)
    other = app.worker(tasks=["note_later"])
    other.start()
    assert {ended(app, item_id).attempt for item_id in waiting} == {1}
    apps.gate.set()
    until(lambda: worker.ailing() is None)
    assert pool.room() > 0
    for one in (worker, other):
        one.stop()
        one.drain()


def test_a_child_that_dies_takes_what_it_forked_along(app: Duly, worker: Worker) -> None:
    item_id = app.task_named("orphan").options(tries=1).put().id
    assert "exit code 3" in str(ended(app, item_id).last_error)


def test_a_worker_without_tasks_or_schema_says_what_to_do(blank_url: str, database_url: str) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        Duly(database_url).worker()
    blank = tasks_on(Duly(blank_url))
    blank.internals.spec = "tests.engine.apps:app"
    if blank_url.startswith("postgres"):
        with pytest.raises(NotMigrated, match="duly migrate"):
            blank.worker().start()
    blank.close()


def test_cpu_tasks_need_an_app_that_a_child_can_import(database_url: str) -> None:
    with pytest.raises(ConfigError, match="import"):
        tasks_on(Duly(database_url)).worker()


def test_a_worker_for_some_tasks_leaves_the_others_alone(app: Duly) -> None:
    tick, flaky = app.put("tick").id, app.put("flaky", fails=0).id
    worker = app.worker(tasks=["flaky"])
    worker.start()
    try:
        ended(app, flaky)
    finally:
        worker.stop()
        worker.drain()
    assert app.read.item(tick).state == "waiting"


def test_a_child_that_cannot_start_is_a_failure_with_a_reason_and_no_crash(
    app: Duly, caplog: pytest.LogCaptureFixture
) -> None:
    app.internals.spec = "tests.no_such_module:app"
    worker = app.worker()
    with caplog.at_level(logging.WARNING):
        worker.start()
        try:
            row = ended(app, app.task_named("apart").options(tries=1).put(n=1).id)
        finally:
            worker.stop()
            worker.drain()
    assert (row.state, row.error_class, row.crashes) == ("failed", "duly.NoProcess", 0)


def test_every_outcome_survives_the_pipe_to_a_child() -> None:
    from duly.core.model import Cancel, Done, Failed, Fingerprint, GiveUp, NotFound, Released, Skip, Snooze, Throttled
    from duly.engine.calls import SETTLED
    from duly.engine.processes import from_wire, to_wire

    outcomes: list[Any] = [
        Done(), Done(b"1"), Failed("x", ("A", "B")), Snooze(3), Throttled(4), Skip("a"), NotFound("b"), Cancel("c"),
        GiveUp("d"), Released(), SETTLED, Fingerprint("v2", result=b"1", keep=b"{}", also=["v1"]),
    ]  # fmt: skip
    assert [from_wire(to_wire(outcome)) for outcome in outcomes] == outcomes


def test_an_error_of_the_watch_for_news_is_told_and_does_not_end_it(
    app: Duly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = type(app.internals.store)
    watch, failures, goes_on = store.listen, iter([RuntimeError("the news are bad")]), threading.Event()

    def fails_once(*given: Any) -> None:
        for error in failures:
            raise error
        goes_on.set()
        watch(*given)

    monkeypatch.setattr(store, "listen", fails_once)
    worker = app.worker()
    assert "news" in (worker.ailing() or ""), "as long as it does not run"
    worker.start()
    try:
        assert goes_on.wait(60)
        assert worker.ailing() is None
        assert "news failed" in caplog.text
        assert "the news are bad" in caplog.text
    finally:
        worker.stop()
        worker.drain()
