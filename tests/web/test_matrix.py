"""Every operation of the API times everyone who may ask: nobody sees, changes or learns of another's rows.

The operations come from the OpenAPI document; each has a recipe here, and one without a recipe fails the suite.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import pytest
from fastapi.routing import APIRoute

from duly.core.decide import Rules
from duly.core.model import Failed
from duly.verbs import LOCAL
from duly.web.api import create_api
from duly.web.dashboard import SIGN_IN, screens
from tests.support import claim, decided, share
from tests.web.conftest import LATER, House, TestClient, build

MARK = "zz-marker-7f3a"  # in everything that Ana has: nobody else may read it
ARGS = {"text": MARK, "password": MARK}


NUMBERS = count()


class Ask(NamedTuple):
    """What to ask, about rows of Ana's that were made for it."""

    path: Mapping[str, Any] = {}
    body: Any = None
    query: Mapping[str, str] = {}
    files: Any = None


class Recipe(NamedTuple):
    """How to ask, and what everybody is answered."""

    make: Callable[[House], Ask]
    owner: int = 200
    other: int = 404
    admin: int = 200
    anonymous: int = 401
    is_quiet: bool = False  # leaves no line in the audit log
    whose: Mapping[str, str] = {}  # what an admin adds to mean Ana's


def item(house: House, **more: Any) -> int:
    return house.put(args=ARGS, **more)


def failed(house: House) -> int:
    return house.fail(text=f"broken {MARK}")


def selection(house: House) -> Ask:
    """An item of Ana's: others select it in vain, and are not told that it is there."""
    return Ask(body={"action": "cancel", "ids": [item(house)]})


def schedules_selected(house: House) -> Ask:
    return Ask(body={"action": "pause", "ids": [schedule(house)]})


def group(house: House) -> str:
    return house.group(failed(house))


def noted_group(house: House) -> str:
    found = group(house)
    house.ana.post(f"/api/review/{found}/notes", json={"text": MARK})
    return found


def schedule(house: House) -> int:
    new = {"task": "echo", "key": f"{MARK} {next(NUMBERS)}", "rule": "daily 02:30", "args": ARGS}
    return int(house.ana.post("/api/schedules", json=new).json()["id"])


def reminder(house: House) -> int:
    new = {"phone": "+385 1 234", "message": MARK, "at": LATER}
    return int(house.ana.post("/api/reminders", json=new).json()["id"])


def message(house: House) -> int:
    """Of nobody: only admins look after what comes from a broker."""
    args = {"payload": b64encode(MARK.encode()).decode(), "queue": "orders"}
    return house.app.task_named("message_retry").at(LATER).put(**args).id


def product(house: House) -> str:
    house.ana.post("/api/products", json={"sku": "box/1"})
    return "box/1"


def imported(house: House) -> Ask:
    return Ask(body={"products": [{"sku": f"moved {next(NUMBERS)}", "hourBucket": 3, "lastPrice": "19.99"}]})


def broken(house: House) -> str:
    """A product of Ana's that was deactivated after failures in a row."""
    sku = f"broken/{next(NUMBERS)}"
    made, now = house.ana.post("/api/products", json={"sku": sku}).json()["id"], house.clock.now()
    house.app.schedules.run_now(made)
    (item,) = claim(house.app.internals.store, share("catalog", task="catalog.sync", owner="ana"), now=now)
    failed = Failed(f"Refused: {MARK}", ("Refused",))
    assert house.app.internals.store.settle([decided(item, failed, now, Rules(breaker=1))]) == []
    return sku


def all_broken(house: House) -> Ask:
    """One product of Ana's that is deactivated, and no more."""
    if not house.app.schedules.causes("ana", "catalog.sync"):
        broken(house)
    return Ask(body={"cause": "Refused"})


PERSON = {"id": "friend", "firstName": MARK, "lastName": "Horvat", "birthday": "03-15", "zone": "Europe/Zagreb"}


def person(house: House) -> str:
    house.ana.delete("/api/people/friend")
    assert house.ana.post("/api/people", json=PERSON).status_code == 201
    return "friend"


