"""What our own apps have to say to `duly doctor`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from duly import Duly
from duly.apps import birthdays, messages, reminders
from duly.plugin import Finding
from tests.cli.conftest import call


def test_reminders_that_nobody_will_call() -> None:
    checks = reminders.plugin.checks
    assert [*checks(reminders.RemindersSettings(), {})] == []
    (finding,) = checks(reminders.RemindersSettings(api_key="k"), {"reminders": 2})
    assert (finding.level, finding.text) == (
        "warn", "2 wait, and the provider needs VAPI_ASSISTANT_ID, VAPI_PHONE_NUMBER_ID",
    )  # fmt: skip
    whole = reminders.RemindersSettings(api_key="k", assistant_id="a", phone_number_id="p")
    assert [*checks(whole, {"reminders": 2})] == []


def test_greetings_that_go_nowhere() -> None:
    checks = birthdays.plugin.checks
    assert [each.level for each in checks(birthdays.BirthdaysSettings(), {"birthdays": 1})] == ["bad"]
    assert [*checks(birthdays.BirthdaysSettings(), {})] == []
    assert [*checks(birthdays.BirthdaysSettings(webhook_url="http://hook"), {"birthdays": 1})] == []


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RABBITMQ_URL", raising=False)
    assert [*messages.plugin.checks(messages.MessagesSettings(), {})] == []
    monkeypatch.setenv("RABBITMQ_URL", "amqp://me:secret@127.0.0.1:1")
    (finding,) = messages.plugin.checks(messages.MessagesSettings(rabbitmq_url="amqp://me:secret@127.0.0.1:1"), {})
    assert (finding.level, finding.subject) == ("bad", "messages")
    assert finding.text.startswith("amqp://me:***@127.0.0.1:1: it does not answer")


def test_a_broker_that_answers_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBITMQ_URL", "amqp://broker")
    monkeypatch.setattr("duly.apps.messages.settings.broker_trouble", lambda url: None)
    assert [*messages.plugin.checks(messages.MessagesSettings(rabbitmq_url="amqp://broker"), {})] == [
        Finding("ok", "messages", "amqp://broker answers")
    ]


def doctor(url: str, **env: Any) -> dict[str, Any]:
    return {each["subject"]: each for each in json.loads(call("doctor", "--json", DULY_DATABASE_URL=url, **env).stdout)}


def test_the_doctor_asks_the_apps_that_are_on(database_url: str) -> None:
    app = Duly(database_url)
    reminders.reminders_on(app).schedule("+385 1 234", "Dentist at 9", "2999-12-01T09:00+01:00")
    app.close()
    assert doctor(database_url)["reminders"]["level"] == "warn"
    assert "reminders" not in doctor(database_url, DULY_APPS="catalog")


@pytest.mark.parametrize(
    ("env", "subject", "text"),
    [
        ({"DULY_APPS": "katalog"}, "apps", "apps: there is no app 'katalog' here"),
        ({"DULY_CATALOG_RETRY_WINDOWS": "sometimes"}, "catalog", "DULY_CATALOG_RETRY_WINDOWS: "),
        ({"DULY_BIRTHDAYS_AT": "9,10"}, "birthdays", "DULY_BIRTHDAYS_AT: "),
        ({"RETRY_QUEUE": "q", "MANUAL_REVIEW_QUEUE": "q"}, "messages", "MANUAL_REVIEW_QUEUE: must not be the retry"),
        ({"DULY_MESSAGE_QUEUES": "orders"}, "messages", "DULY_MESSAGE_QUEUES: must be like orders=500/30000/5"),
        ({"DULY_CATALOG_BATCH_SIZE": "few"}, "catalog", "DULY_CATALOG_BATCH_SIZE: must be a whole number, got 'few'"),
    ],
)
def test_what_cannot_be_understood_of_the_apps_is_bad(
    sqlite_url: str, env: dict[str, str], subject: str, text: str
) -> None:
    found = doctor(sqlite_url, **env)
    assert found[subject]["level"] == "bad"
    assert found[subject]["text"].startswith(text)
