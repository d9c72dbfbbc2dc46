"""A misspelt or renamed task at the command line: the doctor reports it, `items retask` moves what waits."""

from __future__ import annotations

import json

import httpx
import pytest

from duly import Duly as App
from duly.cli import checkup
from duly.core.errors import WrongState
from duly.engine.watch import Watch
from duly.store import Store, unserved
from duly.verbs import LOCAL
from duly.web.server import Service
from tests.cli.conftest import Duly, call
from tests.engine.test_unserved import Fleets
from tests.support import put


@pytest.fixture
def fleet(store: Store) -> Fleets:
    """A worker that has run for an hour, and three items that were put under a wrong name two minutes ago."""
    fleet = Fleets(store)
    put(store, 3, "remnd", args={"phone": "385"}, due_at=fleet.began)
    made_at = ":now - interval '2 minutes'" if store.url.startswith("postgres") else ":now - 120000000"
    store.query(f"update duly_item set created_at = {made_at}", {"now": fleet.began})
    fleet.worker("w1", "remind").tick(fleet.at(-3_600))
    fleet.worker("w1", "remind").tick(fleet.at(0))
    return fleet


def test_the_doctor_names_the_task_and_the_act_and_the_act_heals_it(duly: Duly, fleet: Fleets, app_file: str) -> None:
    found = [each for each in json.loads(duly("doctor", "--json").stdout) if each["subject"] == "tasks"]
    assert [(each["level"], each["text"], each["advice"]) for each in found] == [
        (
            "bad",
            "no running worker has the task remnd, and 3 items wait for it",
            "did you mean remind? `duly items retask remnd remind` moves its items",
        )
    ]
    result = duly("items", "retask", "remnd", "remind", "--app", app_file)
    assert (result.exit_code, result.stdout) == (0, "moved to remind: 3 items\n")
    assert "tasks" not in {each["subject"] for each in json.loads(duly("doctor", "--json").stdout)}
    again = duly("items", "retask", "remnd", "remind", "--app", app_file, "--json")
    assert json.loads(again.stdout)["items"] == 0
    text = duly("items", "retask", "remnd", "remind", "--app", app_file).stdout
    assert text == "nothing of remnd waits, is in review or recurs\n"


def test_the_doctor_reports_schedules_of_such_tasks_and_an_unfinished_look(
    duly: Duly, fleet: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = App(fleet.store.url)
    other.task(name="remnd")(lambda: None)
    other.schedules.create("remnd", "daily 09:00", {}, key="k")
    other.close()
    found = {each["subject"]: each for each in json.loads(duly("doctor", "--json").stdout)}
    assert found["schedules"]["text"] == "1 schedule makes items of remnd, a task that no running worker has"
    put(fleet.store, 5, "remind", queue="more")
    monkeypatch.setattr(unserved, "LOOKED", 3)
    monkeypatch.setattr(unserved, "LINES", 1)
    seen = [each["text"] for each in json.loads(duly("doctor", "--json").stdout) if each["subject"] == "tasks"]
    assert seen == ["no running worker has the task remnd, and 3 items wait for it"]
    monkeypatch.setattr(checkup, "PATIENCE", -1.0)
    assert "not all lines" in duly("doctor", "--json").stdout


def test_the_doctor_says_nothing_about_tasks_while_no_worker_runs(duly: Duly, store: Store) -> None:
    put(store, 3, "remnd")
    assert not [each for each in json.loads(duly("doctor", "--json").stdout) if each["subject"] == "tasks"]


def test_what_cannot_be_moved_is_listed(duly: Duly, fleet: Fleets, app_file: str) -> None:
    (bad,) = put(fleet.store, 1, "remnd", args={"name": "ana"})
    refused = duly("items", "retask", "remnd", "remind", "--app", app_file)
    assert refused.exit_code == 1
    assert f"item {bad}: remind does not accept its arguments: " in refused.stderr
    skipped = duly("items", "retask", "remnd", "remind", "--skip", "--app", app_file)
    first, second = skipped.stdout.splitlines()
    assert first == "moved to remind: 3 items"
    assert second.startswith(f"not moved: item {bad}: remind does not accept its arguments")


def test_over_http_it_is_the_same_and_an_internal_task_is_closed(store: Store) -> None:
    app = App(store.url)
    app.task(name="remind")(lambda phone: None)
    app.task(name="inner", internal=True)(lambda phone: None)
    put(store, 2, "remnd", args={"phone": "1"})
    try:
        with Service(app, "127.0.0.1", 0) as service:
            path = f"{service.url}/api/items/retask"
            for old, new in (("remnd", "inner"), ("inner", "remind")):
                assert httpx.post(path, json={"old": old, "new": new}).status_code == 422
            answer = httpx.post(path, json={"old": "remnd", "new": "remind"}).json()
            assert (answer["items"], answer["running"], answer["isMore"]) == (2, 0, False)
            put(store, 1, "remnd", args={"phone": 1, "more": 2})
            assert httpx.post(path, json={"old": "remnd", "new": "remind"}).status_code == 409
            result = call("items", "retask", "remnd", "remind", "--url", service.url)
            assert (result.exit_code, "does not accept its arguments" in result.stderr) == (1, True)
        with pytest.raises(WrongState):
            app.internals.verbs.tasks.retask(LOCAL, "remnd", "remind")
    finally:
        app.close()


def test_the_state_of_everything_names_the_task(store: Store, fleet: Fleets) -> None:
    worker = Watch(store, "w1", ["remind"], App().settings, post=lambda *_: None)
    worker.tick(fleet.at(1))
    app = App(store.url)
    try:
        picture = app.client.now()
    finally:
        app.close()
    (unserved,) = picture.unserved
    assert (unserved.task, unserved.items, unserved.near) == ("remnd", 3, "remind")
    (reason,) = [each for each in picture.reasons if "remnd" in each.text]
    assert (reason.level, reason.path) == ("bad", "/items?state=waiting&task=remnd")
    assert "`duly items retask remnd remind` moves its items" in reason.text