def act(house: House) -> int:
    item(house)
    new = {"action": "cancel", "filter": {"state": "waiting"}, "reason": MARK}
    return int(house.ana.post("/api/acts", json=new).json()["id"])


def job(house: House) -> int:
    return house.app.job("echo", [ARGS], owner="ana").id


def exported(house: House) -> Ask:
    return Ask({"job_id": job(house)}, query={"format": "csv"})


def sent(house: House) -> Ask:
    return Ask(files={"file": ("texts.csv", "text\nhello\n")})


def mended(house: House) -> Ask:
    """A job of Ana's with a row in error, and that row as it should be."""
    made = house.ana.post("/api/jobs", files={"file": ("texts.csv", "text\nbroken\n")}).json()["jobId"]
    house.world.run()
    return Ask({"job_id": made}, files={"file": ("mended.csv", "duly row,text\n1,hello\n")})


def refused_row(house: House) -> Ask:
    """A job of Ana's with a row in error."""
    return Ask({**mended(house).path, "row": 1})


def mended_row(house: House) -> Ask:
    return Ask(refused_row(house).path, {"values": {"text": f"hello {MARK}"}})


def key(house: House) -> str:
    return str(house.ana.post("/api/keys", json={"name": MARK}).json()["id"])


def user(house: House) -> str:
    name = f"user-{len(house.app.internals.verbs.users.page(LOCAL))}"
    house.app.internals.verbs.users.create(LOCAL, name)
    return name


def everything(house: House) -> Ask:
    """For lists: something of each kind."""
    if house.app.internals.verbs.users.keys(LOCAL, "ana")[1:]:
        return Ask()  # there already
    for plant in (item, noted_group, schedule, reminder, message, product, person, act, job, key):
        plant(house)
    return Ask()


def path(**made: Callable[[House], Any]) -> Callable[[House], Ask]:
    return lambda house: Ask({name: make(house) for name, make in made.items()})


def body(value: Any, **made: Callable[[House], Any]) -> Callable[[House], Ask]:
    return lambda house: Ask({name: make(house) for name, make in made.items()}, value)


def fixed(value: str) -> Callable[[House], str]:
    return lambda _: value


def fresh_user(house: House) -> Ask:
    return Ask(body={"id": f"new-{len(house.app.internals.verbs.users.page(LOCAL))}", "password": "correct horse"})


def for_all(status: int) -> dict[str, int]:
    return {"owner": status, "other": status, "admin": status}


LIST = for_all(200)
ADMINS = {"owner": 403, "other": 403}

