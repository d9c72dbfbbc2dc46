"""Lists of schedules: by a part of the key, by what comes next, in bounded portions; and notes about clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from duly.verbs import timetable
from tests.web.conftest import House, TestClient


def add(house: House, key: str, rule: str, who: TestClient | None = None, **more: Any) -> int:
    new = {"task": "echo", "key": key, "rule": rule, "args": {"text": key}, **more}
    answer = (who or house.ana).post("/api/schedules", json=new)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def keys(house: House, who: TestClient | None = None, **query: Any) -> list[str]:
    """All pages."""
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = (who or house.ana).get("/api/schedules", params={**query, **after})
        assert answer.status_code == 200, answer.text
        found += [row["key"] for row in answer.json()["items"]]
        if answer.json()["next"] is None:
            return found
        after = {"after": answer.json()["next"]}


@pytest.fixture(params=[2, 1_000])
def portion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small portions, and large ones."""
    monkeypatch.setattr(timetable, "PORTION", request.param)
    monkeypatch.setattr(timetable, "SCANNED", 2 * request.param)


@pytest.mark.usefixtures("portion")
def test_schedules_are_found_by_a_part_of_their_key_and_by_what_comes_next(house: House) -> None:
    add(house, "report 100%", "every 1d")
    add(house, "Report nightly", "every 1h")
    paused = add(house, "a report", "every 2h")
    add(house, "other", "every 30m")
    add(house, "report of bob", "every 1h", house.bob)
    house.ana.post(f"/api/schedules/{paused}/pause")
    assert keys(house, keyContains="REPORT") == ["report 100%", "Report nightly", "a report"]
    assert keys(house, keyContains="100%") == ["report 100%"]
    assert keys(house, keyContains="1_0") == []
    assert keys(house, sort="next") == ["other", "Report nightly", "report 100%", "a report"]
    assert keys(house, sort="next", pageSize=1) == ["other", "Report nightly", "report 100%", "a report"]
    assert keys(house, sort="next", state="paused") == ["a report"]
    assert keys(house, sort="next", keyContains="report", task="echo", state="active") == [
        "Report nightly", "report 100%",
    ]  # fmt: skip
    assert keys(house, house.bob, keyContains="report") == ["report of bob"]
    assert keys(house, house.root, sort="next", userId="bob") == ["report of bob"]
    assert keys(house, keyContains="report", key="a report") == ["a report"]
    assert house.ana.get("/api/schedules", params={"sort": "key"}).status_code == 422


@pytest.mark.parametrize("query", [{"keyContains": "k"}, {"keyContains": "k", "sort": "next"}])
def test_no_page_tells_of_schedules_of_others(
    house: House, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    monkeypatch.setattr(timetable, "PORTION", 2)
    monkeypatch.setattr(timetable, "SCANNED", 2)
    for number in range(5):
        add(house, f"k{number}", "every 1h", house.bob)
    mine = add(house, "k", "every 2h")
    told = house.ana.get("/api/schedules", params=query).json()
    assert [row["id"] for row in told["items"]] == [mine]
    assert told["next"] is None


@pytest.mark.parametrize("sort", ["id", "next"])
def test_broken_schedules_are_found_among_any_number(house: House, monkeypatch: pytest.MonkeyPatch, sort: str) -> None:
    monkeypatch.setattr(timetable, "PORTION", 2)
    monkeypatch.setattr(timetable, "SCANNED", 2)
    broken = [add(house, f"k{number}", "every 1h") for number in range(6)][-1]
    with house.app.internals.store.transaction() as connection:
        connection.execute(f"update duly_schedule set broken_at = created_at, next_at = null where id = {broken}")
    told = house.root.get("/api/schedules", params={"state": "broken", "sort": sort}).json()
    assert [row["id"] for row in told["items"]] == [broken]
    assert told["next"] is None


def test_a_preview_and_a_schedule_say_where_clocks_change(house: House) -> None:
    house.clock.set(datetime(2027, 3, 26, 12, tzinfo=UTC))
    asked = {"rule": "daily 02:30", "zone": "Europe/Zagreb", "n": 3}
    told = house.ana.post("/api/schedules/preview", json=asked).json()
    note = {"at": "2027-03-28T01:30:00Z", "note": "02:30 does not exist that day; runs 03:30"}
    assert told["notes"] == [note]
    assert note["at"] in told["next"]
    made = add(house, "nightly", "daily 02:30", zone="Europe/Zagreb")
    assert house.ana.get(f"/api/schedules/{made}").json()["notes"] == [note]
    house.ana.post(f"/api/schedules/{made}/pause")
    assert house.ana.get(f"/api/schedules/{made}").json()["notes"] == []


def test_what_was_deactivated_by_an_item_that_is_gone_is_reactivated_by_the_empty_cause(house: House) -> None:
    add(house, "a", "every 1d")
    with house.app.internals.store.transaction() as connection:
        connection.execute("update duly_schedule set broken_at = created_at, next_at = null")
    assert house.ana.post("/api/schedules/reactivate", json={"cause": "ValueError"}).json()["reactivated"] == 0
    answer = house.ana.post("/api/schedules/reactivate", json={"cause": ""})
    assert (answer.status_code, answer.json()) == (200, {"reactivated": 1, "isMore": False})


def test_a_repeated_request_does_not_reactivate_what_was_deactivated_again_meanwhile(house: House) -> None:
    add(house, "a", "every 1d")

    def reactivated() -> Any:
        with house.app.internals.store.transaction() as connection:
            connection.execute("update duly_schedule set broken_at = created_at, next_at = null")
        asked = {"json": {"run": True}, "headers": {"Idempotency-Key": "once"}}
        return house.ana.post("/api/schedules/reactivate", **asked).json()

    assert reactivated() == reactivated() == {"reactivated": 1, "isMore": False}
    (row,) = house.ana.get("/api/schedules").json()["items"]
    assert row["state"] == "broken"


def test_a_selection_of_schedules_is_changed_as_a_whole(house: House) -> None:
    def make(who: TestClient, key: str, **more: Any) -> int:
        new = {"task": "echo", "key": key, "rule": "daily 02:30", "args": {"text": "x"}, **more}
        return int(who.post("/api/schedules", json=new).json()["id"])

    def act(action: str, *ids: int, **more: Any) -> Any:
        return house.ana.post("/api/schedules/act", json={"action": action, "ids": ids, **more})

    first, second, theirs = make(house.ana, "first"), make(house.ana, "second", overlap="skip"), make(house.bob, "x")
    refused = act("pause", first, theirs, second)
    assert (refused.status_code, refused.json()["detail"]) == (404, f"there is no schedule {theirs}")
    assert house.ana.get(f"/api/schedules/{first}").json()["state"] == "active"
    assert act("pause", first, second).json() == {"ids": [first, second]}
    assert act("resume", first, theirs, second, skip=True).json() == {"ids": [first, second]}
    assert act("run", second, first).json() == {"ids": [second, first]}
    house.root.post("/api/queues/echo/pause")
    house.world.advance(60)
    refused = act("run", first, second)
    assert refused.status_code == 409
    assert f"schedule {second} runs one item at a time" in refused.json()["detail"]
    assert len(house.ana.get(f"/api/schedules/{first}").json()["items"]) == 1
    assert act("run", first, second, skip=True).json() == {"ids": [first]}
    assert act("reactivate", first).json()["detail"] == f"schedule {first} is active"
    assert act("remove", first, second).json() == {"ids": [first, second]}
    assert house.ana.get(f"/api/schedules/{first}").status_code == 404
    assert act("remove", theirs, skip=True).json() == {"ids": []}
