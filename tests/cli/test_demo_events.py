"""The demo tells what happened from looks at the items, also what happened between two looks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly import Backoff, Duly, GiveUp, Throttled, testing
from duly.apps.demo.provider import PRODUCTS, Provider
from duly.apps.demo.scenes import LENGTH, REMINDERS, Scenario, files, reminders
from duly.apps.demo.view import EventLog
from duly.apps.enrichment.fields import PRODUCT
from duly.outbound.http import BadStatus, post_json
from duly.verbs import LOCAL

BUSY = 'POST http://127.0.0.1/call answered 503: {"statusCode": 503, "message": "all lines busy"}'


@pytest.fixture
def app(tmp_path: Path) -> Duly:
    return Duly(f"sqlite:///{tmp_path / 'unused.db'}", files_url=str(tmp_path / "files"))


def told(chronicle: EventLog) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in chronicle.look()]


def test_each_thing_is_told_once_when_it_happened(app: Duly) -> None:
    answers: list[Any] = [OSError(BUSY), Throttled(3), None]

    @app.task(retry=Backoff(base=2, tries=3))
    def remind() -> None:
        if answer := answers.pop(0):
            raise answer

    with testing.virtual(app) as world:
        chronicle = EventLog(app.read)
        remind.put()
        assert told(chronicle) == []
        assert [row.state for row in chronicle.upcoming()] == ["waiting"]
        world.run()
        assert told(chronicle) == [("failed", "retry in 2 s: 503 all lines busy")]
        world.advance(2)
        assert told(chronicle) == [("busy", "asked to come again in 3 s")]
        assert told(chronicle) == []
        world.advance(3)
        assert told(chronicle) == [("fired", "try 2")]
        assert chronicle.counts() == {"done": 1}
        assert chronicle.upcoming() == []


def test_what_happened_between_two_looks_is_told_in_order(app: Duly) -> None:
    @app.task(retry=Backoff(base=2, tries=3))
    def remind() -> None:
        raise OSError("no line")

    with testing.virtual(app) as world:
        chronicle = EventLog(app.read)
        remind.put()
        world.advance(minutes=1)
        assert told(chronicle) == [
            ("failed", "retried: OSError: no line"),
            ("failed", "retried: OSError: no line"),
            ("in review", "OSError: no line"),
        ]


def test_lateness_review_and_cancelling_are_told(app: Duly) -> None:
    @app.task
    def remind(bad: bool = False) -> None:
        if bad:
            raise GiveUp("not a phone number")

    with testing.virtual(app) as world:
        chronicle = EventLog(app.read)
        remind.put()
        world.clock.move(timedelta(hours=3))
        world.run()
        assert told(chronicle) == [("fired", "3 h late")]
        remind.put(bad=True)
        world.run()
        assert told(chronicle) == [("in review", "not a phone number")]
        app.cancel(remind.after(60).put().id, reason="no need")
        assert told(chronicle) == [("cancelled", "no need")]


def test_the_provider_is_difficult_only_as_it_was_told() -> None:
    with Provider() as provider:
        provider.expect("+1", [503, 429, 400])
        body = {"customer": {"number": "+1"}}

        def call() -> Any:
            return post_json(f"{provider.url}/call", body, headers={"Idempotency-Key": "k"}, timeout=10).json()

        with pytest.raises(BadStatus, match="503"):
            call()
        with pytest.raises(Throttled) as throttled:
            call()
        assert throttled.value.delay == 3
        with pytest.raises(GiveUp, match="not a phone number"):
            call()
        assert call()["id"] == call()["id"], "the same key is the same call"
        with pytest.raises(GiveUp, match="404"):
            post_json(f"{provider.url}/sms", body, headers={"Idempotency-Key": "k"}, timeout=10)


def test_the_scene_is_played_again_when_it_is_over_and_only_then(app: Duly) -> None:
    @app.task
    def remind(phone: str, name: str, message: str) -> None: ...

    later = [each for each in REMINDERS if each[2] > 0]
    with testing.virtual(app) as world, Provider() as provider:
        scene = Scenario(app.clock, reminders(app, provider))
        for _ in range(2):
            scene.step()
            assert len(world.items(most=100)) == len(REMINDERS)
        world.advance(LENGTH)
        scene.step()
        assert len(world.items(state="waiting", most=100)) == len(later)
        numbers = {row.args["phone"] for row in world.items(most=100)}
        assert len(numbers) == len(REMINDERS) + len(later), "every reminder has a number of its own"


def test_the_file_of_products_is_sent_again_when_it_was_worked_off_and_only_then(app: Duly) -> None:
    @app.task(name="enrichment.product")
    def look_up(**row: Any) -> None: ...

    app.job_type("csv", look_up, PRODUCT)
    with testing.virtual(app) as world:
        stall, jobs = Scenario(app.clock, files(app)), app.internals.verbs.jobs
        stall.step()
        world.advance(LENGTH)
        assert len(jobs.page(LOCAL)) == 1
        stall.step()
        stall.step()
        assert [job.total_items for job in jobs.page(LOCAL)] == [0, len(PRODUCTS)]
        assert EventLog(app.read).look() == [], "rows are not told one by one"
        world.clock.move(LENGTH)
        stall.step()
        assert len(jobs.page(LOCAL)) == 2, "the second is not worked off yet"


def test_the_market_knows_most_products_by_number_some_by_name_and_some_not() -> None:
    market = Provider(takes=0)

    def answer(query: str) -> tuple[int, dict[str, Any]]:
        return market.answer("/products", {"by": "sku", "query": query}, "")

    def found(query: str) -> list[str]:
        return [product["sku"] for product in answer(query)[1].get("products", [])]

    assert found("AC-100") == ["AC-100"]
    assert found("AC-109") == []
    assert found(PRODUCTS[9]["Product Name"]) == ["AC-109"]
    assert found("AC-115") == found(PRODUCTS[15]["Product Name"]) == []
    assert [answer("AC-105")[0] for _ in range(2)] == [429, 200]


def test_the_provider_looks_products_up_too() -> None:
    with Provider(takes=0) as provider:
        found = post_json(f"{provider.url}/products", {"by": "sku", "query": "AC-101"}, timeout=10).json()
        assert [product["title"] for product in found["products"]] == ["Tea pot, red"]
