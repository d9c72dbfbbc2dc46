"""The story of one item: what happened to it, who did what, and where it comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly import Backoff, Duly
from duly.core.errors import ConfigError
from duly.core.model import NewItem
from tests.support import share
from tests.web.conftest import START, House


def story(house: House, item_id: int) -> dict[str, Any]:
    answer = house.ana.get(f"/api/items/{item_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def kinds(told: dict[str, Any]) -> list[str]:
    assert [event["at"] for event in told["timeline"]] == sorted(event["at"] for event in told["timeline"])
    return [event["kind"] for event in told["timeline"]]


@pytest.fixture
def app(app: Duly) -> Duly:
    @app.task(retry=Backoff(base=60, tries=2))
    def stumble(times: int) -> None:
        if house_tries.setdefault(id(app), 0) < times:
            house_tries[id(app)] += 1
            raise OSError("the line is busy")

    house_tries: dict[int, int] = {}
    return app


def test_a_retried_item_tells_of_each_try_with_its_error_and_traceback(house: House) -> None:
    item = house.put(task="stumble", args={"times": 1}, at=None)
    house.world.run()
    assert kinds(story(house, item)) == ["put", "claimed", "failed", "due"]
    house.clock.move(120)
    house.world.run()
    told = story(house, item)
    assert kinds(told) == ["put", "claimed", "failed", "claimed", "done"]
    put, first, failed, _, done = told["timeline"]
    assert put["text"] == "put by ana"
    assert (first["attempt"], failed["attempt"], done["attempt"]) == (1, 1, 2)
    assert failed["error"] == "OSError: the line is busy"
    assert "raise OSError" in failed["traceback"]
    assert failed["worker"] is not None
    assert failed["worker"] == first["worker"]
    assert failed["text"].startswith("try 1 failed on ")
    assert (done["error"], done["traceback"]) == (None, None)


def test_what_people_do_is_part_of_the_story(house: House) -> None:
    item = house.fail()
    assert kinds(story(house, item)) == ["put", "claimed", "gave_up", "given_up"]
    house.clock.move(10)
    house.root.post(f"/api/items/{item}/discard", json={"reason": "a typo"})
    told = story(house, item)
    assert told["timeline"][-1]["text"] == "discarded a typo (by root)"
    assert [note["action"] for note in told["audit"]] == ["item.discarded", "item.put"]
    waiting = house.put()
    house.clock.move(10)
    house.ana.post(f"/api/items/{waiting}/cancel")
    assert kinds(story(house, waiting)) == ["put", "cancelled"], "once, and by whom"
    assert house.bob.get(f"/api/items/{waiting}").status_code == 404


def test_an_item_that_was_cancelled_by_its_handler_and_one_of_code(house: House) -> None:
    (placed,) = house.app.internals.store.put([NewItem("echo", "echo", b'{"text":"x"}', START)])
    cancelled = house.app.cancel(placed.id, reason="enough")
    told = house.root.get(f"/api/items/{cancelled[0]}").json()
    assert told["timeline"][0]["text"] == "put"
    assert (told["traceId"], told["schedule"], told["jobId"]) == (None, None, None)


def test_a_running_item_says_since_when_and_where(house: House) -> None:
    item = house.put(at=None)
    house.app.internals.store.claim(
        [share("echo", limit=1, task="echo", owner="ana")], "w1", house.clock.now(), timedelta(seconds=20)
    )
    last = story(house, item)["timeline"][-1]
    assert (last["kind"], last["worker"], last["attempt"]) == ("claimed", "w1", 1)


def test_a_superseded_item_was_cancelled_by_nobody(house: House) -> None:
    made = house.ana.post("/api/schedules", json={
        "task": "echo", "key": "mine", "rule": "every 1h", "args": {"text": "t"}, "overlap": "supersede",
    }).json()  # fmt: skip
    house.app.pause("echo")
    for _ in range(2):
        house.clock.move(3600)
        house.world.run()
    rows = house.ana.get("/api/items", params={"scheduleId": made["id"]}).json()["items"]
    told = story(house, rows[-1]["id"])
    assert (kinds(told), told["outcome"]) == (["put", "cancelled"], "superseded")
    assert told["schedule"] == {"id": made["id"], "key": "mine"}
    house.ana.delete(f"/api/schedules/{made['id']}")
    assert story(house, rows[-1]["id"])["schedule"] is None


def test_an_item_knows_the_trace_in_which_it_was_put(house: House) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    (placed,) = house.app.internals.store.put(
        [NewItem("echo", "echo", b'{"text":"x"}', START, trace=trace, owner="ana")]
    )
    assert story(house, placed.id)["traceId"] == "0af7651916cd43dd8448eb211c80319c"
    assert house.app.read.story(placed.id).trace_id == "0af7651916cd43dd8448eb211c80319c"


def test_a_row_of_a_job_names_its_job(house: House) -> None:
    job = house.app.job("echo", [{"text": "row"}], owner="ana").id
    (row,) = house.ana.get("/api/items", params={"jobId": job}).json()["items"]
    assert story(house, row["id"])["jobId"] == job


@pytest.mark.parametrize("url", ["jaeger/{trace_id}", "https://jaeger.example/trace/"])
def test_a_place_for_traces_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="trace_url"):
        Duly("sqlite:///never-opened.db", trace_url=url)
    assert Duly("sqlite:///never-opened.db", trace_url="https://t.example/{trace_id}").settings.trace_url