RECIPES: dict[str, Recipe] = {
    # items
    "put_item": Recipe(body({"task": "echo", "args": ARGS}), **for_all(201)),
    "list_items": Recipe(everything, **LIST),
    "show_item": Recipe(path(item_id=item)),
    "edit_item": Recipe(body({"rank": 5}, item_id=item)),
    "cancel_item": Recipe(body({"reason": "no more"}, item_id=item)),
    "retry_item": Recipe(path(item_id=failed)),
    "discard_item": Recipe(path(item_id=failed)),
    "put_item_again": Recipe(path(item_id=failed), owner=201, admin=201),
    "act_on_items": Recipe(selection),
    "count_items": Recipe(everything, **LIST),
    "retask_items": Recipe(body({"old": "ech", "new": "echo"}), **LIST, is_quiet=True),
    "list_tasks": Recipe(everything, **LIST),
    # jobs
    # With a file of one's own; one that was dropped somewhere may be named by admins only (tests/web/test_jobs.py).
    "create_job": Recipe(sent, **for_all(201)),
    "preview_job": Recipe(sent, **for_all(200), is_quiet=True),
    "mend_job": Recipe(mended),
    "list_job_types": Recipe(path(), **LIST),
    "show_refused_row": Recipe(refused_row),
    "mend_row_of_job": Recipe(mended_row),
    "scan_sources": Recipe(path(), **ADMINS),
    "list_jobs": Recipe(everything, **LIST),
    "show_job": Recipe(path(job_id=job)),
    "list_job_items": Recipe(path(job_id=job)),
    "list_pending": Recipe(everything, **LIST),
    "count_pending": Recipe(everything, **LIST),
    "count_job_items": Recipe(path(job_id=job)),
    "pause_job": Recipe(path(job_id=job)),
    "resume_job": Recipe(path(job_id=job)),
    "kick_off_job": Recipe(path(job_id=job), is_quiet=False),
    "cancel_job": Recipe(body({"reason": "no more"}, job_id=job)),
    "reprocess_job": Recipe(path(job_id=job)),
    "check_job": Recipe(path(job_id=job), is_quiet=True),
    "remove_job": Recipe(path(job_id=job), owner=204, admin=204),
    "export_job": Recipe(exported, is_quiet=True),
    "download_job": Recipe(exported),
    "download_rejects": Recipe(exported),
    # schedules
    "create_schedule": Recipe(body({"task": "echo", "key": "k", "rule": "every 1h", "args": ARGS}), **for_all(201)),
    "list_schedules": Recipe(everything, **LIST),
    "preview_rule": Recipe(body({"rule": "daily 09:00"}), **for_all(200), is_quiet=True),
    "show_schedule": Recipe(path(schedule_id=schedule)),
    "change_schedule": Recipe(body({"rule": "daily 03:30"}, schedule_id=schedule)),
    "remove_schedule": Recipe(path(schedule_id=schedule), owner=204, admin=204),
    "reactivate_schedules": Recipe(body({"cause": "busy"}), **for_all(200), is_quiet=True),
    "act_on_schedules": Recipe(schedules_selected),
    "act_on_schedule": Recipe(path(schedule_id=schedule, act=fixed("pause"))),
    "list_slots": Recipe(everything, **ADMINS),
    "preview_rebalance": Recipe(path(ring=fixed("catalog.sync")), **ADMINS),
    # queues
    "list_queues": Recipe(everything, **ADMINS),
    "act_on_queue": Recipe(path(name=fixed("http/acme"), act=fixed("pause")), **ADMINS, admin=200),
    "list_limits": Recipe(everything, **ADMINS),
    "set_limit": Recipe(body({"limit": "2/1m"}, name=fixed("boeing")), **ADMINS, admin=204),
    "clear_limit": Recipe(path(name=fixed("boeing")), **ADMINS, admin=204),
    "list_workers": Recipe(everything, **ADMINS),
    "list_alerts": Recipe(everything, **ADMINS),
    "alive": Recipe(everything, **ADMINS),
    "list_late": Recipe(everything, **ADMINS),
    "list_stuck": Recipe(everything, **ADMINS),
    "list_audit": Recipe(everything, **ADMINS),
    "now": Recipe(everything, **LIST),
    "history": Recipe(everything, **ADMINS),
    # review
    "list_groups": Recipe(everything, **LIST),
    "total_review": Recipe(everything, **LIST),
    "show_group": Recipe(path(group_id=noted_group)),
    "write_note": Recipe(body({"text": MARK}, group_id=group), owner=201, admin=201),
    "revive_canary": Recipe(path(group_id=group)),
    "count_rows": Recipe(body({"action": "retry", "filter": {}}), **LIST, is_quiet=True),
    "order_act": Recipe(body({"action": "cancel", "filter": {"state": "waiting"}}), **for_all(201)),
    "list_acts": Recipe(everything, **LIST),
    "show_act": Recipe(path(act_id=act)),
    "cancel_act": Recipe(path(act_id=act)),
    # the apps' own
    "schedule_reminder": Recipe(body({"phone": "+385 1 234", "message": MARK, "at": LATER}), **for_all(201)),
    "list_reminders": Recipe(everything, **LIST),
    "show_reminder": Recipe(path(reminder_id=reminder)),
    "edit_reminder": Recipe(body({"message": "later"}, reminder_id=reminder)),
    "cancel_reminder": Recipe(body({"reason": "no more"}, reminder_id=reminder)),
    "list_job_events": Recipe(path(job_id=job)),
    "list_messages": Recipe(everything, **LIST),
    "show_message": Recipe(path(item_id=message), owner=404),
    "edit_message": Recipe(body({"queue": "repair"}, item_id=message), owner=404),
    "send_message": Recipe(body({"payloadText": MARK}, item_id=message), owner=404),
    "download_payload": Recipe(path(item_id=message), owner=404),
    "show_drift": Recipe(everything, **LIST),
    "list_products": Recipe(everything, **LIST),
    "publish_product": Recipe(body({"sku": "box/1"}), **for_all(201)),
    "withdraw_product": Recipe(path(sku=product), owner=204, admin=204, whose={"userId": "ana"}),
    "import_products": Recipe(imported, **for_all(201)),
    "reactivate_product": Recipe(body({"syncNow": False}, sku=broken), whose={"userId": "ana"}),
    "reactivate_products": Recipe(all_broken, **LIST),
    "plan_catalog": Recipe(body({"products": 5_000}), **for_all(200), is_quiet=True),
    "show_catalog_day": Recipe(everything, **LIST),
    "add_person": Recipe(body(PERSON), **for_all(201)),
    "list_people": Recipe(everything, **LIST),
    "show_person": Recipe(path(person=person), whose={"userId": "ana"}),
    "change_person": Recipe(body({"zone": "Asia/Tokyo"}, person=person), whose={"userId": "ana"}),
    "remove_person": Recipe(path(person=person), owner=204, admin=204, whose={"userId": "ana"}),
    # people
    "who_am_i": Recipe(everything, **LIST),
    "dashboard": Recipe(everything, **LIST),
    "sign_in": Recipe(body({"userId": "ana", "password": "wrong horse"}), **for_all(401), is_quiet=True),
    "sign_out": Recipe(path(), **for_all(204), anonymous=204, is_quiet=True),
    "list_keys": Recipe(everything, **LIST),
    "make_key": Recipe(body({"name": MARK}), **for_all(201)),
    "revoke_key": Recipe(path(key_id=key)),
    "list_users": Recipe(everything, **ADMINS),
    "create_user": Recipe(fresh_user, **ADMINS, admin=201),
    "show_user": Recipe(path(user=fixed("ana"))),
    "change_user": Recipe(body({"disabled": True}, user=user), **ADMINS),
    # live
    "events": Recipe(everything, **LIST),
    "list_simulations": Recipe(everything, **ADMINS),
    "simulate": Recipe(body({"app": "catalog", "days": 0.1, "parameters": {"products": 1}}), **ADMINS, is_quiet=True),
    "metrics": Recipe(everything, **ADMINS),
    "healthz": Recipe(everything, **LIST, anonymous=200),
    "readyz": Recipe(everything, **LIST, anonymous=200),
}


