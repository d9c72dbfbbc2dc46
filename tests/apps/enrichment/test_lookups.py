"""Rows are looked up in ever other words, at one retailer after the other, and end as the provider's answers mean."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, InputError
from duly.apps.enrichment import EnrichmentSettings, enrichment_on
from duly.apps.enrichment.searches import Question, Searches
from duly.apps.enrichment.settings import checks
from duly.core.clock import ManualClock
from duly.core.errors import ConfigError, StoreBusy
from duly.core.model import Item
from duly.verbs import LOCAL
from tests.apps.enrichment.conftest import KEY, POT, START, Desk, Open, Shop, hang, told
from tests.bulk.read.test_images import painted
from tests.outbound.provider import Answer, answer, break_off, drip, hang_up, huge
from tests.support import query

SKU = "title,brand,sku\nTea pot (blue),Acme,TP-7\n"
HOUR = 3600


def test_a_row_that_is_found_is_done_with_all_fields_and_the_exact_price(desk: Desk, shop: Shop) -> None:
    shop.has["TP-7", ""] = answer(200, b'{"products": [{"title": "Tea pot", "sku": "tp 7", "price": 1234567890.10}]}')
    job = desk.send(SKU)
    row = desk.row(job)
    assert (row.status, row.last_error, row.attempt) == ("DONE", None, 1)
    assert row.result == {
        "title": "Tea pot", "brand": None, "sku": "tp 7", "ean": None, "price": "1234567890.10", "currency": None,
        "url": None, "image": None, "retailer": None, "matched_by": "sku",
    }  # fmt: skip
    (request,) = shop.requests
    assert (request.path, request.headers["authorization"]) == ("/products", f"Bearer {KEY}")
    assert request.body == {"by": "sku", "query": "TP-7", "retailer": None}
    (event,) = desk.events(job)
    assert (event.variant, event.retailer, event.status, event.attempt, event.round) == ("sku", "", "found", 1, 0)
    assert event.milliseconds >= 0
    assert event.created_at == START
    assert desk.app.internals.verbs.jobs.get(LOCAL, job.id).done == 1


def test_nothing_found_is_asked_again_later_in_other_words_until_the_rounds_are_used_up(desk: Desk, shop: Shop) -> None:
    job = desk.send(SKU)
    row = desk.row(job)
    assert (row.status, row.attempt) == ("PENDING", 1)
    assert "nothing was found by sku" in (row.last_error or "")
    desk.world.advance(900 - 1)
    assert shop.asked() == [("sku", "TP-7", None)]
    desk.world.advance(300)
    assert shop.asked()[1:] == [("brand_title", "Acme Tea pot (blue)", None)]
    desk.world.advance(2 * HOUR)
    assert shop.asked()[2:] == [("title", "Tea pot (blue)", None)]
    ended = desk.row(job)
    assert (ended.status, ended.attempt, ended.result) == ("NOT_FOUND", 3, None)
    assert ended.last_error == "nothing was found by title, which was the last of 3 rounds"
    desk.world.advance(24 * HOUR)
    assert len(shop.requests) == 3
    assert desk.story(job) == [(by, "", "not_found") for by in ("sku", "brand_title", "title")]
    assert [(event.round, event.attempt) for event in desk.events(job)] == [(0, 1), (1, 2), (2, 3)]
    assert desk.app.internals.verbs.jobs.get(LOCAL, job.id).not_found == 1


def test_a_row_that_is_processed_again_goes_on_with_the_words_that_it_did_not_come_to(desk: Desk, shop: Shop) -> None:
    job = desk.send(SKU)
    desk.world.advance(24 * HOUR)
    shop.has["tea pot", ""] = told(POT)
    desk.app.internals.verbs.jobs.reprocess(LOCAL, job.id)
    desk.world.advance(1)
    row = desk.row(job)
    assert (row.status, row.attempt) == ("DONE", 1)
    assert (row.result["matched_by"], row.result["price"]) == ("plain_title", "19.9")
    assert desk.story(job)[3:] == [("plain_title", "", "found")]


def test_retailers_are_asked_by_their_priority_until_one_has_it(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(enrichment_retailers="acme, bestco,cheap,acme")
    shop.has["TP-7", "bestco"] = told({"title": "Tea pot"})
    job = desk.send(SKU)
    assert desk.story(job) == [("sku", "acme", "not_found"), ("sku", "bestco", "found")]
    assert desk.row(job).result["retailer"] == "bestco"
    nowhere = desk.send("title\nnowhere\n")
    assert [retailer for _, retailer, _ in desk.story(nowhere)] == ["acme", "bestco", "cheap"]
    assert "nothing was found by title at acme, bestco, cheap\n" in (desk.row(nowhere).last_error or "")


def test_a_retailer_that_finds_more_than_others_is_asked_first(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(enrichment_retailers="acme,bestco,cheap")
    shop.has.update({(f"P-{n}", "bestco"): told({"title": f"product {n}"}) for n in range(30)})
    job = desk.send("sku\n" + "".join(f"P-{n}\n" for n in range(30)))
    assert {row.status for row in desk.rows(job)} == {"DONE"}
    asked = [retailer for _, _, retailer in shop.asked()]
    assert asked[:2] == ["acme", "bestco"]
    assert asked[-5:] == ["bestco"] * 5


def test_a_round_that_broke_off_goes_on_with_the_retailers_it_did_not_come_to(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(enrichment_retailers="acme,bestco")
    shop.before["TP-7"].extend([answer(404), answer(500)])
    shop.has["TP-7", "bestco"] = told(POT)
    job = desk.send(SKU)
    assert desk.row(job).status == "PENDING"
    desk.world.advance(20)
    assert desk.story(job) == [
        ("sku", "acme", "not_found"), ("sku", "bestco", "server"), ("sku", "bestco", "found"),
    ]  # fmt: skip
    assert [(event.round, event.attempt) for event in desk.events(job)] == [(0, 1), (0, 1), (0, 2)]


@pytest.mark.parametrize(("answered", "wait"), [(answer(429, Retry_After="7"), 7), (answer(503, Retry_After="7"), 7),
                                                (answer(429), 5)])  # fmt: skip
def test_a_provider_that_has_enough_is_left_alone_and_nobody_is_blamed(
    desk: Desk, shop: Shop, answered: Answer, wait: int
) -> None:
    shop.before["TP-7"].append(answered)
    shop.has["TP-7", ""] = told(POT)
    job = desk.send(SKU)
    (waiting,) = desk.world.items(task="enrichment.product")
    assert (waiting.state, waiting.outcome, waiting.attempt) == ("waiting", "throttled", 0)
    assert (waiting.due_at - START).total_seconds() == wait
    assert desk.story(job) == [("sku", "", "throttled")]


def test_what_a_round_had_asked_before_it_had_to_wait_is_not_asked_again(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(enrichment_retailers="acme,bestco")
    shop.before["TP-7"] += [answer(404), answer(429, Retry_After="3")]
    shop.has["TP-7", "bestco"] = told(POT)
    job = desk.send(SKU)
    assert desk.story(job) == [("sku", "acme", "not_found"), ("sku", "bestco", "throttled")]
    desk.world.advance(3)
    assert desk.story(job)[2:] == [("sku", "bestco", "found")]
    assert desk.row(job).attempt == 1


@pytest.mark.parametrize(
    ("answered", "status", "words", "least"),
    [
        (answer(500), "server", "answered 500", 15),
        (answer(503), "server", "answered 503", 15),
        (answer(504), "timeout", "answered 504", 30),
        (hang, "timeout", "no whole answer within 0.3 s", 30),
        (drip, "timeout", "no whole answer within 0.3 s", 30),
        (hang_up, "network", "RemoteDisconnected", 10),
        (break_off, "network", "the answer broke off", 10),
        (answer(302, Location="http://169.254.169.254/"), "unknown", "answered 302", 30),
        (answer(200, b"<html>"), "unknown", 'is not {"products"', 30),
        (answer(200, b"\xff\xfe"), "unknown", 'is not {"products"', 30),
        (answer(200, b"[" * 100_000), "unknown", 'is not {"products"', 30),
        (answer(200, b'{"products": {}}'), "unknown", 'is not {"products"', 30),
        (answer(200, b'{"products": [7]}'), "unknown", "is malformed", 30),
        (answer(200, b'{"products": [' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"]}"), "unknown", "products", 30),
        (huge, "unknown", "more than 262,144 bytes", 30),
    ],
)
def test_what_may_be_well_later_is_tried_again_spaced_by_its_kind(
    open_desk: Open, shop: Shop, answered: Answer, status: str, words: str, least: float
) -> None:
    is_slow = answered in (hang, drip)
    desk = open_desk(enrichment_timeout_seconds=0.3 if is_slow else 10.0)
    shop.before["TP-7"].append(answered)
    shop.has["TP-7", ""] = told(POT)
    job = desk.send(SKU)
    row = desk.row(job)
    assert (row.status, row.attempt) == ("PENDING", 1)
    assert words in (row.last_error or "")
    assert KEY not in (row.last_error or "")
    (waiting,) = desk.world.items(task="enrichment.product")
    assert least <= (waiting.due_at - START).total_seconds() <= 1.25 * least
    desk.world.advance(2 * least)
    assert desk.row(job).status == "DONE"
    assert desk.story(job) == [("sku", "", status), ("sku", "", "found")]


def test_trouble_without_end_ends_in_error_after_as_many_tries_as_the_settings_say(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(max_attempts_error=3)
    shop.has["TP-7", ""] = answer(500, b"boom")
    job = desk.send(SKU)
    desk.world.advance(HOUR)
    row = desk.row(job)
    assert (row.status, row.attempt, len(shop.requests)) == ("ERROR", 3, 3)
    assert "answered 500: boom" in (row.last_error or "")


@pytest.mark.parametrize(("code", "status"), [(401, "refused"), (403, "refused"), (400, "invalid"), (422, "invalid")])
def test_what_asking_again_cannot_help_is_an_error_at_once(desk: Desk, shop: Shop, code: int, status: str) -> None:
    shop.has["TP-7", ""] = answer(code, b"no such key")
    job = desk.send(SKU)
    row = desk.row(job)
    assert (row.status, row.attempt) == ("ERROR", 1)
    assert f"answered {code}: no such key" in (row.last_error or "")
    assert desk.story(job) == [("sku", "", status)]


def test_what_another_number_has_is_not_what_was_asked_for(desk: Desk, shop: Shop) -> None:
    shop.has["TP-7", ""] = told({"title": "Something else", "sku": "TP-8"}, {**POT, "title": "It", "sku": "tp.7"})
    assert desk.row(desk.send(SKU)).result["title"] == "It"
    shop.has["TP-9", ""] = told({"title": "Something else", "sku": "TP-8"})
    assert desk.story(desk.send("sku\nTP-9\n")) == [("sku", "", "not_found")]


def test_the_questions_of_a_try_are_told_once_however_often_it_tells_them(desk: Desk, shop: Shop) -> None:
    shop.has["TP-7", ""] = told(POT)
    job = desk.send(SKU)
    (row,) = desk.world.items(task="enrichment.product")
    (item,) = desk.app.internals.store.fetch([row.id])
    for _ in range(2):
        desk.enrichment.searches.note(item, 0, [Question("sku", "", "found", 5), Question("ean", "", "found", 5)])
    assert desk.story(job) == [("sku", "", "found"), ("ean", "", "found")]


def test_a_try_that_ends_between_telling_and_settling_is_repeated_and_asks_no_question_twice(
    open_desk: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked is written, and then the row is given back: the next try goes on from what is written."""
    desk = open_desk(enrichment_retailers="acme,bestco")
    note = Searches.note

    def lost(self: Searches, item: Item, *more: Any) -> None:
        note(self, item, *more)
        monkeypatch.undo()
        shop.has["nowhere and never", "acme"] = told(POT)
        raise StoreBusy("as if its worker had been stopped here")

    monkeypatch.setattr(Searches, "note", lost)
    job = desk.send("title,sku\nnowhere and never,N-1\n")
    row = desk.row(job)
    assert (row.status, row.attempt) == ("DONE", 1)
    assert [(event.round, event.attempt, event.variant, event.retailer) for event in desk.events(job)] == [
        (0, 1, "sku", "acme"), (0, 1, "sku", "bestco"), (1, 1, "title", "acme"),
    ]  # fmt: skip


