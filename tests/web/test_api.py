"""Stories over HTTP, on both databases: keys and sessions, repeats, pages, masks, edits, review, limits, streams."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from duly import Duly
from duly.core.errors import ConfigError, NotMigrated, StoreError, StoreUnavailable
from duly.engine.historian import Historian
from duly.verbs import LOCAL, local
from duly.verbs.audit import Audit
from duly.verbs.context import Masks
from duly.web import api as rooms
from duly.web import auth, desk
from duly.web.api import create_api
from duly.web.auth import is_loopback
from duly.web.feed import Listener, feed_of
from duly.web.problems import Problem
from duly.web.routes import live
from duly.web.routing import Router, repeatable
from tests.support import KNOWN, claim, query, share
from tests.web.conftest import LATER, START, House, TestClient, build

PASSWORD = "correct horse battery"


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def items(app: Duly) -> int:
    return int(query(app.internals.store, "select count(*) from duly_item")[0][0])


# -- repeats

NEW = {"task": "echo", "args": {"text": "hello"}, "at": LATER}
REPEATED: dict[str, tuple[str, Any]] = {
    "item": ("/api/items", NEW),
    "schedule": ("/api/schedules", {"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x"}}),
    "reminder": ("/api/reminders", {"phone": "+385 1 234", "message": "x", "at": LATER}),
    "product": ("/api/products", {"sku": "box/1"}),
    "person": ("/api/people", {"id": "p", "firstName": "A", "lastName": "B", "birthday": "03-15", "zone": "UTC"}),
    "act": ("/api/acts", {"action": "cancel", "filter": {"state": "waiting"}}),
    "user": ("/api/users", {"id": "zoe"}),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_the_same_post_under_the_same_key_is_done_once_and_answered_the_same(house: House, kind: str) -> None:
    url, body = REPEATED[kind]
    first = house.root.post(url, json=body, headers=keyed("one"))
    before = (items(house.app), len(house.audit()))
    again = house.root.post(url, json=body, headers=keyed("one"))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert (items(house.app), len(house.audit())) == before
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"


def test_a_post_that_would_be_executed_twice_is_refused_when_it_is_registered() -> None:
    routes = Router(prefix="/api/texts")

    def send() -> None: ...

    def count() -> None: ...

    with pytest.raises(ConfigError, match=r"POST /api/texts/send: .*send would be executed again.*Transaction"):
        routes.post("/send")(send)
    routes.get("/send")(send)
    routes.post("/count")(repeatable("it only reads")(count))


def test_another_body_or_place_under_the_same_key_is_refused(house: House) -> None:
    house.ana.post("/api/items", json=NEW, headers=keyed("one"))
    answers = [
        house.ana.post("/api/items", json={**NEW, "rank": 1}, headers=keyed("one")),
        house.ana.post("/api/acts", json={"action": "cancel", "filter": {"task": "echo"}}, headers=keyed("one")),
    ]
    assert [(answer.status_code, answer.json()["field"]) for answer in answers] == [(422, "Idempotency-Key")] * 2
    assert items(house.app) == 1


def test_keys_of_two_users_have_nothing_to_do_with_each_other(house: House) -> None:
    mine = house.ana.post("/api/items", json=NEW, headers=keyed("one")).json()
    assert house.bob.post("/api/items", json=NEW, headers=keyed("one")).json()["id"] != mine["id"]


def test_two_at_once_under_the_same_key_have_one_effect(house: House) -> None:
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(house.ana.post, "/api/items", json=NEW, headers=keyed("one")) for _ in range(6)]
        answers = [each.result() for each in sent]
    assert items(house.app) == 1
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("url", "bad", "good"),
    [
        ("/api/items", {**NEW, "args": {}}, NEW),
        ("/api/schedules", {**REPEATED["schedule"][1], "rule": "never"}, REPEATED["schedule"][1]),
    ],
)
def test_a_key_whose_request_failed_is_free_again(house: House, url: str, bad: Any, good: Any) -> None:
    assert house.ana.post(url, json=bad, headers=keyed("one")).status_code == 422
    assert house.ana.post(url, json=good, headers=keyed("one")).status_code == 201


TABLES = (
    "duly_item", "duly_attempt", "duly_schedule", "duly_slot", "duly_queue", "duly_audit", "duly_user", "duly_key",
    "duly_act", "duly_review_note", "duly_reply",
)  # fmt: skip


def all_rows(app: Duly) -> dict[str, list[str]]:
    return {table: sorted(map(str, query(app.internals.store, f"select * from {table}"))) for table in TABLES}


def a_schedule(house: House) -> int:
    return int(house.root.post("/api/schedules", json=REPEATED["schedule"][1]).json()["id"])


def an_act(house: House) -> int:
    return int(house.root.post("/api/acts", json=REPEATED["act"][1]).json()["id"])


DONE_ONCE: dict[str, Callable[[House], tuple[str, Any]]] = {
    **{kind: lambda _, said=said: said for kind, said in REPEATED.items()},
    "cancel": lambda house: (f"/api/items/{house.put()}/cancel", {"reason": "x"}),
    "retry": lambda house: (f"/api/items/{house.fail()}/retry", None),
    "canary": lambda house: (f"/api/review/{house.group(house.fail())}/canary", None),
    "note": lambda house: (f"/api/review/{house.group(house.fail())}/notes", {"text": "x"}),
    "pause": lambda house: (f"/api/schedules/{a_schedule(house)}/pause", None),
    "run": lambda house: (f"/api/schedules/{a_schedule(house)}/run", None),
    "cancel act": lambda house: (f"/api/acts/{an_act(house)}/cancel", None),
    "pause queue": lambda house: ("/api/queues/echo/pause", None),
    "key": lambda _: ("/api/keys", {"name": "x"}),
}


@pytest.mark.parametrize("kind", DONE_ONCE)
def test_a_post_that_dies_before_its_answer_is_kept_leaves_nothing_and_can_be_repeated(
    house: House, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, body = DONE_ONCE[kind](house)
    house.root.get("/api/me")  # so that the last use of the key is known
    store, real = house.app.internals.store, house.app.internals.store.write

    def dies(name: str, parameters: Any, connection: Any = None) -> Any:
        if name == "reply_end":
            raise RuntimeError("killed here")
        return real(name, parameters, connection)

    before = all_rows(house.app)
    monkeypatch.setattr(store, "write", dies)
    assert house.root.post(url, json=body, headers=keyed("one")).status_code == 500
    monkeypatch.setattr(store, "write", real)
    assert all_rows(house.app) == before
    first = house.root.post(url, json=body, headers=keyed("one"))
    assert first.status_code in (200, 201, 204), first.text
    after = all_rows(house.app)
    assert after != before
    again = house.root.post(url, json=body, headers=keyed("one"))
    assert all_rows(house.app) == after
    assert again.headers["idempotency-replayed"] == "true"
    if kind != "key":
        assert (again.status_code, again.content) == (first.status_code, first.content)


def test_a_key_is_made_once_and_its_secret_told_once(house: House) -> None:
    new = {"name": "shop"}
    made = house.ana.post("/api/keys", json=new, headers=keyed("one")).json()
    again = house.ana.post("/api/keys", json=new, headers=keyed("one"))
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    assert made["id"] in again.json()["detail"]
    secret = made["secret"].removeprefix(f"duly_{made['id']}_")
    assert secret not in again.text
    assert secret not in str(query(house.app.internals.store, "select * from duly_reply"))


@pytest.mark.parametrize("kind", ["run", "pause queue", "retry"])
def test_two_at_once_under_the_same_key_have_one_effect_whatever_it_is(house: House, kind: str) -> None:
    url, body = DONE_ONCE[kind](house)
    before = (items(house.app), len(house.audit()))
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(house.root.post, url, json=body, headers=keyed("one")) for _ in range(6)]
        answers = [each.result() for each in sent]
    assert len({(answer.status_code, answer.content) for answer in answers}) == 1
    assert answers[0].status_code in (200, 204)
    assert (items(house.app) - before[0], len(house.audit()) - before[1]) == (kind == "run", 1)


def test_what_is_kept_to_know_a_request_again_says_nothing_about_its_password(house: House) -> None:
    kept = []
    for number, password in enumerate((PASSWORD, "another horse")):
        new = {"id": f"zoe{number}", "password": password}
        house.root.post("/api/users", json={**new, "id": "zoe"}, headers=keyed("one"))
        kept.append(query(house.app.internals.store, "select request from duly_reply"))
        with house.app.internals.store.transaction() as connection:
            connection.execute("delete from duly_reply")
            connection.execute("delete from duly_user where id = 'zoe'")
    assert kept[0] == kept[1]


def test_answers_are_forgotten_after_a_day(house: House) -> None:
    house.ana.post("/api/items", json=NEW, headers=keyed("one"))
    house.clock.set(START + timedelta(hours=25))
    house.ana.post("/api/items", json=NEW, headers=keyed("two"))
    assert query(house.app.internals.store, "select key from duly_reply") == [("two",)]


def test_an_answer_is_repeated_also_when_what_it_was_about_is_gone(house: House) -> None:
    group = house.group(house.fail())
    for _ in range(2):
        answer = house.ana.post(f"/api/review/{group}/canary", headers=keyed("one"))
        assert answer.status_code == 200  # the second time, nothing of the group is in review


# -- what a put may say


def test_an_option_among_arguments_is_an_argument_that_the_task_does_not_have(house: House) -> None:
    for name in ("key", "at", "rank", "connection"):
        answer = house.ana.post("/api/items", json={"task": "echo", "args": {"text": "x", name: "bob/1"}})
        assert (answer.status_code, answer.json()["field"]) == (422, name)
    for name in ("key", "for_owner", "actor", "self", "zone"):
        new = {"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x", name: "bob"}}
        answer = house.ana.post("/api/schedules", json=new)
        assert (answer.status_code, answer.json()["field"]) == (422, name)


def test_the_systems_own_tasks_are_nobodys_to_put(house: House) -> None:
    for url, more in (("/api/items", {}), ("/api/schedules", {"key": "k", "rule": "every 1h"})):
        answer = house.root.post(url, json={"task": "duly.acts", "args": {"act_id": 1}, **more})
        assert (answer.status_code, answer.json()["title"]) == (422, "Unknown task")


def test_keys_of_two_owners_do_not_meet_and_are_shown_as_they_were_said(house: House) -> None:
    mine, theirs = house.put(key="k"), house.put(house.bob, key="k")
    assert mine != theirs
    assert house.ana.get(f"/api/items/{mine}").json()["key"] == "k"
    for who, params, found in (
        (house.ana, {"key": "k"}, [mine]),
        (house.bob, {"key": "k"}, [theirs]),
        (house.root, {"key": "k"}, [theirs, mine]),
        (house.root, {"key": "k", "userId": "ana"}, [mine]),
        (house.ana, {"key": "bob/k"}, []),
    ):
        assert [row["id"] for row in who.get("/api/items", params=params).json()["items"]] == found
    again = house.ana.post("/api/items", json={**NEW, "key": "k"})
    assert (again.status_code, again.json()["fresh"]) == (200, False)
    other = house.ana.post("/api/items", json={**NEW, "args": {"text": "other"}, "key": "k"})
    assert other.status_code == 409


def test_a_post_with_a_delay_is_the_same_when_it_is_sent_again(house: House) -> None:
    new = {"task": "echo", "args": {"text": "hello"}, "delay": 60, "key": "k"}
    first = house.ana.post("/api/items", json=new)
    house.clock.move(5)
    again = house.ana.post("/api/items", json=new)
    assert (again.status_code, again.json()) == (200, {**first.json(), "fresh": False})


def test_a_schedule_of_the_codes_cannot_be_taken_over_by_a_key_that_looks_like_it(house: House) -> None:
    house.app.schedules.create("echo", "every 1h", {"text": "the code's"}, key="ana/k")
    new = {"task": "echo", "key": "k", "rule": "every 2h", "args": {"text": "mine"}}
    assert house.ana.post("/api/schedules", json=new).status_code == 409
    (kept,) = house.app.schedules.page(task="echo")
    assert json.loads(kept.args)["text"] == "the code's"


def test_a_product_of_the_codes_is_not_a_users(house: House) -> None:
    catalog = house.app.internals.apps["catalog"]
    catalog.publish("ana", "box")
    assert house.ana.post("/api/products", json={"sku": "box"}).status_code == 404
    assert house.ana.delete("/api/products/box").status_code == 404
    assert house.ana.get("/api/products").json()["items"] == []
    assert house.root.delete("/api/products/box", params={"userId": "ana"}).status_code == 204


def test_what_has_a_key_that_looks_like_theirs_is_not_told_of(house: House) -> None:
    task = house.app.tasks["echo"]
    same, other = (
        task.options(key="ana/same", at=LATER).put(text="hello"),
        task.options(key="ana/other", at=LATER).put(text="x"),
    )
    for key in ("same", "other"):
        answer = house.ana.post("/api/items", json={**NEW, "key": key})
        assert (answer.status_code, answer.json()["detail"]) == (
            409,
            f"key: the key {key!r} is already used; choose another key",
        )
        for placed in (same, other):
            assert placed.execution_key not in answer.text
    house.app.internals.apps["birthdays"].add("ana/friend", "Code", "Person", "03-15", "UTC")
    assert house.ana.get("/api/people/friend").status_code == 404
    assert house.ana.patch("/api/people/friend", json={"zone": "UTC"}).status_code == 404
    assert house.ana.delete("/api/people/friend").status_code == 404
    assert house.app.internals.apps["birthdays"].get("ana/friend").first_name == "Code"


def test_an_app_that_is_not_there_is_not_found(database_url: str) -> None:
    with TestClient(create_api(Duly(database_url)), base_url="http://127.0.0.1") as client:
        assert client.get("/api/products").status_code == 404


def test_for_whom_only_admins_may_act(house: House) -> None:
    assert house.ana.post("/api/products", json={"sku": "x", "userId": "bob"}).status_code == 403
    assert house.root.post("/api/products", json={"sku": "x", "userId": "bob"}).status_code == 201
    assert [each["sku"] for each in house.bob.get("/api/products").json()["items"]] == ["x"]
    assert house.ana.get("/api/people/p", params={"userId": "bob"}).status_code == 403


def test_a_person_moves_and_an_empty_change_is_refused(house: House) -> None:
    house.ana.post(*REPEATED["person"][:1], json=REPEATED["person"][1])
    assert house.ana.patch("/api/people/p", json={"zone": "Asia/Tokyo"}).json()["zone"] == "Asia/Tokyo"
    assert house.ana.patch("/api/people/p", json={}).status_code == 422
    told = house.ana.get("/api/people/p").json()
    assert [event["status"] for event in told["events"]] == ["PENDING"]
    assert house.audit()[0]["actor"] == "ana"


# -- pages


def test_pages_hold_every_row_once_while_rows_come_and_change(house: House) -> None:
    stay = [house.put() for _ in range(9)]
    gone = stay.pop(4)
    seen, after, page = [], None, 0
    while True:
        params = {"pageSize": "2", "state": "waiting", **({"after": after} if after else {})}
        answer = house.ana.get("/api/items", params=params).json()
        seen += [row["id"] for row in answer["items"]]
        after, page = answer["next"], page + 1
        house.put()  # newer than all of them
        if page == 1:
            house.ana.post(f"/api/items/{gone}/cancel")
        if after is None:
            break
    assert [each for each in seen if each in stay] == stay[::-1]
    assert len(seen) == len(set(seen))
    assert gone not in seen


def test_every_list_has_pages(house: House) -> None:
    for n in range(3):
        house.put()
        house.ana.post("/api/schedules", json={**REPEATED["schedule"][1], "key": f"k{n}"})
        house.ana.post("/api/products", json={"sku": f"s{n}"})
        house.ana.post("/api/acts", json={"action": "cancel", "filter": {"task": "none"}})
        house.ana.post("/api/keys", json={"name": f"n{n}"})
        house.root.put(f"/api/limits/{'ž' * 190}{n}", json={"limit": "2/1m"})
        house.root.post(f"/api/queues/{'ž' * 190}{n}/pause")
        house.app.internals.store.write(
            "alive", {**KNOWN, "name": f"w{n}", "tasks": "[]", "started_at": START, "now": START}
        )
        for text in ("broken", "broken too", f"broken {'x' * n} way")[: n + 1]:
            house.fail(text=text)
    for url, name in (
        ("/api/items", "id"), ("/api/schedules", "id"), ("/api/products", "id"), ("/api/acts", "id"),
        ("/api/keys", "id"), ("/api/users", "id"), ("/api/audit", "id"), ("/api/review", "id"),
        ("/api/queues", "queue"), ("/api/limits", "name"), ("/api/workers", "name"),
    ):  # fmt: skip
        whole = house.root.get(url, params={"pageSize": "500"}).json()
        assert whole["next"] is None
        assert len(whole["items"]) >= 3, url
        rows, after = [], None
        while page := house.root.get(url, params={"pageSize": "2", **({"after": after} if after else {})}).json():
            rows += page["items"]
            if (after := page["next"]) is None:
                break
        assert [row[name] for row in rows] == [row[name] for row in whole["items"]], url
    sizes = [group["items"] for group in house.root.get("/api/review").json()["items"]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_cursor_is_good_for_its_owner_and_filter_only(house: House) -> None:
    for _ in range(3):
        house.put()
        house.put(house.bob)
    cursor = house.ana.get("/api/items", params={"pageSize": "1"}).json()["next"]
    assert house.ana.get("/api/items", params={"pageSize": "2", "after": cursor}).status_code == 200
    tampered = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    wrong: list[tuple[TestClient, str, dict[str, str]]] = [
        (house.ana, "/api/items", {"after": tampered}),
        (house.ana, "/api/items", {"after": cursor[:10]}),
        (house.ana, "/api/items", {"after": "é"}),
        (house.ana, "/api/items", {"after": ""}),
        (house.ana, "/api/items", {"after": "A" * 500}),
        (house.ana, "/api/items", {"after": "A" * 2_001}),
        (house.ana, "/api/items", {"after": cursor, "state": "waiting"}),
        (house.ana, "/api/acts", {"after": cursor}),
        (house.bob, "/api/items", {"after": cursor}),
        (house.root, "/api/items", {"after": cursor}),
    ]
    for who, url, params in wrong:
        answer = who.get(url, params=params)
        assert (answer.status_code, answer.json()["field"]) == (422, "after"), params
    assert house.root.get("/api/items", params={"after": cursor, "userId": "ana"}).status_code == 200


def test_all_processes_of_a_service_understand_each_others_cursors(house: House) -> None:
    house.put()
    house.put()
    cursor = house.ana.get("/api/items", params={"pageSize": "1"}).json()["next"]
    other = house.client(house.secrets["ana"], create_api(house.app, "0.0.0.0"))
    assert len(other.get("/api/items", params={"after": cursor}).json()["items"]) == 1


# -- masks


def test_secrets_are_masked_until_revealed_and_revealing_is_audited(house: House) -> None:
    item_id = house.put(args={"text": "x", "password": "hunter2"}, at=None)
    house.world.run()
    for answer in (house.ana.get("/api/items"), house.ana.get(f"/api/items/{item_id}")):
        assert "hunter2" not in answer.text
    assert house.audit(f"item:{item_id}")[0]["action"] == "item.put"
    seen = house.ana.get(f"/api/items/{item_id}", params={"reveal": "true"}).json()
    assert (seen["args"]["password"], seen["result"]["password"]) == ("hunter2", "hunter2")
    (note, *_) = house.audit(f"item:{item_id}")
    assert (note["actor"], note["action"]) == ("ana", "item.revealed")
    assert house.key("ana", "read").get(f"/api/items/{item_id}", params={"reveal": "true"}).status_code == 403


@pytest.mark.parametrize("levels", [300, 3_000])
def test_a_row_that_is_nested_more_deeply_than_rows_may_be_by_now_hides_no_other(house: House, levels: int) -> None:
    """As older versions kept them."""
    item_id, other = house.put(), house.put()
    schedule = house.ana.post("/api/schedules", json=REPEATED["schedule"][1]).json()["id"]
    deep = "[" * levels + "]" * levels
    with house.app.internals.store.transaction() as connection:
        connection.execute(f"update duly_item set result = '{deep}', args = '{deep}' where id = {item_id}")
        connection.execute(f"update duly_schedule set keep = '{deep}' where id = {schedule}")
    for who in (house.ana, house.root):
        listed = who.get("/api/items")
        assert listed.status_code == 200, listed.text
        assert [row["id"] for row in listed.json()["items"]] == [other, item_id]
        assert who.get("/api/schedules").status_code == 200
    for reveal in ("false", "true"):
        told = house.ana.get(f"/api/items/{item_id}", params={"reveal": reveal})
        assert "nested too deeply to be shown" in told.text
    edited = house.ana.patch(f"/api/items/{item_id}", json={"rank": 5})
    assert edited.status_code == 200, edited.text
    assert house.app.internals.store.fetch([item_id])[0].args == deep.encode(), "what was not edited stays as it was"


def test_names_are_masked_however_they_are_written(house: House) -> None:
    headers = {"X-Api-Key": "hunter2", "authorization": "hunter2", "plain": "seen"}
    new = {"task": "http", "at": LATER, "args": {"url": "https://example.com/", "headers": headers, "body": [{"a": 1}]}}
    item_id = house.ana.post("/api/items", json=new).json()["id"]
    shown = house.ana.get(f"/api/items/{item_id}").json()["args"]
    assert shown["headers"] == {"X-Api-Key": "***", "authorization": "***", "plain": "seen"}
    assert shown["body"] == [{"a": 1}]


def test_what_is_masked_can_be_chosen(database_url: str) -> None:
    for masked, phone in (("", "+3851234"), ("phone", "***")):
        app = build(database_url, masked=masked)
        with TestClient(create_api(app), base_url="http://127.0.0.1") as client:
            made = client.post("/api/reminders", json={"phone": "+385 1 234", "message": "x", "at": LATER}).json()
            assert client.get(f"/api/reminders/{made['id']}").json()["phone"] == phone
            assert client.get(f"/api/items/{made['id']}").json()["args"]["phone"] == phone
        app.close()


def test_sending_back_a_mask_keeps_what_it_hides(house: House) -> None:
    args = {"url": "https://example.com/", "headers": {"authorization": "hunter2"}, "body": [{"token": "t", "n": 1}, 2]}
    item_id = house.ana.post("/api/items", json={"task": "http", "at": LATER, "args": args}).json()["id"]
    seen = house.ana.get(f"/api/items/{item_id}").json()["args"]
    seen["body"][0]["n"] = 7
    assert house.ana.patch(f"/api/items/{item_id}", json={"args": seen}).status_code == 200
    kept = house.world.item(item_id).args
    assert kept["headers"] == {"authorization": "hunter2"}
    assert kept["body"] == [{"token": "t", "n": 7}, 2]
    new = {"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x", "password": "hunter2"}}
    made = house.ana.post("/api/schedules", json=new).json()
    assert made["args"]["password"] == "***"
    house.ana.patch(f"/api/schedules/{made['id']}", json={"args": {**made["args"], "text": "y"}})
    assert json.loads(house.app.schedules.get(made["id"]).args) == {"text": "y", "password": "hunter2"}


# -- edits


def test_an_edit_is_in_the_audit_log_with_what_it_changed(house: House) -> None:
    item_id = house.put(args={"text": "x", "password": "hunter2"})
    edit = {"args": {"text": "y", "password": "hunter3"}, "rank": 7, "at": LATER}
    answer = house.ana.patch(f"/api/items/{item_id}", json=edit).json()
    assert (answer["args"], answer["rank"]) == ({"text": "y", "password": "***"}, 7)
    (note, *_) = house.audit(f"item:{item_id}")
    assert (note["actor"], note["action"]) == ("ana", "item.edited")
    assert note["details"] == {
        "args": [{"text": "x", "password": "***"}, {"text": "y", "password": "***"}],
        "rank": [0, 7],
    }
    assert house.world.item(item_id).args == {"text": "y", "password": "hunter3"}


def test_a_schedule_that_was_changed_by_its_key_is_said_to_be_changed(house: House) -> None:
    new = {"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x"}}
    made = house.ana.post("/api/schedules", json=new).json()
    again = house.ana.post("/api/schedules", json={**new, "rule": "every 2h"}).json()
    assert (again["id"], again["rule"]) == (made["id"], "every 2h")
    assert [note["action"] for note in house.audit(f"schedule:{made['id']}")] == [
        "schedule.changed", "schedule.created",
    ]  # fmt: skip


def test_an_edit_moves_an_item_in_time_and_to_another_queue(house: House) -> None:
    item_id = house.put()
    edit = {"at": "2026-03-04T05:06:07Z", "queue": "others", "tries": 9}
    answer = house.ana.patch(f"/api/items/{item_id}", json=edit).json()
    assert (answer["dueAt"], answer["plannedAt"]) == (edit["at"], edit["at"])
    assert (answer["queue"], answer["maxAttempts"]) == ("others", 9)
    (note, *_) = house.audit(f"item:{item_id}")
    assert note["details"]["queue"] == ["echo", "others"]


def test_a_reminder_shows_the_time_that_it_was_moved_to(house: House) -> None:
    new = {"phone": "+385 1 234", "message": "x", "at": LATER}
    item_id = house.ana.post("/api/reminders", json=new).json()["id"]
    moved = "2026-03-04T05:06:07Z"
    assert house.ana.patch(f"/api/items/{item_id}", json={"at": moved}).status_code == 200
    assert house.ana.get(f"/api/reminders/{item_id}").json()["dateTimeUtc"] == moved


def test_arguments_that_the_task_would_not_take_are_refused(house: House) -> None:
    answer = house.ana.patch(f"/api/items/{house.put()}", json={"args": {"wrong": 1}})
    assert (answer.status_code, answer.json()["field"]) == (422, "wrong")


def test_an_item_in_review_can_be_edited_and_tried_again(house: House) -> None:
    item_id = house.fail()
    house.ana.patch(f"/api/items/{item_id}", json={"args": {"text": "mended"}})
    house.ana.post(f"/api/items/{item_id}/retry")
    house.world.run()
    assert house.ana.get(f"/api/items/{item_id}").json()["result"]["text"] == "mended"


@pytest.mark.parametrize("rival", ["worker", "editor"])
def test_an_edit_that_lost_the_race_changes_nothing(house: House, monkeypatch: pytest.MonkeyPatch, rival: str) -> None:
    item_id = house.put(at=None)
    real = Masks.unmasked

    def meanwhile(masks: Masks, value: Any, known: Any) -> Any:
        monkeypatch.setattr(Masks, "unmasked", real)
        if rival == "worker":
            claim(house.app.internals.store, share("echo", owner="ana"), now=START)
        else:
            assert house.root.patch(f"/api/items/{item_id}", json={"rank": 3}).status_code == 200
        return real(masks, value, known)

    monkeypatch.setattr(Masks, "unmasked", meanwhile)
    answer = house.ana.patch(f"/api/items/{item_id}", json={"args": {"text": "late"}})
    assert (answer.status_code, "changed meanwhile" in answer.json()["detail"]) == (409, True)
    assert house.world.item(item_id).args["text"] == "hello"
    assert "ana" not in [note["actor"] for note in house.audit(f"item:{item_id}") if note["action"] == "item.edited"]


def test_what_is_over_cannot_be_edited_or_cancelled(house: House) -> None:
    item_id = house.put(at=None)
    house.world.run()
    assert house.ana.patch(f"/api/items/{item_id}", json={"rank": 1}).status_code == 409
    assert house.ana.post(f"/api/items/{item_id}/cancel").status_code == 409


def test_an_item_is_cancelled_with_a_reason_and_retried_at_a_time(house: House) -> None:
    item_id = house.put()
    assert house.ana.post(f"/api/items/{item_id}/cancel", json={"reason": "twice"}).json() == {"ids": [item_id]}
    assert house.audit(f"item:{item_id}")[0]["details"] == {"reason": "twice"}
    assert house.ana.post(f"/api/items/{item_id}/retry", json={"at": LATER}).status_code == 200
    shown = house.ana.get(f"/api/items/{item_id}").json()
    assert (shown["state"], shown["dueAt"]) == ("waiting", LATER.replace("+00:00", "Z"))


# -- schedules


def test_a_schedule_is_paused_resumed_run_and_removed(house: House) -> None:
    new = {"task": "echo", "key": "k", "rule": "daily 09:00", "zone": "Europe/Zagreb", "args": {"text": "x"}}
    url = f"/api/schedules/{house.ana.post('/api/schedules', json=new).json()['id']}"
    assert house.ana.post(f"{url}/pause").json()["state"] == "paused"
    assert [row["key"] for row in house.ana.get("/api/schedules", params={"state": "paused"}).json()["items"]] == ["k"]
    assert house.ana.post(f"{url}/resume").json()["state"] == "active"
    assert house.ana.post(f"{url}/run", headers=keyed("once")).status_code == 200
    assert house.ana.post(f"{url}/run", headers=keyed("once")).status_code == 200
    assert items(house.app) == 1
    assert house.ana.post(f"{url}/dance").status_code == 422
    assert house.ana.patch(url, json={}).status_code == 422
    assert house.ana.patch(url, json={"rule": "daily 10:00"}).json()["rule"] == "daily 10:00"
    assert house.ana.delete(url).status_code == 204
    assert house.ana.get(url).status_code == 404


def test_a_schedule_tells_its_story_to_its_owner_without_its_secrets(house: House) -> None:
    new = {"task": "echo", "key": "k", "rule": "daily 09:00", "args": {"text": "x", "password": "hunter2"}}
    made = house.ana.post("/api/schedules", json=new).json()
    url = f"/api/schedules/{made['id']}"
    house.ana.patch(url, json={"args": {"text": "y", "password": "hunter3"}})
    house.ana.post(f"{url}/run")
    told = house.ana.get(url, params={"ahead": "2"})
    assert told.json()["next"] == ["2026-12-01T09:00:00Z", "2026-12-02T09:00:00Z"]
    assert [item["state"] for item in told.json()["items"]] == ["waiting"]
    run, changed, created = told.json()["audit"]
    assert [note["action"] for note in (run, changed, created)] == [
        "schedule.run_now", "schedule.changed", "schedule.created",
    ]  # fmt: skip
    assert changed["details"]["after"]["args"] == {"text": "y", "password": "***"}
    for answer in (told, house.root.get("/api/audit")):
        assert "hunter" not in answer.text
    house.ana.post(f"{url}/pause")
    told = house.ana.get(url).json()
    assert (told["next"], told["pausedAt"], told["brokenAt"]) == ([], "2026-12-01T08:00:00Z", None)


def test_members_of_a_ring_are_found_by_it(house: House) -> None:
    for key, rule in (("a", "slots 24"), ("b", "daily 09:00")):
        house.ana.post("/api/schedules", json={"task": "echo", "key": key, "rule": rule, "args": {"text": "x"}})
    found = house.ana.get("/api/schedules", params={"ring": "echo"}).json()["items"]
    assert [row["key"] for row in found] == ["a"]
    assert house.ana.get("/api/schedules", params={"ring": "none"}).json()["items"] == []


def test_a_rule_is_explained_before_it_is_used(house: House) -> None:
    told = house.ana.post("/api/schedules/preview", json={"rule": "daily 09:00", "zone": "Europe/Zagreb", "n": 2})
    assert told.json()["next"] == ["2026-12-02T08:00:00Z", "2026-12-03T08:00:00Z"]
    for field, asked in (("rule", {"rule": "sometimes"}), ("zone", {"rule": "daily 09:00", "zone": "Mars"})):
        answer = house.ana.post("/api/schedules/preview", json=asked)
        assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_slots_are_seats_and_their_number_must_be_one(house: House) -> None:
    new = {"task": "echo", "key": "k", "rule": "slots 24", "args": {"text": "x"}}
    made = house.ana.post("/api/schedules", json=new).json()
    assert (made["ring"], made["slot"]) == ("echo", 0)
    assert house.root.get("/api/slots", params={"ring": "echo"}).json() == [{"ring": "echo", "slot": 0, "members": 1}]
    assert house.root.get("/api/slots/echo/rebalance").json() == []
    for rule in ("slots 0", "slots 9999999"):
        assert house.ana.post("/api/schedules", json={**new, "rule": rule}).status_code == 422


# -- queues and limits


def test_an_admin_pauses_a_queue_and_sets_a_limit_and_both_are_audited(house: House) -> None:
    house.put(at=None)
    assert house.root.post("/api/queues/echo/pause").status_code == 204
    assert house.world.run() == 0
    assert [queue["paused"] for queue in house.root.get("/api/queues").json()["items"]] == [True]
    house.root.post("/api/queues/echo/resume")
    assert house.world.run() == 1
    assert house.root.put("/api/limits/boeing", json={"limit": "3/1m"}).status_code == 204
    assert [limit["most"] for limit in house.root.get("/api/limits").json()["items"]] == [3]
    assert house.root.put("/api/limits/boeing", json={"limit": "often"}).json()["field"] == "limit"
    assert house.root.delete("/api/limits/boeing").status_code == 204
    done = [note["action"] for note in house.audit() if note["actor"] == "root"]
    assert done[:4] == ["limit.set", "limit.set", "queue.resumed", "queue.paused"]


def test_a_queue_that_nothing_has_the_name_of_is_paused_and_told_so(house: House) -> None:
    answer = house.root.post("/api/queues/nosuch/pause")
    assert (answer.status_code, answer.json()) == (
        200, {"note": "there is no queue nosuch yet: items put into it will wait"},
    )  # fmt: skip
    assert [queue["paused"] for queue in house.root.get("/api/queues").json()["items"]] == [True]
    assert house.root.post("/api/queues/nosuch/resume").status_code == 204


# -- review


def test_failures_are_grouped_noted_and_tried_by_one(house: House) -> None:
    first, second = house.fail(text="broken 1"), house.fail(text="broken 2")
    other = house.fail(house.bob, "broken 3")
    (group,) = house.ana.get("/api/review").json()["items"]
    assert (group["items"], group["sample"]) == (2, second)
    assert [each["items"] for each in house.root.get("/api/review").json()["items"]] == [3]
    url = f"/api/review/{group['id']}"
    assert house.ana.post(f"{url}/notes", json={"text": "mine"}).status_code == 201
    assert house.bob.post(f"{url}/notes", json={"text": "theirs"}).status_code == 201
    told = house.ana.get(url).json()
    assert [note["text"] for note in told["notes"]] == ["mine"]
    assert "broken" in told["error"]
    assert {note["text"] for note in house.root.get(url).json()["notes"]} == {"mine", "theirs"}
    assert house.ana.post(f"{url}/canary").json() == {"ids": [second]}
    states = [house.world.item(each).state for each in (first, second, other)]
    assert states == ["failed", "waiting", "failed"]
    assert [note["action"] for note in house.audit() if note["actor"] == "ana"][:2] == ["review.canary", "review.noted"]


# -- who comes in


@pytest.fixture
def browser(house: House) -> TestClient:
    house.app.internals.verbs.users.change(LOCAL, "ana", password=PASSWORD)
    return house.client(base_url="https://127.0.0.1")


def sign_in(browser: TestClient, **more: Any) -> Any:
    return browser.post("/api/session", json={"userId": "ana", "password": PASSWORD, **more})


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(house: House, browser: TestClient) -> None:
    answer = sign_in(browser)
    name, *flags = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert name.startswith("__Host-duly=")
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=strict", "Max-Age=43200"} == set(flags)
    me = browser.get("/api/me").json()
    assert me == {"userId": "ana", "role": "user", "scopes": ["read", "write"], "via": "session"}
    assert browser.delete("/api/session").status_code == 204
    browser.cookies.set("__Host-duly", name.partition("=")[2])
    assert browser.get("/api/me").status_code == 401
    assert [note["action"] for note in house.audit("user:ana")][:2] == ["user.signed_out", "user.signed_in"]


def test_sessions_end_with_time_with_a_new_password_and_with_a_shut_door(house: House, browser: TestClient) -> None:
    sign_in(browser)
    house.clock.set(START + timedelta(hours=12))
    assert browser.get("/api/me").status_code == 401
    sign_in(browser)
    house.root.patch("/api/users/ana", json={"password": PASSWORD})
    assert browser.get("/api/me").status_code == 401
    sign_in(browser)
    house.root.patch("/api/users/ana", json={"disabled": True})
    assert browser.get("/api/me").status_code == 401
    assert sign_in(browser).status_code == 401
    assert house.ana.get("/api/me").status_code == 401
    house.root.patch("/api/users/ana", json={"disabled": False})
    assert house.ana.get("/api/me").status_code == 200


def test_wrong_passwords_and_unknown_users_are_told_the_same(house: House, browser: TestClient) -> None:
    answers = [
        sign_in(browser, password="wrong horse"),
        sign_in(browser, userId="nobody"),
        sign_in(browser, userId="bob"),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert all("set-cookie" not in answer.headers for answer in answers)


def test_signing_in_has_a_rate(house: House, browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "SIGN_INS", 2)
    assert [sign_in(browser, password="wrong horse").status_code for _ in range(2)] == [401, 401]
    answer = sign_in(browser)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= auth.SIGN_IN_WINDOW + 1
    monkeypatch.setattr(auth, "SIGN_IN_WINDOW", 0.0)
    assert sign_in(browser).status_code == 204


def test_people_behind_one_proxy_do_not_keep_each_other_out(
    house: House, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "SIGN_INS", 2)
    assert [sign_in(browser).status_code for _ in range(5)] == [204] * 5


def test_a_refused_sign_in_is_in_the_log_without_the_password(
    house: House, browser: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    sign_in(browser, password="wrong horse")
    assert [record.getMessage() for record in caplog.records if record.name == "duly.web"] == [
        "rejected a sign-in as 'ana' from testclient"
    ]


def test_tries_that_were_refused_do_not_push_others_out_of_memory(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED", 20)
    gate = auth.Authenticator(house.app.internals.verbs.users, is_local=False)
    for n in range(10):
        gate.count_sign_in(f"user {n}", "from here")
    for n in range(10, 100):
        with pytest.raises(Problem):
            gate.count_sign_in(f"user {n}", "from here")
    for n in range(100, 200):
        gate.count_sign_in(f"user {n}", f"from {n}")
    assert len(gate._tries) == 20


def test_a_request_of_another_site_is_refused(house: House, browser: TestClient) -> None:
    sign_in(browser)
    local = house.local()
    for client, host in ((browser, "127.0.0.1"), (local, "127.0.0.1")):
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 201),
            ({"Sec-Fetch-Site": "none"}, 201),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"https://{host}"}, 201),
            ({}, 201),
        ):
            assert client.post("/api/items", json=NEW, headers=headers).status_code == status, headers
        assert client.get("/api/items", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    # A page cannot send somebody's key, so a program that has it may come from anywhere.
    assert house.ana.post("/api/items", json=NEW, headers={"Origin": "https://a.example"}).status_code == 201
    assert sign_in(browser).status_code == 204
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert browser.post("/api/session", json={"userId": "ana", "password": PASSWORD}, headers=cross).status_code == 403
    assert browser.delete("/api/session", headers=cross).status_code == 403


def test_keys_are_shown_once_kept_as_hashes_and_can_be_revoked(house: House) -> None:
    made = house.ana.post("/api/keys", json={"name": "shop", "scopes": ["read"]}).json()
    secret = made["secret"]
    assert secret.startswith(f"duly_{made['id']}_")
    assert "secret" not in house.ana.get("/api/keys").json()["items"][0]
    assert secret.removeprefix(f"duly_{made['id']}_") not in str(
        query(house.app.internals.store, "select * from duly_key")
    )
    shop = house.client(secret)
    assert shop.get("/api/me").json()["scopes"] == ["read"]
    assert house.bob.delete(f"/api/keys/{made['id']}").status_code == 404
    revoked = house.ana.delete(f"/api/keys/{made['id']}").json()
    assert revoked["revokedAt"] is not None
    assert shop.get("/api/me").status_code == 401
    assert house.client(secret[:-1] + "x").get("/api/me").status_code == 401


def test_a_key_does_what_its_scopes_say(house: House) -> None:
    reader, writer = house.key("root", "read"), house.key("root", "write")
    assert reader.get("/api/items").status_code == 200
    assert reader.post("/api/items", json=NEW).json()["detail"] == "needs the scope write"
    assert writer.get("/api/items").status_code == 403
    assert reader.get("/api/users").status_code == 403
    # An admin's key without that scope is a user's: of their own rows only.
    house.put()
    assert reader.get("/api/items").json()["items"] == []
    assert reader.get("/api/items", params={"userId": "all"}).status_code == 403
    assert reader.get("/metrics").status_code == 200


def test_a_key_ends_when_it_says(house: House) -> None:
    client = house.key("ana", "read", "write", expires_at=START + timedelta(hours=1))
    assert client.get("/api/me").status_code == 200
    house.clock.set(START + timedelta(hours=1))
    assert client.get("/api/me").status_code == 401


def test_a_key_cannot_make_a_stronger_key(house: House) -> None:
    writer = house.key("root", "write", expires_at=START + timedelta(hours=1))
    for new, field in (
        ({"name": "x", "scopes": ["read", "write"]}, "scopes"),
        ({"name": "x", "scopes": ["admin"]}, "scopes"),
        ({"name": "x", "scopes": ["write"]}, "expiresAt"),
        ({"name": "x", "scopes": ["write"], "expiresAt": LATER}, "expiresAt"),
        ({"name": "x", "scopes": ["write"], "userId": "ana"}, "userId"),
    ):
        answer = writer.post("/api/keys", json=new)
        assert (answer.status_code, answer.json()["field"]) == (403, field)
    shorter = {"name": "x", "scopes": ["write"], "expiresAt": "2026-12-01T08:30:00Z"}
    assert writer.post("/api/keys", json=shorter).status_code == 201
    assert house.root.post("/api/keys", json={"name": "x", "scopes": ["admin"], "userId": "ana"}).status_code == 422


def test_last_use_of_a_key_is_known_to_the_minute(house: House) -> None:
    (key,) = house.app.internals.verbs.users.keys(LOCAL, "ana")
    house.ana.get("/api/me")
    first = house.app.internals.verbs.users.key(LOCAL, key.id).last_used_at
    house.clock.set(START + timedelta(seconds=30))
    house.ana.get("/api/me")
    assert house.app.internals.verbs.users.key(LOCAL, key.id).last_used_at == first == START
    house.clock.set(START + timedelta(minutes=2))
    house.ana.get("/api/me")
    assert house.app.internals.verbs.users.key(LOCAL, key.id).last_used_at == START + timedelta(minutes=2)


def test_users_are_made_changed_and_known_by_themselves(house: House) -> None:
    assert house.root.post("/api/users", json={"id": "zoe", "password": PASSWORD}).json()["hasPassword"]
    assert house.root.post("/api/users", json={"id": "zoe"}).status_code == 409
    for bad in ({"id": "me"}, {"id": "code"}, {"id": "a b"}, {"id": "a/b"}, {"id": "x", "password": "short"}):
        assert house.root.post("/api/users", json=bad).status_code == 422
    assert house.root.patch("/api/users/zoe", json={"role": "admin"}).json()["role"] == "admin"
    assert house.ana.get("/api/users/ana").json()["id"] == "ana"
    assert house.root.patch("/api/users/nobody", json={"role": "admin"}).status_code == 404


def test_on_loopback_the_local_admin_needs_no_sign_in(house: House) -> None:
    local = house.local()
    assert local.get("/api/me").json() == {
        "userId": "local", "role": "admin", "scopes": ["read", "write", "admin"], "via": "local",
    }  # fmt: skip
    item_id = house.put()
    assert local.get(f"/api/items/{item_id}").json()["owner"] == "ana"
    assert local.post("/api/keys", json={"name": "x"}).json()["field"] == "userId"
    # Whoever shows a key or a session is taken at their word.
    as_ana = {"Authorization": f"Bearer {house.secrets['ana']}"}
    assert local.get("/api/me", headers=as_ana).json()["userId"] == "ana"
    assert local.get("/api/me", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert local.get("/api/me", headers={"Cookie": "__Host-duly=wrong"}).json()["userId"] == "local"


def test_a_name_that_was_made_to_point_here_is_refused(house: House) -> None:
    local = house.local()
    for host, status in (
        ("127.0.0.1:8086", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:8086", 200), ("127.8.9.1", 200),
        ("evil.example", 403), ("evil.example:8086", 403), ("192.168.0.1", 403), ("", 403), ("[::2]", 403),
    ):  # fmt: skip
        assert local.get("/api/items", headers={"Host": host}).status_code == status, host
    assert house.ana.get("/api/items", headers={"Host": "duly.example"}).status_code == 200
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "duly.example")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_away_from_loopback_it_wants_someone_who_could_sign_in(database_url: str) -> None:
    app = build(database_url)
    with pytest.raises(ConfigError, match="no user can sign in"):
        create_api(app, "0.0.0.0")
    app.internals.verbs.users.create(LOCAL, "ana")
    with pytest.raises(ConfigError, match="duly users add"):
        create_api(app, "0.0.0.0")
    key, _ = app.internals.verbs.users.make_key(LOCAL, "ana", "k")
    create_api(app, "0.0.0.0")
    app.internals.verbs.users.revoke_key(LOCAL, key.id)
    with pytest.raises(ConfigError):
        create_api(app, "::")
    app.internals.verbs.users.change(LOCAL, "ana", password=PASSWORD)
    create_api(app, "::")
    app.close()


# -- limits and headers


def test_every_answer_has_the_headers(house: House) -> None:
    answers = [
        house.ana.get("/api/items"), house.nobody.get("/api/items"), house.ana.get("/nowhere"),
        house.ana.post("/api/items", content=b"{", headers={"Content-Type": "application/json"}),
        house.ana.request("BREW", "/api/items"), house.nobody.get("/healthz"),
        house.local().get("/api/me", headers={"Host": "evil.example"}),
        house.ana.post("/api/items", content=b"a=b"), house.ana.get("/api/items/", follow_redirects=False),
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [200, 401, 404, 422, 405, 200, 403, 415, 404]
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
    assert answers[0].headers["cache-control"] == "no-store"
    assert answers[1].headers["www-authenticate"] == "Bearer"


def test_what_nobody_expected_is_told_without_details(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(Audit, "note", broken)
    answer = house.ana.post("/api/items", json=NEW)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "hunter2" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (StoreUnavailable("someone:secret@there"), 503, "The database cannot be reached"),
        (NotMigrated("someone:secret@there"), 503, "The database is not migrated"),
        (StoreError("someone:secret@there"), 500, "Internal error"),
    ],
)
def test_trouble_with_the_database_does_not_tell_where_it_is(
    house: House, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, title: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Audit, "note", broken)
    answer = house.ana.post("/api/items", json=NEW)
    assert (answer.status_code, answer.json()["title"]) == (status, title)
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_body_has_a_limit_whether_or_not_it_says_its_length(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "BODY_LIMIT", 1_000)
    kind = {"Content-Type": "application/json"}
    assert house.ana.post("/api/items", content=b"x" * 1_001, headers=kind).status_code == 413

    answer = house.ana.post("/api/items", content=iter([b"x" * 999, b"xx"]), headers=kind)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    assert house.ana.post("/api/items", content=iter([b"a=b"])).status_code == 415
    assert house.ana.post("/api/items", content=b"{}", headers={**kind, "Content-Length": "9" * 40}).status_code == 413
    assert house.ana.post("/api/items", content=b"{}", headers={**kind, "Content-Length": "x"}).status_code == 400


def test_arguments_have_a_depth_and_a_size(house: House) -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    answer = house.ana.post("/api/items", json={"task": "echo", "args": deep})
    assert answer.json()["detail"] == "a: must not be nested more than 100 levels deep"
    answer = house.ana.post("/api/items", json={"task": "echo", "args": {"text": "x", "a": deep["a"]["a"]}})
    assert "nested" not in answer.json()["detail"]
    large = {"task": "echo", "args": {"text": "x" * 1_500_000}}
    assert house.ana.post("/api/items", json=large).json()["field"] == "text"


def test_a_request_that_takes_too_long_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def forever(*_: Any, **__: Any) -> None:
        over.wait(60)

    monkeypatch.setattr(rooms, "TIME_LIMIT", 0.05)
    monkeypatch.setattr(desk.AskedPage, "walk", forever)
    answer = house.ana.get("/api/items")
    over.set()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.headers["x-content-type-options"] == "nosniff"


# -- probes and metrics


def test_a_service_is_ready_when_its_database_is(blank_url: str) -> None:
    app = Duly(blank_url)
    if blank_url.startswith("sqlite"):
        # An embedded one is migrated by whoever opens it first.
        app.internals.database._store = app.internals.database._open()
    with TestClient(create_api(app), base_url="http://127.0.0.1") as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (503, "the database is not migrated")
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/items").status_code == 503
        app.migrate()
        assert client.get("/readyz").text == "ready"
        assert client.get("/api/items").status_code == 200
    app.close()


def test_why_a_service_is_not_ready_is_told_in_few_words(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, reason in (
        (StoreUnavailable("someone:secret@there"), "the database does not answer"),
        (StoreError("someone:secret@there"), "the database rejects queries"),
    ):

        def broken(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(house.app, "check", broken)
        assert house.nobody.get("/readyz").json()["detail"] == reason
    monkeypatch.setattr(house.app, "check", lambda: None)
    ailing = house.client(api=create_api(house.app, ailing=lambda: "the worker hangs"))
    for probe in ("/readyz", "/healthz"):
        answer = ailing.get(probe)
        assert (answer.status_code, answer.json()["detail"]) == (503, "the worker hangs")


def test_metrics_are_for_prometheus_and_admins(house: House) -> None:
    house.put()
    assert "duly_" in house.root.get("/metrics").text
    assert house.local().get("/metrics").headers["content-type"].startswith("text/plain")
    assert house.ana.get("/metrics").status_code == 403


# -- history


def test_history_over_http_is_for_admins_and_that_of_a_job_for_its_owner(house: House) -> None:
    job = house.app.job("echo", [{"text": "a"}], owner="ana")
    house.world.run()
    Historian(house.app.internals.store, house.app.internals.telemetry, house.app.settings, {}, list).write(
        house.clock.now()
    )
    chart = house.root.get("/api/history", params={"minutes": 60, "task": "echo", "measure": "done"}).json()
    assert chart["stepSeconds"] == 10
    assert chart["to"] > chart["from"]
    assert [(each["task"], each["measure"], each["points"][0][1]) for each in chart["series"]] == [("echo", "done", 1)]
    for client, status in ((house.ana, 200), (house.root, 200), (house.bob, 404)):
        answer = client.get("/api/history", params={"job": job.id})
        assert answer.status_code == status
        if status == 200:
            rate = next(each for each in answer.json()["series"] if each["measure"] == "rate")
            assert (rate["kind"], rate["task"], rate["subject"]) == ("job", None, str(job.id))
    assert house.ana.get("/api/history").status_code == 403
    for wrong in ({"minutes": "0"}, {"minutes": "20161"}, {"measure": "speed"}, {"task": "echo", "job": "1"}):
        assert house.root.get("/api/history", params=wrong).status_code == 422, wrong


# -- streams


class Ears:
    """Listens to the stream as a server would let someone, without a socket."""

    def __init__(self, house: House, name: str, after: int) -> None:
        headers = [(b"authorization", f"Bearer {house.secrets[name]}".encode())]
        self._request = rooms.Request({"type": "http", "method": "GET", "app": house.api, "headers": headers})
        self._principal = house.api.state.authenticator.who(self._request)
        self._listener = Listener(feed_of(house.api.state), None if name == "root" else name, after)

    def hear(self, most: int, then: Any = None) -> list[dict[str, str]]:
        async def listen() -> list[dict[str, str]]:
            heard: list[dict[str, str]] = []
            async for text in live._stream(self._request, self._principal, self._listener):
                heard.append(dict(line.split(": ", 1) for line in text.strip().split("\n")))
                if then is not None:
                    await asyncio.to_thread(then, len(heard))
                if len(heard) == most:
                    break
            return heard

        return asyncio.run(listen())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.02)


def last(house: House) -> int:
    return int(house.app.internals.store.read("audit_last", {})[0][0])


@pytest.mark.usefixtures("quick")
def test_what_people_do_is_heard_as_it_happens_and_a_stream_goes_on_where_it_broke(house: House) -> None:
    start = last(house)

    def act(heard: int) -> None:
        if heard == 2:
            house.put()
            house.put(house.bob)

    first, depths, *said = Ears(house, "root", start).hear(4, act)
    assert (first["id"], depths["event"]) == (str(start), "queues")
    assert [(each["event"], json.loads(each["data"])["actor"]) for each in said] == [("audit", "ana"), ("audit", "bob")]
    _, again = Ears(house, "root", int(said[0]["id"])).hear(2)
    assert again == said[1]


@pytest.mark.usefixtures("quick")
def test_a_user_hears_of_their_own_acts_only_and_however_busy_others_are(house: House) -> None:
    start = last(house)
    for _ in range(120):
        house.app.internals.verbs.audit.note(local("bob"), "item.put", "item:1", {})
    house.put()
    heard = [each for each in Ears(house, "ana", start).hear(3) if each.get("event") == "audit"]
    assert [json.loads(each["data"])["actor"] for each in heard] == ["ana"]


@pytest.mark.usefixtures("quick")
def test_a_quiet_stream_says_that_it_lives_and_ends_with_the_service(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUIET", 0.04)

    def close(heard: int) -> None:
        if heard == 3:
            house.api.state.closing.set()

    heard = Ears(house, "root", last(house)).hear(100, close)
    assert len(heard) == 3
    assert house.api.state.streams == 0


@pytest.mark.usefixtures("quick")
def test_a_stream_ends_for_who_was_shut_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CHECKED", 0.04)
    (key,) = house.app.internals.verbs.users.keys(LOCAL, "ana")

    def revoke(heard: int) -> None:
        if heard == 2:
            house.app.internals.verbs.users.revoke_key(LOCAL, key.id)
            house.app.internals.verbs.audit.note(local("ana"), "item.put", "item:1", {})

    heard = Ears(house, "ana", last(house)).hear(100, revoke)
    assert [each.get("event") for each in heard] in ([None, "queues"], [None, "queues", "audit"])
    assert house.api.state.streams == 0


def test_a_stream_over_http_begins_where_it_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.api.state.closing.set()
    answer = house.ana.get("/api/events", headers={"Last-Event-ID": "7"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == "retry: 2000\nid: 7\n\n"
    first = house.ana.get("/api/events").text
    assert first.startswith("retry: 2000\nid: ")
    assert int(first.split()[-1]) <= last(house)
    assert house.ana.get("/api/events", headers={"Last-Event-ID": "x"}).status_code == 422
    monkeypatch.setattr(live, "STREAMS", 0)
    assert house.ana.get("/api/events").status_code == 429


def test_who_comes_through_a_proxy_on_this_host_is_not_the_local_admin(house: House) -> None:
    local = house.local()
    assert local.get("/api/me").status_code == 200
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert local.get("/api/me", headers={header: "203.0.113.9"}).status_code == 401, header


def test_a_path_of_an_app_that_is_not_served_says_so(house: House) -> None:
    answer = house.ana.get("/api/elsewhere")
    assert answer.status_code == 404
    assert "nothing at /api/elsewhere" in answer.json()["detail"]
    assert "`apps`" in answer.json()["detail"]


def test_a_key_with_the_scope_admin_reads_and_writes_as_long_as_its_user_is_an_admin(house: House) -> None:
    _, secret = house.app.internals.verbs.users.make_key(LOCAL, "root", "all", ("admin",))
    only_admin = house.client(secret)
    assert only_admin.get("/api/me").json()["scopes"] == ["read", "write", "admin"]
    assert only_admin.get("/api/items").status_code == 200
    assert only_admin.post("/api/queues/ring/pause").status_code < 300
    assert only_admin.post("/api/keys", json={"name": "less", "scopes": ["read"]}).status_code == 201
    house.app.internals.verbs.users.change(LOCAL, "root", role="user")
    assert only_admin.get("/api/items").status_code == 403


def test_unknown_query_parameters_are_refused_by_name(house: House) -> None:
    """A filter with a misspelt name would be answered with everything."""
    for url, name in (
        ("/api/items?stat=failed", "stat"),
        ("/api/items?state=failed&userID=ana", "userID"),
        ("/api/schedules?taks=ring", "taks"),
        ("/api/me?x=1", "x"),
    ):
        answer = house.root.get(url)
        assert answer.status_code == 422, url
        assert answer.json()["field"] == name
        assert "is not a parameter of this path; known: " in answer.json()["detail"]
    assert house.root.post("/api/queues/ring/pause?now=1").status_code == 422
    assert house.root.get("/metrics?from=prometheus").status_code == 200
    assert house.root.get("/api/items?state=failed&pageSize=5&userId=all").status_code == 200