class Operation(NamedTuple):
    name: str
    method: str
    path: str


DOCUMENT = create_api(build("sqlite:///never-opened.db")).openapi()
OPERATIONS = {
    operation["operationId"]: Operation(operation["operationId"], method.upper(), template)
    for template, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


@pytest.fixture(params=sorted(RECIPES))
def recipe(request: pytest.FixtureRequest) -> tuple[str, Recipe]:
    return request.param, RECIPES[request.param]


def send(client: TestClient, operation: Operation, ask: Ask, query: Mapping[str, str]) -> Any:
    url = operation.path.format(**ask.path)
    params = {**ask.query, **query}
    return client.request(operation.method, url, json=ask.body, params=params, files=ask.files)


def test_every_operation_has_a_recipe() -> None:
    assert set(OPERATIONS) == set(RECIPES), "say in RECIPES who may ask what of a new operation"
    assert len(OPERATIONS) == sum(map(len, DOCUMENT["paths"].values()))


def test_every_route_is_in_the_openapi_document() -> None:
    def inside(routes: Any) -> Iterator[Any]:
        for route in routes:
            included = getattr(route, "original_router", None)
            yield from inside(included.routes) if included is not None else [route]

    app = build("sqlite:///never-opened.db")
    routes = list(inside(create_api(app).routes))
    described = [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]
    known = (*screens(app.internals.plugins.values()), SIGN_IN)
    pages = {each.path for each in known} | {f"{each.path}/{{rest:path}}" for each in known if each.app}
    others = {route.path for route in routes if route not in described and route.path not in pages}
    assert others == {"/api/openapi.json", "/static/{digest}/{path:path}"}
    assert len(described) == len(RECIPES)


def test_nobody_sees_or_changes_what_is_not_theirs(house: House, recipe: tuple[str, Recipe]) -> None:
    name, rules = recipe
    operation = OPERATIONS[name]
    house.api.state.closing.set()  # streams end after their first words

    answer = send(house.nobody, operation, rules.make(house), {})
    assert answer.status_code == rules.anonymous, answer.text
    assert MARK not in answer.text

    # What Bob says himself is marked otherwise, so that whatever he is answered can be searched for Ana's.
    ask = rules.make(house)
    answer = send(house.bob, operation, ask._replace(body=_as_said_by_bob(ask.body)), {})
    assert answer.status_code == rules.other, answer.text
    assert MARK not in answer.text
    assert MARK not in str(answer.headers)
    if answer.content and answer.headers.get("content-type") == "application/json":
        assert "ana" not in _words(answer.json()), "whose it is"

    for client, status, more in ((house.ana, rules.owner, {}), (house.root, rules.admin, rules.whose)):
        ask = rules.make(house)
        before = len(house.audit())
        answer = send(client, operation, ask, more)
        assert answer.status_code == status, answer.text
        if status < 300 and operation.method != "GET" and not rules.is_quiet:
            notes = house.audit()[: len(house.audit()) - before]
            assert [note["actor"] for note in notes] == ["ana" if client is house.ana else "root"], notes


def _as_said_by_bob(body: Any) -> Any:
    return json.loads(json.dumps(body).replace(MARK, "zz-said-by-bob"))


def _words(value: Any) -> set[Any]:
    """All there is to read in an answer."""
    if isinstance(value, dict):
        return set().union(*map(_words, value.values()))
    return set().union(*map(_words, value)) if isinstance(value, list) else {value}


@pytest.mark.parametrize("name", [name for name, rules in RECIPES.items() if rules.other == 404])
def test_another_owners_row_and_a_missing_row_look_the_same(house: House, name: str) -> None:
    operation = OPERATIONS[name]
    ask = RECIPES[name].make(house)
    missing = {
        "group_id": "f" * 16, "person": "nobody", "sku": "nothing", "user": "nobody", "key_id": "0" * 12,
        "act": ask.path.get("act"),
    }  # fmt: skip
    nowhere = Ask({name: missing.get(name, 9_999_999) for name in ask.path}, ask.body)
    theirs, none = send(house.bob, operation, ask, {}), send(house.bob, operation, nowhere, {})
    assert (theirs.status_code, none.status_code) == (404, 404)
    said, other = (dict(answer.json(), detail=_plain(answer.json()["detail"], of)) for answer, of in
                   ((theirs, ask), (none, nowhere)))  # fmt: skip
    assert said == other


def _plain(detail: str, ask: Ask) -> str:
    for value in ask.path.values():
        detail = detail.replace(str(value), "…")
    return detail


def test_lists_of_another_owner_are_empty_and_an_admins_are_not(house: House) -> None:
    everything(house)
    for url in (
        "/api/items",
        "/api/schedules",
        "/api/products",
        "/api/acts",
        "/api/review",
        "/api/jobs",
        "/api/pending",
    ):
        assert house.bob.get(url).json()["items"] == [], url
        for who, query in ((house.ana, {}), (house.root, {"userId": "all"}), (house.root, {"userId": "ana"})):
            assert who.get(url, params=query).json()["items"], url
        assert house.bob.get(url, params={"userId": "ana"}).status_code == 403
        assert house.bob.get(url, params={"userId": "all"}).status_code == 403
        assert house.root.get(url, params={"userId": "me"}).json()["items"] == []


def test_an_act_of_anothers_touches_only_their_own_rows(house: House) -> None:
    mine, theirs = house.put(house.bob), house.put()
    house.bob.post("/api/acts", json={"action": "cancel", "filter": {}, "all": True})
    house.world.run()
    assert (house.world.item(mine).state, house.world.item(theirs).state) == ("cancelled", "waiting")
    assert house.app.internals.verbs.acts.page(LOCAL, "bob")[0].changed == 1
