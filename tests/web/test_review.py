"""Review at a glance, and acts by every filter: messages, trends, totals, redirects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly.client import Client
from duly.core.errors import InputError
from duly.verbs import LOCAL, acts, review
from duly.web.server import Service
from tests.web.conftest import LATER, START, House


def groups(house: House, **query: Any) -> list[dict[str, Any]]:
    return house.ana.get("/api/review", params=query).json()["items"]


def order(house: House, action: str, filter: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = house.ana.post("/api/acts", json={"action": action, "filter": filter, **more})
    assert answer.status_code == 201, answer.text
    house.world.run()
    return house.ana.get(f"/api/acts/{answer.json()['id']}").json()


def test_a_group_says_its_message_and_its_trend(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.fail(text="broken pipe")
    house.clock.move(3600 * 2)
    for _ in range(3):
        item = house.fail(text="broken pipe")
    house.clock.move(60)
    house.fail(text="broken otherwise")
    house.fail(house.bob, text="broken pipe")
    pipe, other = groups(house)
    assert (pipe["message"], other["message"]) == ("broken pipe", "broken otherwise")
    assert (len(pipe["trend"]), sum(pipe["trend"]), pipe["trend"][-1]) == (24, 4, 3)
    assert pipe["trend"][-3] == 1
    assert house.ana.get(f"/api/review/{house.group(item)}").json()["trend"] == pipe["trend"]
    house.clock.move(3600 * 30)
    assert sum(groups(house)[0]["trend"]) == 0, "what was given up before is not told"
    monkeypatch.setattr(review, "LOOKED_AT", 1)
    assert groups(house)[0]["items"] == 4


def test_review_is_totalled(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ana.get("/api/review/totals").json() == {"items": 0, "groups": 0, "isMore": False}
    for text in ("broken a", "broken a", "broken b"):
        house.fail(text=text)
    house.fail(house.bob, text="broken c")
    assert house.ana.get("/api/review/totals").json() == {"items": 3, "groups": 2, "isMore": False}
    assert house.root.get("/api/review/totals").json()["items"] == 4
    assert house.root.get("/api/review/totals", params={"userId": "bob"}).json()["groups"] == 1
    monkeypatch.setattr(review, "COUNTED", 2)
    told = house.ana.get("/api/review/totals").json()
    assert (told["items"], told["isMore"]) == (2, True)


def test_the_totals_of_an_owner_look_at_a_bounded_number_of_rows(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who has nothing in review is not told so only after a look at everything that others have there."""
    monkeypatch.setattr(review, "COUNTED", 2)
    for _ in range(3):
        house.fail(house.bob)
    house.fail()
    house.put()
    assert house.ana.get("/api/review/totals").json() == {"items": 1, "groups": 1, "isMore": False}
    house.put()
    assert house.ana.get("/api/review/totals").json() == {"items": 1, "groups": 1, "isMore": True}
    house.put()
    assert house.ana.get("/api/review/totals").json() == {"items": 0, "groups": 0, "isMore": True}


@pytest.fixture
def many(house: House) -> dict[str, int]:
    found = {"failed": house.fail(text="broken: timeout"), "refused": house.fail(text="broken: refused")}
    found["row"] = 0
    job = house.app.job("echo", [{"text": "row"}], owner="ana").id
    (found["row"],) = [row["id"] for row in house.ana.get("/api/items", params={"jobId": job}).json()["items"]]
    found["job"] = job
    found["waiting"] = house.put(args={"text": "seven"}, key="k7")
    found["theirs"] = house.put(house.bob, args={"text": "seven"})
    return found


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"state": "waiting,failed"}, ["failed", "refused", "row", "waiting"]),
    ({"state": "failed", "error": "TIMEOUT"}, ["failed"]),
    ({"error": "broken"}, ["failed", "refused"]),
    ({"minTries": 1}, ["failed", "refused"]),
    ({"key": "k7"}, ["waiting"]),
    ({"where": ["text=seven"]}, ["waiting"]),
    ({"dateField": "due", "from": LATER}, ["waiting"]),
    ({"dateField": "due", "to": LATER}, ["failed", "refused", "row"]),
    ({"task": "remind"}, []),
]


@pytest.mark.parametrize(("filter", "names"), FILTERS)
def test_an_act_means_what_the_list_shows(
    house: House, many: dict[str, int], filter: dict[str, Any], names: list[str]
) -> None:
    asked = {"action": "retry", "filter": filter}
    assert house.ana.post("/api/acts/count", json=asked).json() == {"count": len(names), "isMore": False}
    listed = [row["id"] for row in house.ana.get("/api/items", params=filter).json()["items"]]
    assert sorted(listed) == sorted(many[name] for name in names)
    told = order(house, "retry", filter, rate=0.001)
    assert (told["state"], told["seen"]) == ("done", len(names))
    assert {name: value for name, value in told["filter"].items() if value is not None} == {
        name: value.replace("+00:00", "Z") if name in ("from", "to") else value for name, value in filter.items()
    }
    (note,) = [note for note in house.audit() if note["action"] == "act.ordered"]
    assert note["details"]["filter"]["state"] == filter.get("state")


