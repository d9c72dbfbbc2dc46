"""Simulations and plans over HTTP."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from duly import Duly
from duly.apps.reminders import reminders_on
from duly.facade import simulated
from duly.web.api import create_api
from duly.web.routes import simulate
from tests.web.conftest import House, client_of


def ask(house: House, **said: Any) -> Any:
    return house.root.post("/api/simulate", json={"app": "catalog", **said})


def test_days_are_simulated_in_a_process_of_their_own(house: House) -> None:
    said = {"days": 1, "parameters": {"products": 48}, "seed": 7, "failRate": 0.1, "downHours": 2, "outHours": 1}
    answer = ask(house, **said)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    summary = told["summary"]
    assert summary["done"] + summary["late"] > 20
    assert summary["tries"] >= summary["done"] + summary["late"]
    ends = ("done", "late", "inReview", "deactivated", "skipped", "stillFailing", "waiting")
    assert summary["planned"] == sum(summary[name] for name in ends) == 48
    assert told["lines"][0].startswith("48 planned: ")
    down, outage = told["interruptions"]
    assert (down["what"], down["start"], outage["what"]) == ("down", "2026-01-01T08:00:00Z", "outage")
    assert any(line.startswith("every call failed for 1 h from 2026-01-01 16:00 UTC on") for line in told["lines"])
    by_name = {each["name"]: each["points"] for each in told["series"]}
    hours = by_name["dispatched per hour"]
    assert hours == sorted(hours)
    assert len({at for at, _ in hours}) == len(hours)
    assert sum(value for _, value in hours) >= 40
    assert any(line.startswith("no worker ran for 2 h from 2026-01-01 08:00 UTC on: ") for line in told["lines"])
    assert ask(house, **said).json() == told, "the same seed gives the same days"
    assert house.app.read.page() == [], "nothing of the service's own database is touched"


def test_what_cannot_be_simulated_is_refused(house: House) -> None:
    for said, field in (
        ({"app": "os"}, "app"), ({"app": "app:app"}, "app"), ({"days": 15}, "days"),
        ({"parameters": {"products": 10_001}}, "parameters.products"),
        ({"parameters": {"people": 1}}, "parameters.people"),
        ({"failRate": 2}, "failRate"), ({"downHours": -1}, "downHours"),
        ({"outHours": 200}, "outHours"), ({"colour": "red"}, "colour"),
    ):  # fmt: skip
        refused = ask(house, **said)
        assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert house.ana.post("/api/simulate", json={"app": "catalog"}).status_code == 403


def test_the_apps_that_can_be_simulated_are_listed_with_their_parameters(house: House) -> None:
    items = house.root.get("/api/simulate").json()["items"]
    assert {each["app"]: [field["name"] for field in each["parameters"]] for each in items} == {
        "birthdays": ["people"], "catalog": ["products"], "messages": ["messages"], "reminders": ["reminders"],
    }  # fmt: skip
    assert house.ana.get("/api/simulate").status_code == 403


def test_a_service_offers_the_apps_that_it_has_and_no_others(tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path / 'one.db'}")
    reminders_on(app)
    app.migrate()
    with closing(app), start_blocking_portal() as portal:
        client = client_of(create_api(app), portal)
        assert [each["app"] for each in client.get("/api/simulate").json()["items"]] == ["reminders"]
        client.close()


def test_one_is_simulated_at_a_time(house: House) -> None:
    with simulate._turn:
        busy = ask(house, days=1)
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "5")


def test_a_simulation_that_takes_too_long_is_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "SECONDS", 0.2)
    monkeypatch.setattr(simulated, "PROGRAM", [sys.executable, "-c", "import time; time.sleep(60)"])
    refused = ask(house, days=1)
    assert (refused.status_code, refused.json()["field"]) == (422, "days")
    assert simulate._turn.acquire(blocking=False), "the next one may begin"
    simulate._turn.release()


def test_a_simulation_that_breaks_says_why(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, "-c", "import sys; sys.exit('Error: there is no room')"]
    monkeypatch.setattr(simulated, "PROGRAM", program)
    refused = ask(house, days=1)
    assert (refused.status_code, refused.json()["detail"]) == (422, "app: cannot be simulated: there is no room")


def test_a_catalog_is_planned(house: House) -> None:
    told = house.ana.post("/api/plan", json={"products": 5_000}).json()
    assert (told["products"], told["slotMost"], told["worstHourCalls"], told["dayLimit"]) == (5_000, 209, 26, 2_880)
    assert told["breaksFirst"] == told["breaks"][0]
    assert told["breaksFirst"]["products"] > 5_000
    assert house.ana.post("/api/plan", json={}).json() == told
    assert (told["fits"], told["growth"][2]["changes"]) == (True, ["increase the retry limit to 100"])
    assert house.ana.post("/api/plan", json={"failureRate": 0.1}).json()["fits"] is False
    for said, field in (({"rate": 0}, "rate"), ({"products": -1}, "products"), ({"colour": 1}, "colour")):
        refused = house.ana.post("/api/plan", json=said)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