def test_a_found_row_whose_lease_was_lost_leaves_no_event(
    desk: Desk, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event and the end of the row commit together or not at all."""
    shop.has["TP-7", ""] = told(POT)
    note = Searches.note

    def stolen(self: Searches, item: Item, number: int, asked: Any, connection: Any = None) -> None:
        note(self, item, number, asked, connection)
        connection.execute(f"update duly_item set fence = fence + 1000000 where id = {item.id}")

    monkeypatch.setattr(Searches, "note", stolen)
    job = desk.send(SKU)
    assert desk.events(job) == []


def test_how_questions_end_is_counted(desk: Desk, shop: Shop) -> None:
    shop.has["TP-7", ""] = told(POT)
    shop.has["TP-8", ""] = answer(500)
    desk.send(SKU)
    desk.send("sku\nTP-8\n")
    registry = desk.app.registry
    assert registry.get_sample_value("duly_lookups_total", {"variant": "sku", "status": "found"}) == 1
    assert registry.get_sample_value("duly_lookups_total", {"variant": "sku", "status": "server"}) == 1
    assert registry.get_sample_value("duly_lookup_seconds_count") == 2


def test_events_go_with_their_rows(desk: Desk, shop: Shop) -> None:
    shop.has["TP-7", ""] = told(POT)
    job, other = desk.send(SKU), desk.send(SKU)
    alone = desk.enrichment.look_up(sku="TP-7")
    desk.world.run()
    desk.app.internals.verbs.jobs.remove(LOCAL, job.id)
    desk.world.run()
    left = dict(query(desk.app.internals.store, "select item_id, job_id from duly_search_event"))
    assert set(left.values()) == {other.id, None}
    assert left[alone.id] is None


def test_a_row_without_words_is_refused(desk: Desk) -> None:
    with pytest.raises(InputError, match="by its title, sku or ean"):
        desk.enrichment.look_up(brand="Acme")
    job = desk.send("title,brand,price\n,Acme,3\n")
    assert desk.row(job).status == "ERROR"


def test_without_a_provider_rows_wait_and_the_doctor_tells(open_desk: Open, caplog: pytest.LogCaptureFixture) -> None:
    desk = open_desk(enrichment_base_url="")
    with caplog.at_level(logging.WARNING, "duly.enrichment"):
        job = desk.send(SKU)
    assert desk.row(job).status == "PENDING"
    assert "set enrichment_base_url" in caplog.text
    (finding,) = checks(EnrichmentSettings(), {f"enrichment/job-{job.id}": 1, "mail": 7})
    assert (finding.level, finding.text) == ("bad", "1 wait, and no provider is set")
    assert list(checks(EnrichmentSettings(base_url="http://x"), {"enrichment": 1})) == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"variants": "sku,colour"}, "enrichment_variants: 'colour' is none of sku, ean"),
        ({"variants": " , "}, "enrichment_variants: names none"),
        ({"base_url": "ftp://x"}, "enrichment_base_url: must be http"),
        ({"api_key": "two\nlines"}, "enrichment_api_key: holds a line end"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        EnrichmentSettings(**given)


def test_an_app_that_takes_these_files_already_keeps_its_own_task(tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path}/duly.db", clock=ManualClock(START))

    @app.task
    def mine(**row: Any) -> None: ...

    app.job_type("csv", mine)
    enrichment_on(app)
    assert (app.internals.job_types["csv"].task, app.internals.job_types["image"].task.name) == (
        mine,
        "enrichment.image",
    )


# -- images


def test_an_image_is_looked_up_by_what_it_shows_and_then_by_its_name(desk: Desk, shop: Shop) -> None:
    picture = painted("PNG", (300, 200))
    job = desk.send(picture, "shop/Blue_Tea-Pot.png", job_type="image")
    (request,) = shop.requests
    assert (request.path, request.body["by"], request.body["query"]) == ("/images", "image", "blue tea pot")
    sent = request.body["image"]
    assert (sent["format"], sent["width"], sent["bytes"]) == ("PNG", 300, len(picture))
    assert len(sent["data"]) > 20
    shop.has["blue tea pot", ""] = told(POT)
    desk.world.advance(1200)
    assert (shop.requests[1].path, shop.requests[1].body) == (
        "/products", {"by": "name", "query": "blue tea pot", "retailer": None},
    )  # fmt: skip
    row = desk.row(job)
    assert (row.status, row.result["matched_by"], row.result["title"]) == ("DONE", "name", "Tea pot, blue")
    assert desk.story(job) == [("image", "", "not_found"), ("name", "", "found")]


def test_an_image_that_is_kept_no_more_is_an_error(desk: Desk, shop: Shop) -> None:
    desk.enrichment.image.put(name="pot.png", thumbnail="thumbnails/7/1.webp")
    desk.world.run()
    (row,) = desk.world.items(task="enrichment.image")
    assert (row.state, row.outcome, shop.requests) == ("failed", "gave_up", [])


def test_an_image_without_a_picture_or_a_name_is_not_found(desk: Desk) -> None:
    desk.enrichment.image.put(name="___.png")
    desk.world.run()
    (row,) = desk.world.items(task="enrichment.image")
    assert (row.state, row.outcome) == ("done", "not_found")