def test_an_act_on_a_job_looks_at_its_rows_only(house: House, many: dict[str, int]) -> None:
    told = order(house, "cancel", {"jobId": many["job"]})
    assert (told["seen"], told["changed"]) == (1, 1)
    assert house.app.read.item(many["row"]).state == "cancelled"
    assert order(house, "cancel", {"jobId": 9_999})["seen"] == 0
    made = house.ana.post(
        "/api/schedules", json={"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "t"}}
    )
    assert order(house, "cancel", {"scheduleId": made.json()["id"]})["seen"] == 0


def test_an_act_goes_through_what_does_not_fit_in_growing_steps(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "PORTION", 2)
    monkeypatch.setattr(acts, "STEP_MOST", 4)
    wanted = []
    for n in range(25):
        item = house.put(args={"text": "yes" if n % 12 == 0 else "no"})
        wanted += [item] if n % 12 == 0 else []
    told = order(house, "cancel", {"where": ["text=yes"]})
    assert (told["seen"], told["changed"]) == (3, 3)
    assert [house.app.read.item(each).state for each in wanted] == ["cancelled"] * 3


def test_counting_ends_when_its_time_is_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        house.put()
    monkeypatch.setattr(acts, "SECONDS", 0.0)
    monkeypatch.setattr(acts, "COUNT_STEP", 2)
    asked = {"action": "cancel", "filter": {"state": "waiting"}}
    assert house.ana.post("/api/acts/count", json=asked).json() == {"count": 2, "isMore": True}
    told = order(house, "cancel", {"state": "waiting"})
    assert (told["total"], told["seen"], told["state"]) == (2, 3, "done")


def test_a_filter_is_strict(house: House) -> None:
    for filter, field in (
        ({"state": "lost"}, "state"), ({"where": ["password=x"]}, "where"), ({"colour": "red"}, "filter.colour"),
        ({"from": LATER, "to": START.isoformat()}, "to"), ({"dateField": "planned"}, "filter.dateField"),
    ):  # fmt: skip
        for path in ("/api/acts", "/api/acts/count"):
            refused = house.ana.post(path, json={"action": "retry", "filter": filter})
            assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    with pytest.raises(InputError, match="is not a filter"):
        house.app.internals.verbs.acts.order(LOCAL, "retry", {"colour": "red"})


def test_an_act_keeps_its_filter_as_it_was_given(house: House) -> None:
    for filter in ({}, {"state": "failed", "task": "echo"}, {"error": "x"}, {"state": "failed,waiting", "queue": "q"}):
        assert house.app.internals.verbs.acts.order(LOCAL, "cancel", filter, all=not filter).filter == {
            "state": None,
            **filter,
        }


def test_retried_items_are_redirected_to_another_queue(house: House, many: dict[str, int]) -> None:
    failed = many["failed"]
    answer = house.ana.post("/api/acts", json={
        "action": "retry", "filter": {"state": "failed,waiting", "where": ["text=seven"]}, "queue": "repair",
    })  # fmt: skip
    assert answer.status_code == 201
    house.app.pause("echo")
    house.app.internals.verbs.review.retry(LOCAL, house.group(failed), rate=0.001, queue="repair")
    house.app.pause("repair")
    house.world.run()
    assert [house.app.read.item(many[name]).queue for name in ("waiting", "failed", "refused")] == [
        "repair", "repair", "echo",
    ]  # fmt: skip
    assert house.app.read.item(failed).state == "waiting"
    row = house.app.read.item(many["row"]).queue
    house.app.internals.verbs.acts.order(LOCAL, "retry", {"job_id": many["job"]}, queue="repair")
    house.world.run()
    assert house.app.read.item(many["row"]).queue == row, "rows of a job stay in its queue"
    refused = house.ana.post("/api/acts", json={"action": "cancel", "filter": {}, "queue": "repair"})
    assert (refused.status_code, refused.json()["field"]) == (422, "queue")
    notes = [note["details"].get("queue") for note in house.audit() if note["action"] == "act.ordered"]
    assert notes == ["repair", "repair", "repair"]


def test_the_client_orders_by_the_same_filters(house: House, many: dict[str, int]) -> None:
    with Service(house.app, "127.0.0.1", 0) as service, Client(service.url) as client:
        assert client.review_totals().groups == 2
        assert client.count("retry", {"error": "timeout", "since": START - timedelta(days=9_000)}) == 1
        assert client.retry_group(house.group(many["failed"]), queue="repair").action == "retry"
        house.world.run()
        assert house.app.read.item(many["failed"]).queue == "repair"
