"""Reminders in virtual time, on both databases, against a real provider: the seed's promises, one by one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duly import InputError
from duly.apps.reminders import Reminder, plugin
from duly.config import aliased
from duly.core.errors import DoesNotExist, WrongState
from tests.apps.conftest import KEY, START, Office
from tests.outbound.provider import Provider, accept_and_hang, answer, drip, echo_headers, hang_up, huge, ok
from tests.support import query

Desk = Callable[..., Provider]
Open = Callable[..., Office]

BUSY = answer(503)


def test_a_reminder_is_called_when_it_is_due_and_not_before(office: Open, call_desk: Desk) -> None:
    at = office(call_desk())
    reminder = at.reminders.get(at.remind(at="2026-12-01T09:00+00:00", name="Ana"))
    assert (reminder.status, reminder.date_time_utc) == ("scheduled", START + timedelta(hours=1))
    assert (reminder.attempt_count, reminder.max_attempts, reminder.idempotency_key) == (0, 3, None)
    at.world.advance(3599.999)
    assert at.provider.requests == []
    at.world.advance(0.001)
    done = at.reminders.get(reminder.id)
    assert (done.status, done.vapi_call_id, done.attempt_count) == ("completed", "call-1", 1)
    assert (done.next_retry_at, done.last_error, done.attempts) == (None, None, ())


def test_the_provider_gets_a_call_with_the_key_the_message_and_who_asks(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(), vapi_assistant_id="as-1", vapi_phone_number_id="pn-1")
    reminder_id = at.remind(name="Ana")
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    (request,) = at.provider.requests
    assert request.path == "/call"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["idempotency-key"] == reminder.execution_key
    assert request.headers["duly-attempt"] == "1"
    assert request.body == {
        "assistantId": "as-1",
        "phoneNumberId": "pn-1",
        "customer": {"number": "+3851234", "name": "Ana"},
        "assistantOverrides": {"variableValues": {"message": "Dentist at 9", "name": "Ana"}},
        "metadata": {
            "idempotency_key": reminder.execution_key,
            "attempt_key": reminder.idempotency_key,
            "attempt": 1,
            "reminder_id": reminder_id,
        },
    }
    assert re.fullmatch(rf"{reminder_id}-1-[0-9a-f]{{8}}", reminder.idempotency_key or "")


def test_failures_are_retried_after_60_and_120_seconds_and_the_third_is_the_last(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(BUSY, BUSY, BUSY))
    reminder_id = at.remind()

    at.world.run()
    first = at.reminders.get(reminder_id)
    assert (first.status, first.attempt_count) == ("pending_retry", 1)
    assert first.next_retry_at == START + timedelta(seconds=60)
    assert "answered 503" in (first.last_error or "")

    at.world.advance(59.999)
    assert len(at.provider.requests) == 1
    at.world.advance(0.001)
    second = at.reminders.get(reminder_id)
    assert (second.status, second.attempt_count) == ("pending_retry", 2)
    assert second.next_retry_at == START + timedelta(seconds=60 + 120)

    at.world.advance(120)
    third = at.reminders.get(reminder_id)
    assert (third.status, third.attempt_count, third.next_retry_at) == ("failed", 3, None)
    assert [each.number for each in third.attempts] == [1, 2, 3]
    at.world.advance(days=7)
    assert len(at.provider.requests) == 3


def test_with_more_attempts_the_third_delay_is_240_seconds(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(BUSY, BUSY, BUSY))
    reminder_id = at.remind(max_attempts=4)
    at.world.advance(180)
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count, reminder.max_attempts) == ("pending_retry", 3, 4)
    assert reminder.next_retry_at == START + timedelta(seconds=180 + 240)
    at.world.advance(240)
    assert at.reminders.get(reminder_id).status == "completed"


def test_the_environment_decides_about_retries(office: Open, call_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("RETRY_BASE_DELAY_SECONDS", "10")
    with aliased([plugin]):
        at = office(call_desk(BUSY, BUSY))
    reminder_id = at.remind()
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert (reminder.max_attempts, reminder.next_retry_at) == (2, START + timedelta(seconds=10))
    at.world.advance(10)
    assert at.reminders.get(reminder_id).status == "failed"


def test_a_call_that_went_through_but_timed_out_is_not_made_twice(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(accept_and_hang), vapi_timeout_seconds=1.0)
    reminder_id = at.remind()
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert reminder.status == "pending_retry"
    assert "TimedOut" in (reminder.last_error or "")
    at.world.advance(60)
    first, second = at.provider.requests
    assert first.key == second.key == reminder.execution_key
    assert (first.headers["duly-attempt"], second.headers["duly-attempt"]) == ("1", "2")
    assert len(at.provider.calls) == 1  # the callee could tell
    done = at.reminders.get(reminder_id)
    assert (done.status, done.vapi_call_id, done.attempt_count) == ("completed", "call-1", 2)


def test_each_try_leaves_its_own_key_in_the_audit_trail(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(BUSY, hang_up))
    reminder_id = at.remind()
    at.world.advance(180)
    reminder = at.reminders.get(reminder_id)
    keys = [request.body["metadata"]["attempt_key"] for request in at.provider.requests]
    assert len(set(keys)) == 3
    assert [each.attempt_key for each in reminder.attempts] == keys[:2]
    assert reminder.idempotency_key == keys[2]
    assert {request.key for request in at.provider.requests} == {reminder.execution_key}
    assert all(each.ended_at and each.error and each.worker for each in reminder.attempts)


def test_a_busy_provider_puts_the_call_off_without_blame(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(answer(429, Retry_After="7"), answer(503, Retry_After="600")))
    reminder_id = at.remind(max_attempts=1)
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count) == ("pending_retry", 0)
    assert reminder.next_retry_at == START + timedelta(seconds=7)
    assert reminder.idempotency_key == at.provider.requests[0].body["metadata"]["attempt_key"]
    at.world.advance(6.999)
    assert len(at.provider.requests) == 1
    at.world.advance(0.001)
    assert at.reminders.get(reminder_id).next_retry_at == START + timedelta(seconds=607)
    at.world.advance(600)
    assert at.reminders.get(reminder_id).status == "completed"
    assert [request.headers["duly-attempt"] for request in at.provider.requests] == ["1", "1", "1"]


def test_a_refusal_goes_to_review_at_once(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(answer(400, b'{"message": "customer.number is not a number"}')))
    reminder_id = at.remind()
    at.world.advance(days=1)
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count, reminder.next_retry_at) == ("failed", 1, None)
    assert "customer.number is not a number" in (reminder.last_error or "")
    assert len(at.provider.requests) == 1


@pytest.mark.parametrize(
    ("misbehave", "word"),
    [
        (answer(200, b"<html>"), "not JSON"),
        (answer(200, b'["id"]'), "no id"),
        (answer(200, b'{"id": ""}'), "no id"),
        (answer(307, Location="http://127.0.0.1:9/"), "answered 307"),
        (hang_up, "Unreachable"),
        (drip, "TimedOut"),
        (huge, "more than"),
    ],
    ids=["not json", "no object", "no id", "redirect", "hangs up", "drips", "huge"],
)
def test_a_provider_that_misbehaves_costs_a_try_and_no_more(
    office: Open, call_desk: Desk, misbehave: Any, word: str
) -> None:
    at = office(call_desk(misbehave), vapi_timeout_seconds=1.0)
    reminder_id = at.remind()
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count) == ("pending_retry", 1)
    assert word in (reminder.last_error or "")
    at.world.advance(60)
    assert at.reminders.get(reminder_id).status == "completed"


@pytest.mark.parametrize("length", [100, 101, 5_000])
def test_a_call_that_was_placed_is_not_asked_for_again_because_its_id_is_long(
    office: Open, call_desk: Desk, length: int
) -> None:
    at = office(call_desk(answer(201, b'{"id": "%s"}' % (b"x" * length))))
    reminder_id = at.remind()
    at.world.advance(days=1)
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count) == ("completed", 1)
    assert reminder.vapi_call_id == "x" * min(length, 1_000)
    assert len(at.provider.requests) == 1


def test_a_provider_that_is_not_there_is_tried_again(office: Open) -> None:
    at = office()
    reminder_id = at.remind()
    at.world.run()
    assert "refused" in (at.reminders.get(reminder_id).last_error or "")
    assert at.reminders.get(reminder_id).status == "pending_retry"


def test_the_api_key_is_in_no_row_no_error_and_no_log(
    office: Open, call_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    at = office(call_desk(hang_up, echo_headers))
    at.remind()
    at.world.advance(60)
    assert [request.headers["authorization"] for request in at.provider.requests] == [f"Bearer {KEY}"] * 2
    spoilt = office(call_desk(), vapi_api_key=f"{KEY}\n")  # as read from a file
    failed = spoilt.remind()
    spoilt.world.run()
    assert "headers.Authorization" in (spoilt.reminders.get(failed).last_error or "")
    tables = ("duly_item", "duly_attempt", "duly_lease", "duly_queue")
    rows = [query(at.reminders.app.internals.store, f"select * from {table}") for table in tables]
    assert "***" in str(rows)  # what the careless server echoed
    assert KEY not in str(rows)
    assert KEY not in caplog.text
    assert KEY not in str([vars(record) for record in caplog.records])
    assert KEY not in str(at.reminders.app.settings.shown())


def test_the_log_tells_the_story_in_the_seeds_words(
    office: Open, call_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    at = office(call_desk(BUSY, BUSY, BUSY))
    failing = at.remind()
    at.world.advance(180)
    good = at.remind()
    at.world.run()
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("duly")]
    assert told == [
        ("INFO", f"Processing reminder {failing} (attempt 1/3)"),
        ("WARNING", f"Reminder {failing} failed, scheduling retry"),
        ("INFO", f"Processing reminder {failing} (attempt 2/3)"),
        ("WARNING", f"Reminder {failing} failed, scheduling retry"),
        ("INFO", f"Processing reminder {failing} (attempt 3/3)"),
        ("ERROR", f"Reminder {failing} permanently failed"),
        ("INFO", f"Processing reminder {good} (attempt 1/3)"),
        ("INFO", f"Call initiated for reminder {good}"),
    ]


def test_a_cancelled_reminder_is_not_called_and_can_be_retried(office: Open, call_desk: Desk) -> None:
    at = office(call_desk())
    reminder_id = at.remind()
    assert at.reminders.cancel(reminder_id).status == "cancelled"
    at.world.run()
    assert at.provider.requests == []
    assert at.reminders.retry(reminder_id).status == "scheduled"
    at.world.run()
    assert at.reminders.get(reminder_id).status == "completed"
    with pytest.raises(WrongState):
        at.reminders.cancel(reminder_id)


def test_a_failed_reminder_is_retried_with_all_its_tries_under_the_same_key(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(answer(401), BUSY))
    reminder_id = at.remind()
    at.world.run()
    assert at.reminders.get(reminder_id).status == "failed"
    revived = at.reminders.retry(reminder_id)
    assert (revived.status, revived.attempt_count, revived.idempotency_key) == ("scheduled", 0, None)
    at.world.advance(60)
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.attempt_count) == ("completed", 2)
    assert {request.key for request in at.provider.requests} == {reminder.execution_key}
    assert len(reminder.attempts) == 2


def test_reminders_are_listed_by_status_newest_first(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(answer(400), BUSY))
    failed = at.remind()
    at.world.run()
    retrying = at.remind()
    at.world.run()
    done = at.remind()
    at.world.run()
    later = [at.remind(at=START + timedelta(days=1)) for _ in range(3)]
    cancelled = at.remind(at=START + timedelta(days=1))
    at.reminders.cancel(cancelled)

    def ids(reminders: tuple[Reminder, ...]) -> list[int]:
        return [reminder.id for reminder in reminders]

    assert ids(at.reminders.list()) == [cancelled, *reversed(later), done, retrying, failed]
    assert ids(at.reminders.list("failed")) == [failed]
    assert ids(at.reminders.list("pending_retry")) == [retrying]
    assert ids(at.reminders.list("completed")) == [done]
    assert ids(at.reminders.list("cancelled")) == [cancelled]
    assert ids(at.reminders.list("scheduled")) == later[::-1]
    assert ids(at.reminders.list("scheduled", most=2)) == later[:0:-1]
    assert ids(at.reminders.list("processing")) == []
    with pytest.raises(InputError, match=r"^status: must be one of scheduled, processing"):
        at.reminders.list("done")  # type: ignore[arg-type]


def test_a_reminder_is_processing_while_it_is_called(office: Open, call_desk: Desk) -> None:
    seen: list[Reminder] = []

    def look(desk: Any) -> None:
        seen.extend(at.reminders.list("processing"))
        desk.reply(200, b'{"id": "c"}')

    at = office(call_desk(look))
    at.remind()
    at.world.run()
    assert [(reminder.status, reminder.attempt_count) for reminder in seen] == [("processing", 1)]


def test_a_call_that_was_placed_while_its_reminder_was_cancelled_keeps_its_id(office: Open, call_desk: Desk) -> None:
    at: Office | None = None

    def cancel_meanwhile(desk: Any) -> None:
        assert at is not None
        at.reminders.cancel(reminder_id)
        ok(desk)

    at = office(call_desk(cancel_meanwhile))
    reminder_id = at.remind()
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.vapi_call_id) == ("cancelled", "call-1")
    assert len(at.provider.requests) == 1


def test_a_result_that_comes_just_before_its_item_is_cancelled_is_kept(office: Open, call_desk: Desk) -> None:
    at = office(call_desk())
    reminder_id = at.remind()
    keep_late = at.reminders.app.internals.verbs.items.keep_late

    def cancelled_afterwards(*given: Any) -> bool:
        kept = keep_late(*given)
        at.reminders.cancel(reminder_id)
        return kept

    at.reminders.app.internals.verbs.items.keep_late = cancelled_afterwards  # type: ignore[method-assign]
    at.world.run()
    reminder = at.reminders.get(reminder_id)
    assert (reminder.status, reminder.vapi_call_id) == ("cancelled", "call-1")


def test_scheduling_twice_under_one_key_makes_one_call(office: Open, call_desk: Desk) -> None:
    at = office(call_desk())
    assert at.remind(key="visit-7") == at.remind(key="visit-7")
    with pytest.raises(InputError, match=r"^key: 'visit-7' belongs to item"):
        at.remind(key="visit-7", message="Dentist at 10")
    at.world.run()
    assert len(at.provider.requests) == 1


@pytest.mark.parametrize("phone", ["+385 1 234", "+38512345678", "+1 202 555 0143", "+ 44 20 7946 0958"])
def test_phone_numbers_are_taken_with_or_without_spaces(office: Open, phone: str) -> None:
    at = office()
    assert at.reminders.get(at.remind(phone=phone)).phone == phone.replace(" ", "")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"phone": "12345"}, "phone"),
        ({"phone": "+0123456"}, "phone"),
        ({"phone": "+385"}, "phone"),
        ({"phone": "+1234567890123456"}, "phone"),
        ({"phone": "+385 1 CALL"}, "phone"),
        ({"phone": "+385 1 234\n"}, "phone"),
        ({"phone": "+٣٨٥١٢٣٤"}, "phone"),
        ({"phone": 3851234}, "phone"),
        ({"phone": ""}, "phone"),
        ({"message": ""}, "message"),
        ({"message": "  "}, "message"),
        ({"message": "x" * 1001}, "message"),
        ({"message": "nul \x00"}, "message"),
        ({"message": None}, "message"),
        ({"name": "x" * 201}, "name"),
        ({"at": "2026-12-01T09:00"}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"at": None}, "at"),
        ({"key": " "}, "key"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
def test_bad_input_names_its_field_and_stores_nothing(office: Open, given: dict[str, Any], field: str) -> None:
    at = office()
    with pytest.raises(InputError) as refused:
        at.remind(**given)
    assert refused.value.field == field
    assert at.reminders.list() == ()


def test_a_put_by_the_tasks_own_door_is_checked_too(office: Open) -> None:
    at = office()
    for nonsense in ("nonsense", "+385 1 234\n"):
        with pytest.raises(InputError, match=r"^phone: "):
            at.reminders.task.put(phone=nonsense, message="Dentist at 9")
    at.reminders.task.put(phone="+385 1 234", message="Dentist at 9")


def test_an_item_of_another_task_is_not_a_reminder(office: Open) -> None:
    at = office()
    other = at.reminders.app.task(name="other")(lambda: None)
    placed = other.put()
    for verb in (at.reminders.get, at.reminders.cancel, at.reminders.retry):
        with pytest.raises(DoesNotExist, match=rf"^there is no reminder {placed.id}$"):
            verb(placed.id)
    with pytest.raises(DoesNotExist):
        at.reminders.get(10**9)


def test_the_unique_index_keeps_attempt_keys_apart(office: Open, call_desk: Desk) -> None:
    at = office(call_desk(BUSY))
    at.remind()
    at.world.run()
    store = at.reminders.app.internals.store
    copy = (
        "insert into duly_attempt (item_id, number, fence, attempt_key, ended_at, outcome)"
        " select item_id, 2, fence + 1, attempt_key, ended_at, outcome from duly_attempt returning item_id"
    )
    with pytest.raises(Exception, match="violates duly_attempt"):
        query(store, copy)
