"""What the apps' own resources do over HTTP: lists with filters, and acts of people."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from duly.core.decide import Rules
from duly.core.model import Done, Failed
from tests.support import claim, decided, share
from tests.web.conftest import START, House

RETRIED = share("reminders", task="remind", owner="ana")


def reminder(house: House, at: str = "2026-12-01T08:00:00+00:00", **more: Any) -> int:
    new = {"phone": "+385 1 234", "message": "Dentist", "at": at, **more}
    return int(house.ana.post("/api/reminders", json=new).json()["id"])


def ids(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


# -- reminders


def test_reminders_are_found_by_state_and_time(house: House) -> None:
    now, retried = reminder(house), reminder(house)
    later = reminder(house, "2026-12-03T09:00:00+01:00")
    first, second = claim(house.app.internals.store, RETRIED, now=START)
    house.app.internals.store.settle([decided(first, Done(b'{"vapi_call_id": "c1"}'), START)])
    house.app.internals.store.settle([decided(second, Failed("busy"), START)])

    def listed(**query: str) -> list[int]:
        return ids(house.ana.get("/api/reminders", params=query))

    assert listed() == [later, retried, now]
    assert listed(state="completed") == [now]
    assert listed(state="pending_retry") == [retried]
    assert listed(state="scheduled") == [later]
    assert listed(**{"from": "2026-12-03T08:00:00Z"}) == [later]
    assert listed(to="2026-12-03T08:00:00Z") == [retried, now]
    assert listed(**{"from": "2026-12-01T08:00:00Z", "to": "2026-12-01T08:00:01Z", "state": "completed"}) == [now]
    assert house.ana.get("/api/reminders", params={"state": "waiting"}).status_code == 422
    assert house.ana.get("/api/reminders", params={"from": "tomorrow"}).status_code == 422


def test_pages_of_found_reminders_hold_each_once_and_belong_to_their_filter(house: House) -> None:
    made = [reminder(house, "2026-12-02T09:00:00Z") for _ in range(3)]
    reminder(house, "2026-12-05T09:00:00Z")
    query = {"to": "2026-12-03T00:00:00Z", "pageSize": "2"}
    first = house.ana.get("/api/reminders", params=query).json()
    second = house.ana.get("/api/reminders", params={**query, "after": first["next"]}).json()
    assert [each["id"] for each in (*first["items"], *second["items"])] == made[::-1]
    assert second["next"] is None
    other = {"to": "2026-12-04T00:00:00Z", "after": first["next"]}
    assert house.ana.get("/api/reminders", params=other).status_code == 422


def test_a_reminder_is_rescheduled_and_cancelled_over_http(house: House) -> None:
    made = reminder(house, "2026-12-02T09:00:00Z", name="Ana")
    moved = house.ana.patch(f"/api/reminders/{made}", json={"at": "2026-12-04T09:00:00Z", "phone": "+385 99 1"}).json()
    assert (moved["dateTimeUtc"], moved["phone"], moved["name"]) == ("2026-12-04T09:00:00Z", "+385991", "Ana")
    for bad, field in (({}, "body"), ({"phone": "nobody"}, "phone"), ({"at": "soon"}, "at"), ({"when": 1}, "when")):
        refused = house.ana.patch(f"/api/reminders/{made}", json=bad)
        assert (refused.status_code, field in refused.json()["detail"]) == (422, True), refused.text
    assert house.ana.post(f"/api/reminders/{made}/cancel", json={"reason": "moved away"}).json() == {"ids": [made]}
    assert house.ana.get(f"/api/reminders/{made}").json()["status"] == "cancelled"
    assert house.ana.post(f"/api/reminders/{made}/cancel").status_code == 409
    assert [note["action"] for note in house.audit(f"item:{made}")] == ["item.cancelled", "item.edited", "item.put"]
    other = house.put()
    assert house.ana.patch(f"/api/reminders/{other}", json={"message": "x"}).status_code == 404
    assert house.ana.post(f"/api/reminders/{other}/cancel").status_code == 404


# -- the catalog


def deactivated(house: House, *skus: str, cause: str = "Refused") -> None:
    for sku in skus:
        made = house.ana.post("/api/products", json={"sku": sku}).json()["id"]
        house.app.schedules.run_now(made)
        line = share("catalog", task="catalog.sync", owner="ana")
        (item,) = claim(house.app.internals.store, line, now=house.clock.now())
        house.app.internals.store.settle([decided(item, Failed("no", (cause,)), house.clock.now(), Rules(breaker=1))])


def test_products_of_another_system_come_in_with_their_state_and_each_row_is_reported(house: House) -> None:
    own = {"id": "7f", "createdAt": "2023-06-01", "updatedAt": None}
    rows = [
        {"sku": "a", "syncStatus": "failed", "consecutiveFailures": 2, "lastError": "503", **own},
        {"sku": "b", "syncStatus": "failed", "consecutiveFailures": 5, "isActive": False, "lastSyncAt": None},
        {"sku": "a"},
    ]
    made = house.ana.post("/api/products/import", json={"products": rows}).json()
    assert (made["products"], [each["result"] for each in made["rows"]]) == (2, ["new", "new", "repeated"])
    assert made["rows"][0]["text"].startswith(
        "failed, 2 failures in a row: waits for a retry window; the next one opens "
    )
    assert made["rows"][1]["text"] == "deactivated, 5 failures in a row: only a person can reactivate it"
    assert {each["sku"]: each["isActive"] for each in house.ana.get("/api/products").json()["items"]} == {
        "a": True, "b": False,
    }  # fmt: skip
    assert house.bob.get("/api/products").json()["items"] == []
    again = house.ana.post("/api/products/import", json={"products": rows}).json()
    assert (again["products"], again["rows"][0]["text"]) == (0, "is in the catalog: unchanged")


def test_products_are_found_by_status_slot_state_and_text(house: House) -> None:
    slots = {}
    for sku in ("box-1", "box-2", "bag"):
        slots[sku] = house.ana.post("/api/products", json={"sku": sku}).json()["hourBucket"]
    deactivated(house, "box-3")

    def skus(**query: str) -> list[str]:
        answer = house.ana.get("/api/products", params=query)
        assert answer.status_code == 200, answer.text
        return [each["sku"] for each in answer.json()["items"]]

    assert skus(q="BOX") == ["box-1", "box-2", "box-3"]
    assert skus(status="failed") == ["box-3"]
    assert skus(active="false") == ["box-3"]
    assert skus(active="true", q="box") == ["box-1", "box-2"]
    assert skus(slot=str(slots["bag"])) == ["bag"]
    first = house.ana.get("/api/products", params={"q": "box", "pageSize": "2"}).json()
    assert skus(q="box", after=first["next"]) == ["box-3"]
    for query in ({"status": "lost"}, {"slot": "-1"}, {"active": "perhaps"}, {"q": ""}):
        assert house.ana.get("/api/products", params=query).status_code == 422


def test_a_product_and_all_of_one_cause_are_reactivated(house: House) -> None:
    deactivated(house, "a/1", "a/2", "a/3")
    deactivated(house, "b", cause="TimedOut")
    day = house.ana.get("/api/catalog/day").json()
    assert day["causes"] == [{"cause": "Refused", "products": 3}, {"cause": "TimedOut", "products": 1}]
    assert day["statuses"]["deactivated"] == 4
    assert len(house.app.read.page(state="failed")) == 4
    house.clock.move(timedelta(seconds=1))
    again = house.ana.post("/api/products/a%2F1/reactivate", json={"syncNow": True})
    assert (again.status_code, again.json()["isActive"], again.json()["syncStatus"]) == (200, True, "pending")
    assert house.ana.post("/api/products/a%2F1/reactivate").status_code == 409
    assert house.bob.post("/api/products/reactivate", json={}).json() == {"products": 0, "isMore": False}
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        told = house.ana.post("/api/products/reactivate", json={"cause": "Refused"}, headers=key).json()
        assert told == {"products": 2, "isMore": False}
    assert house.ana.get("/api/catalog/day").json()["causes"] == [{"cause": "TimedOut", "products": 1}]
    assert house.root.post("/api/products/reactivate", json={"syncNow": True}).json()["products"] == 1
    assert house.app.read.page(state="failed") == []
    assert len(house.app.read.page(state="waiting", task="catalog.sync")) == 2
    assert house.ana.post("/api/products/reactivate", json={"why": "x"}).status_code == 422


def test_a_day_of_a_catalog_is_ones_own(house: House) -> None:
    house.ana.post("/api/products", json={"sku": "box"})
    for who, planned in ((house.ana, 1), (house.bob, 0), (house.root, 1)):
        day = who.get("/api/catalog/day").json()
        assert sum(slot["planned"] for slot in day["slots"]) == planned
    assert (day["zone"], day["day"], day["slots"][9]["hour"]) == ("UTC", "2026-12-01", "09:00")
    assert day["windows"][0] == {"at": "2026-12-01T02:30:00Z", "cap": 50, "used": 0, "waiting": 0}
    assert day["budget"] == {"perMinute": 2.0, "usedToday": 0, "mostPerDay": 2880, "batch": 10}
    assert house.bob.get("/api/catalog/day", params={"userId": "ana"}).status_code == 403


# -- messages


def message(house: House, body: bytes = b"\x00hello", **more: Any) -> int:
    args = {"payload": b64encode(body).decode(), "queue": "orders", **more}
    return house.app.put("message_retry", **args).id


def published(house: House, after: float) -> int:
    """A message that was published so many seconds after its time."""
    made = message(house)
    at = house.clock.now() + timedelta(seconds=after)
    (item,) = claim(house.app.internals.store, share("message_retry", task="message_retry"), now=at)
    house.app.internals.store.settle([decided(item, Done(), at)])
    return made


def test_all_bytes_of_a_message_are_downloaded_as_a_file(house: House) -> None:
    body = bytes(range(256)) * 40
    made = message(house, body)
    answer = house.root.get(f"/api/messages/{made}/payload")
    assert (answer.status_code, answer.content) == (200, body)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="message-{made}.bin"'
    aside = message(house, b"", problem="too large", is_in_review=True)
    assert house.root.get(f"/api/messages/{aside}/payload").status_code == 409
    assert house.root.get(f"/api/messages/{house.put()}/payload").status_code == 404


def test_a_published_message_is_published_again_by_a_row_of_its_own(house: House) -> None:
    done = published(house, 0)
    key = {"Idempotency-Key": "once"}
    for refused in (None, {}, {"queue": "repair"}, {"replay": False}):
        assert house.root.post(f"/api/messages/{done}/send", json=refused).status_code == 409
    assert ids(house.root.get("/api/messages", params={"state": "waiting"})) == []
    asked = {"queue": "repair", "replay": True}
    (again,) = house.root.post(f"/api/messages/{done}/send", json=asked, headers=key).json()["ids"]
    assert house.root.post(f"/api/messages/{done}/send", json=asked, headers=key).json()["ids"] == [again]
    assert again != done
    told = house.root.get(f"/api/messages/{again}").json()
    assert (told["state"], told["queue"], told["replayOf"]) == ("waiting", "repair", done)
    assert house.root.get(f"/api/messages/{done}").json()["state"] == "done"
    assert ids(house.root.get("/api/messages", params={"state": "waiting", "queue": "repair"})) == [again]
    assert house.root.patch(f"/api/messages/{done}", json={"queue": "repair"}).status_code == 409
    house.root.post(f"/api/items/{again}/cancel")
    assert house.root.post(f"/api/messages/{again}/send").status_code == 409
    assert house.root.post(f"/api/messages/{again}/send", json={"replay": True}).status_code == 200
    assert house.root.patch(f"/api/messages/{done}", json={"replay": True}).status_code == 422


def test_the_drift_of_messages_is_told_in_steps_of_time(house: House) -> None:
    published(house, 1)
    published(house, 3)
    start = int(START.timestamp())
    assert house.root.get("/api/messages/drift").json() == {"points": [[start, 2.0, 3.0, 2]]}
    house.clock.move(timedelta(minutes=30))
    published(house, 0.5)
    points = house.root.get("/api/messages/drift", params={"minutes": "60"}).json()["points"]
    assert points == [[start, 2.0, 3.0, 2], [start + 1_800, 0.5, 0.5, 1]]
    assert len(house.root.get("/api/messages/drift", params={"minutes": "10"}).json()["points"]) == 1
    assert house.bob.get("/api/messages/drift").json() == {"points": []}
    assert house.root.get("/api/messages/drift", params={"minutes": "0"}).status_code == 422


@pytest.mark.parametrize("path", ["/api/reminders", "/api/products", "/api/messages"])
def test_what_was_found_for_one_is_not_found_for_another(house: House, path: str) -> None:
    reminder(house)
    message(house)
    house.ana.post("/api/products", json={"sku": "box"})
    assert ids(house.bob.get(path)) == []
    assert len(ids(house.root.get(path))) == 1
