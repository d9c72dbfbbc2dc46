"""`duly reminders`, `products` and `people`, on the database and through a service: the same words and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from duly import Duly
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.reminders import reminders_on
from duly.web.server import Service
from tests.cli.conftest import call

Run = Callable[..., Result]


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)
    for install in (reminders_on, catalog_on, birthdays_on):
        install(app)
    app.migrate()
    yield app
    app.close()


@pytest.fixture(params=["local", "remote"])
def run(request: pytest.FixtureRequest, app: Duly, database_url: str) -> Iterator[Run]:
    if request.param == "local":
        yield lambda *words, **env: call(*words, DULY_DATABASE_URL=database_url, **env)
    else:
        with Service(app, "127.0.0.1", 0) as served:
            yield lambda *words, **env: call(*words, DULY_URL=served.url, **env)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def actions(app: Duly) -> list[str]:
    return [line.action for line in reversed(app.verbs.audit.page())]


def test_a_reminder_is_added_moved_cancelled_and_hurried(run: Run, app: Duly) -> None:
    assert said(run("reminders")) == "there are no reminders\n"
    words = ("reminders", "add", "+385 1 234", "Dentist at 9", "--at", "2030-01-01T09:00Z", "--key", "k")
    made = told(run(*words, "--json"))
    assert (made["phone"], made["status"], made["date_time_utc"]) == ("+3851234", "scheduled", "2030-01-01T09:00:00Z")
    number = str(made["id"])
    edit = ("reminders", "edit", number, "--at", "2030-01-02T09:00Z", "--message", "Dentist at 10")
    moved = told(run(*edit, "--json"))
    assert (moved["date_time_utc"], moved["message"]) == ("2030-01-02T09:00:00Z", "Dentist at 10")
    assert f"reminder {number} +3851234: cancelled" in said(run("reminders", "cancel", number))
    assert f"reminder {number} +3851234: scheduled" in said(run("reminders", "retry", number))
    assert "Dentist at 10" in said(run("reminders", "show", number))
    assert [each["id"] for each in told(run("reminders", "--json"))] == [made["id"]]
    assert f"reminder {number}" in said(run("reminders"))
    assert actions(app) == ["item.put", "item.edited", "item.cancelled", "item.retried"]
    assert run("reminders", "edit", number).exit_code == 2
    assert run("reminders", "show", "999").exit_code == 1


def test_a_product_is_published_once_and_withdrawn(run: Run, app: Duly) -> None:
    assert said(run("products")) == "there are no products\n"
    for _ in range(2):
        assert said(run("products", "publish", "box/1", "--user", "ana")).startswith("ana box/1: slot ")
    (product,) = told(run("products", "--user", "ana", "--json"))
    assert (product["sku"], product["sync_status"]) == ("box/1", "pending")
    assert "ana box/1" in said(run("products"))
    for sku, complaint in (("none", "no product"), ("box/1", "is active")):
        refused = run("products", "reactivate", sku, "--user", "ana")
        assert (refused.exit_code, complaint in refused.stderr) == (1, True), refused.stderr
    assert said(run("products", "withdraw", "box/1", "--user", "ana")) == "box/1 is withdrawn\n"
    assert told(run("products", "--json")) == []
    assert actions(app) == ["product.published", "schedule.removed"]


def test_a_person_is_added_changed_and_removed(run: Run, app: Duly) -> None:
    assert said(run("people")) == "there is nobody to greet\n"
    line = said(run("people", "add", "ana", "Ana", "Horvat", "1990-03-15", "Europe/Zagreb"))
    assert line.startswith("ana Ana Horvat, 03-15 in Europe/Zagreb: next ")
    assert "Asia/Tokyo" in said(run("people", "change", "ana", "--zone", "Asia/Tokyo"))
    shown = told(run("people", "show", "ana", "--json"))
    assert (shown["zone"], [event["status"] for event in shown["events"]]) == ("Asia/Tokyo", ["PENDING"])
    assert "PENDING" in said(run("people", "show", "ana"))
    assert [each["id"] for each in told(run("people", "--json"))] == ["ana"]
    assert "Ana Horvat" in said(run("people"))
    assert said(run("people", "remove", "ana")) == "ana is removed\n"
    assert run("people", "change", "ana").exit_code == 2
    assert run("people", "show", "ana").exit_code == 1
    assert actions(app) == ["person.added", "schedule.changed", "schedule.removed"]
