"""How it is now: one picture, whether all is well and why not, at a bounded cost; and to each what they may see."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from duly import Duly, Limit
from duly.core.shown import Measured
from duly.engine.historian import Historian
from duly.verbs import LOCAL
from duly.verbs import now as room
from tests.engine.test_historian import Watched
from tests.support import KNOWN, claim, share
from tests.web.conftest import START, House, TestClient


def now(client: TestClient) -> dict[str, Any]:
    answer = client.get("/api/now")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def reasons(picture: dict[str, Any]) -> list[tuple[str, str]]:
    return [(reason["level"], reason["path"]) for reason in picture["reasons"]]


def a_worker(house: House, name: str = "w1", ago: float = 0.0) -> None:
    seen_at = house.clock.now() - timedelta(seconds=ago)
    house.app.internals.store.write(
        "alive", {**KNOWN, "name": name, "tasks": '["echo"]', "started_at": seen_at, "now": seen_at}
    )


def happened(house: House, *rows: Measured) -> None:
    Historian(house.app.internals.store, Watched(*rows), house.app.settings, {}, list).write(house.clock.now())  # type: ignore[arg-type]


def alert(house: House, name: str, **details: Any) -> None:
    given = {"name": name, "now": START, "message": f"it is {name}", "details": json.dumps(details)}
    house.app.internals.store.write("alert", given)


def test_with_a_worker_and_nothing_to_do_all_is_well(house: House) -> None:
    a_worker(house)
    picture = now(house.root)
    assert (picture["health"], picture["reasons"], picture["recovery"]) == ("ok", [], None)
    assert picture["totals"] == {
        "waiting": 0, "due": 0, "retrying": 0, "running": 0, "failed": 0, "late": 0, "capped": False,
    }  # fmt: skip
    assert (picture["queues"], picture["alerts"], picture["moreQueues"]) == ([], [], 0)
    assert [(worker["name"], worker["running"], worker["runs"]) for worker in picture["workers"]] == [("w1", 0, [])]


def test_a_source_that_is_down_is_bad_and_one_that_is_back_is_being_made_up(house: House) -> None:
    a_worker(house)
    alert(house, "source:boeing", source="boeing")
    assert [(each["level"], each["text"]) for each in now(house.root)["reasons"]] == [("bad", "it is source:boeing")]
    alert(house, "source:boeing", source="boeing", backAt=START.isoformat())
    picture = now(house.root)
    assert (picture["health"], picture["totals"]["late"]) == ("warn", 0)
    assert [each["name"] for each in picture["alerts"]] == ["source:boeing"]


def test_without_a_worker_it_says_so_and_what_is_due_makes_it_bad(house: House) -> None:
    a_worker(house, ago=301)
    assert reasons(now(house.root)) == [("warn", "/workers")]
    house.put(at=None)
    picture = now(house.root)
    assert picture["health"] == "bad"
    assert picture["reasons"] == [
        {"level": "bad", "text": "no worker is running, and 1 item is due", "path": "/workers"}
    ]
    a_worker(house, "w2", ago=299)
    assert now(house.root)["health"] == "ok"


def test_every_trouble_is_a_reason_with_the_page_to_act_on_it_the_worst_first(house: House) -> None:
    a_worker(house)
    house.fail()
    house.put(at=None)
    house.app.internals.verbs.queues.pause(LOCAL, "echo")
    alert(house, "late_items", lateEvents=12)
    alert(house, "oldest_due", oldestEventAge=90)
    alert(house, "no_tick")
    made = house.ana.post(
        "/api/schedules", json={"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "x"}}
    )
    assert made.status_code == 201, made.text
    with house.app.internals.store.transaction() as connection:
        connection.execute("update duly_schedule set broken_at = created_at, next_at = null")
    picture = now(house.root)
    assert picture["health"] == "bad"
    assert reasons(picture) == [
        ("bad", "/queues"), ("bad", "/items?state=waiting"), ("warn", "/workers"), ("warn", "/queues"),
        ("warn", "/review"), ("warn", "/schedules?state=broken"),
    ]  # fmt: skip
    assert [reason["text"] for reason in picture["reasons"]][3:] == [
        "queue echo is paused, and 1 item is due in it",
        "1 item was given up and waits for a person",
        "1 schedule was deactivated after failures in a row",
    ]
    assert picture["review"] == {"items": 1, "groups": 1, "isMore": False}
    assert (picture["schedules"]["active"], picture["schedules"]["broken"]) == (0, 1)
    assert [each["name"] for each in picture["alerts"]] == ["late_items", "no_tick", "oldest_due"]
    own = now(house.ana)
    assert (own["health"], reasons(own)) == ("warn", [("warn", "/review"), ("warn", "/schedules?state=broken")])


def test_several_of_a_kind_are_told_in_one_sentence(house: House) -> None:
    a_worker(house)
    for text in ("broken one", "broken two"):
        house.fail(text=text)
    for queue in ("echo", "keep"):
        house.app.internals.verbs.queues.pause(LOCAL, queue)
    house.put(at=None)
    house.put(task="keep", at=None)
    texts = [reason["text"] for reason in now(house.root)["reasons"]]
    assert texts == ["2 queues are paused, and 2 items are due in them", "2 items were given up and wait for a person"]


def test_a_recovery_has_its_forecast_from_what_was_done_lately(house: House) -> None:
    a_worker(house)
    alert(house, "late_items", lateEvents=100)
    recovery = now(house.root)["recovery"]
    assert (recovery["late"], recovery["perMinute"], recovery["seconds"]) == (100, 0.0, None)
    happened(house, Measured("task", "echo", "done", 50), Measured("task", "echo", "lateness", 4, 10.0, 5.0))
    picture = now(house.root)
    assert picture["totals"]["late"] == 100
    assert picture["recovery"]["perMinute"] == pytest.approx(10)
    assert picture["recovery"]["seconds"] == pytest.approx(600)
    house.put(at=None)
    (queue,) = now(house.root)["queues"]
    assert (queue["queue"], queue["due"], queue["latenessSeconds"]) == ("echo", 1, 2.5)
    assert queue["perMinute"] == pytest.approx(10)


def test_queues_come_worst_first_and_only_so_many(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put(task="echo", at=None)
    house.clock.move(60)
    house.put(task="keep", at=None)
    house.app.edit(house.put(), queue="elsewhere")
    picture = now(house.root)
    assert [queue["queue"] for queue in picture["queues"]] == ["echo", "keep", "elsewhere"]
    assert picture["queues"][0]["oldestDueSeconds"] == 60
    assert picture["queues"][2]["perMinute"] is None
    monkeypatch.setattr(room, "QUEUES", 1)
    picture = now(house.root)
    assert ([queue["queue"] for queue in picture["queues"]], picture["moreQueues"]) == (["echo"], 2)
    assert picture["totals"]["waiting"] == 3, "of all queues"


def test_workers_show_what_they_run(house: House) -> None:
    a_worker(house, "w1")
    a_worker(house, "w0")
    for _ in range(7):
        house.put(at=None, key=None)
    items = claim(house.app.internals.store, share("echo", owner="ana"), worker="w1", now=house.clock.now())
    assert len(items) == 7
    first, second = now(house.root)["workers"]
    assert (first["name"], first["running"], len(first["runs"]), first["tasks"]) == ("w1", 7, 5, ["echo"])
    assert {run["task"] for run in first["runs"]} == {"echo"}
    assert {run["id"] for run in first["runs"]} < {item.id for item in items}
    assert (second["name"], second["running"], second["runs"]) == ("w0", 0, [])


def test_limits_come_fullest_first_and_say_when_there_is_room(
    app: Duly, runner: asyncio.Runner, portal: BlockingPortal
) -> None:
    @app.task(limits=[Limit("boeing", 2, per="1m"), Limit("gpu", 4)])
    def fetch(n: int) -> None: ...

    with closing(House(app, runner, portal)) as house:
        _fill_and_look(house, fetch)


def _fill_and_look(house: House, fetch: Any) -> None:
    assert {limit["name"]: (limit["most"], limit["used"], limit["fill"]) for limit in now(house.root)["limits"]}[
        "boeing"
    ] == (2, 0, 0.0)
    for n in range(3):
        fetch.put(n=n)
    house.world.run()
    first = now(house.root)["limits"][0]
    assert (first["name"], first["most"], first["perSeconds"], first["used"], first["fill"]) == (
        "boeing", 2, 60.0, 2, 1.0,
    )  # fmt: skip
    assert first["freeAt"] == (START + timedelta(seconds=60)).isoformat().replace("+00:00", "Z")
    house.app.set_limit("boeing", "8/1m")
    boeing = next(limit for limit in now(house.root)["limits"] if limit["name"] == "boeing")
    assert (boeing["most"], boeing["fill"], boeing["freeAt"]) == (8, 0.25, None)
    gpu = next(limit for limit in now(house.root)["limits"] if limit["name"] == "gpu")
    assert (gpu["most"], gpu["perSeconds"], gpu["used"]) == (4, None, 0)
    house.clock.move(61)
    boeing = next(limit for limit in now(house.root)["limits"] if limit["name"] == "boeing")
    assert boeing["used"] == 0


def test_a_user_sees_counts_of_their_own_only(house: House) -> None:
    a_worker(house)
    house.fail()
    house.put(at=None)
    house.put()
    house.clock.move(301)
    house.put(house.bob, at=None)
    own = now(house.ana)
    assert own["totals"] == {
        "waiting": 2, "due": 1, "retrying": 0, "running": 0, "failed": 1, "late": 1, "capped": False,
    }  # fmt: skip
    assert own["review"] == {"items": 1, "groups": 1, "isMore": False}
    theirs = now(house.bob)
    assert (theirs["totals"]["waiting"], theirs["totals"]["failed"], theirs["health"]) == (1, 0, "ok")
    for picture in (own, theirs):
        assert not any(picture[name] for name in ("queues", "workers", "limits", "alerts", "recovery"))
    assert now(house.root)["totals"]["waiting"] == 3


def test_schedules_are_counted_and_the_next_one_is_told(house: House) -> None:
    for name, rule in (("a", "every 1h"), ("b", "every 2h")):
        made = house.ana.post("/api/schedules", json={"task": "echo", "key": name, "rule": rule, "args": {"text": "x"}})
        assert made.status_code == 201, made.text
    house.ana.post(f"/api/schedules/{made.json()['id']}/pause")
    for who in (house.ana, house.root):
        told = now(who)["schedules"]
        assert (told["active"], told["paused"], told["broken"], told["capped"]) == (1, 1, 0, False)
        assert told["nextAt"] is not None
    assert now(house.bob)["schedules"]["active"] == 0


def test_counting_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("broken a", "broken b", "broken c"):
        house.fail(text=text)
    monkeypatch.setattr(room, "COUNTED", 2)
    picture = now(house.root)
    assert (picture["review"]["items"], picture["review"]["isMore"]) == (3, True)
    assert 1 <= picture["review"]["groups"] <= 2
    own = now(house.ana)
    assert "2 items or more were given up" in own["reasons"][-1]["text"]
    assert (own["totals"]["failed"], own["totals"]["capped"]) == (2, True)


def test_an_old_schedule_is_told_of_however_many_came_after_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken ones, and the one that comes next, are not only looked for among the newest."""
    a_worker(house)
    ids = []
    for number, rule in enumerate(("every 1h", "every 2h", "every 5h", "every 4h")):
        said = {"task": "echo", "key": f"k{number}", "rule": rule, "args": {"text": "x"}}
        ids.append(house.ana.post("/api/schedules", json=said).json()["id"])
    with house.app.internals.store.transaction() as connection:
        connection.execute(f"update duly_schedule set broken_at = created_at, next_at = null where id = {ids[0]}")
    second = house.ana.get(f"/api/schedules/{ids[1]}").json()["nextAt"]
    monkeypatch.setattr(room, "COUNTED", 2)
    for who in (house.root, house.ana):
        picture = now(who)
        told = picture["schedules"]
        assert (told["active"], told["broken"], told["nextAt"], told["capped"]) == (2, 1, second, True)
        assert (picture["health"], reasons(picture)) == ("warn", [("warn", "/schedules?state=broken")])
    with house.app.internals.store.transaction() as connection:
        connection.execute("update duly_schedule set paused_at = created_at, next_at = null")
    assert now(house.ana)["schedules"]["nextAt"] is None
    assert now(house.bob)["schedules"]["broken"] == 0


def test_a_picture_costs_eight_statements_at_most(house: House, statements: list[str]) -> None:
    a_worker(house)
    house.fail()
    house.put(at=None)
    now(house.root)
    now(house.ana)
    for client, most in ((house.root, 8), (house.ana, 1)):
        statements.clear()
        now(client)
        asked = [text for text in statements if not text.startswith("pragma") and "duly_key" not in text]
        assert 0 < len(asked) <= most, asked
