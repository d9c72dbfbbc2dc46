"""Reminders on several servers: real worker processes, one database, one provider that counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from duly import Duly
from duly.apps.reminders import Reminders, reminders_on
from tests.apps.conftest import KEY, eventually, process
from tests.outbound.provider import Desk, Provider, accept_and_hang, answer, ok

SERVER = "from duly.apps.reminders import app; app.run()"
PAST = datetime(2026, 1, 1, tzinfo=UTC)

CallDesk = Callable[..., Provider]


def environment(database_url: str, provider: Provider, **more: str) -> dict[str, str]:
    """What a server is told: the seed's names work beside ours."""
    return {
        **os.environ,
        "DULY_DATABASE_URL": database_url,
        "DULY_HTTP_PORT": "0",
        "VAPI_BASE_URL": provider.url,
        "VAPI_API_KEY": KEY,
        **more,
    }


@pytest.fixture
def reminders(database_url: str):
    app = Duly(database_url)
    yield reminders_on(app)
    app.close()


def test_three_servers_call_each_of_sixty_reminders_once(
    database_url: str, reminders: Reminders, call_desk: CallDesk
) -> None:
    # With five calls at most per server, eleven at the same time need all three.
    together = threading.Barrier(11)

    def at_once(desk: Desk) -> None:
        together.wait(60)
        ok(desk)

    provider = call_desk(*[at_once] * 11)
    env = environment(database_url, provider, SCHEDULER_BATCH_SIZE="5")
    with ExitStack() as servers:
        for _ in range(3):
            servers.enter_context(process(SERVER, env))
        task = reminders.task.at(PAST)
        rows = [task.options(key=f"visit-{n}").new(phone=f"+38591{n:06}", message=f"Visit {n}") for n in range(60)]
        assert task.put_many(rows) == 60
        eventually(lambda: len(reminders.list("completed")) == 60, 90)
    assert len(provider.requests) == 60
    assert set(provider.seen().values()) == {1}
    done = reminders.list()
    assert {reminder.execution_key for reminder in done} == set(provider.seen())
    assert {reminder.vapi_call_id for reminder in done} == set(provider.calls.values())
    assert {(reminder.attempt_count, reminder.last_error) for reminder in done} == {(1, None)}


def test_a_server_that_dies_during_a_call_is_relieved_by_another_under_the_same_key(
    database_url: str, reminders: Reminders, call_desk: CallDesk
) -> None:
    provider = call_desk(accept_and_hang)
    hasty = {"DULY_LEASE_SECONDS": "4", "DULY_BEAT_SECONDS": "0.5", "DULY_SWEEP_SECONDS": "0.3"}
    env = environment(database_url, provider, **hasty)
    reminder = reminders.schedule("+385 1 234", "Dentist at 9", PAST)
    with process(SERVER, env) as first:
        eventually(lambda: provider.calls)
        first.kill()
        first.wait()
        assert reminders.get(reminder.id).status == "processing"
        with process(SERVER, env):
            eventually(lambda: reminders.get(reminder.id).status == "completed")
    assert provider.seen() == {reminder.execution_key: 2}
    assert [request.headers["duly-attempt"] for request in provider.requests] == ["1", "2"]
    assert len(provider.calls) == 1
    done = reminders.get(reminder.id)
    assert (done.vapi_call_id, done.attempt_count) == ("call-1", 2)
    assert [each.outcome for each in done.attempts] == ["lost"]


def test_a_worker_by_the_databases_clock_retries_sixty_seconds_after_the_failure(
    database_url: str, call_desk: CallDesk
) -> None:
    app = Duly(database_url, vapi_base_url=call_desk(answer(500)).url)
    reminders = reminders_on(app)
    worker = app.worker()
    worker.start()
    try:
        reminder = reminders.schedule("+385 1 234", "Dentist at 9", PAST)
        eventually(lambda: reminders.get(reminder.id).status == "pending_retry")
    finally:
        worker.stop()
        worker.drain()
    reminder = reminders.get(reminder.id)
    (failure,) = reminder.attempts
    assert reminder.next_retry_at == failure.ended_at + timedelta(seconds=60)
    assert (reminder.date_time_utc, reminder.attempt_count) == (PAST, 1)
    app.close()


def test_a_worker_hears_the_id_of_a_call_whose_reminder_was_cancelled_during_it(
    database_url: str, call_desk: CallDesk, caplog: pytest.LogCaptureFixture
) -> None:
    asked, stopped = threading.Event(), threading.Event()

    def answer_late(desk: Desk) -> None:
        asked.set()
        stopped.wait(60)
        ok(desk)

    provider = call_desk(answer_late)
    app = Duly(database_url, vapi_base_url=provider.url, vapi_api_key=KEY)
    reminders = reminders_on(app)
    reminder_id = reminders.schedule("+385 1 234", "Dentist", PAST).id
    worker = app.worker()
    worker.start()
    try:
        assert asked.wait(60)
        reminders.cancel(reminder_id)
        eventually(lambda: any("is no longer ours" in line.getMessage() for line in caplog.records), 60)
        stopped.set()
        eventually(lambda: reminders.get(reminder_id).vapi_call_id == "call-1", 60)
    finally:
        stopped.set()
        worker.stop()
        worker.drain()
        status = reminders.get(reminder_id).status
        app.close()
    assert status == "cancelled"
    assert len(provider.requests) == 1
