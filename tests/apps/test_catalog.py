"""The catalog in virtual time, on both databases, against a real API: the seed's promises, one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from duly import Duly, InputError
from duly.apps.catalog import CatalogTuning, catalog_on, supplier
from duly.apps.catalog.day import Budget, CauseCount, SlotDay, StatusCounts
from duly.apps.catalog.products import Reactivated
from duly.apps.catalog.supplier import Offer
from duly.core.errors import ConfigError, DoesNotExist, WrongState
from duly.outbound.http import BadAnswer
from duly.verbs import local
from tests.apps.catalog_api import answer_with, entry, hang
from tests.apps.catalog_shop import KEY, START, Open, utc
from tests.outbound.provider import Answer, answer, hang_up

# -- even slots


def test_each_product_gets_the_emptiest_slot(shop: Open) -> None:
    at = shop()
    buckets = [at.catalog.publish("u", f"S{n}").hour_bucket for n in range(25)]
    assert sorted(buckets[:24]) == list(range(24))
    at.catalog.withdraw("u", "S7")
    free = {load.slot for load in at.catalog.slots() if load.members == 0}
    assert free == {buckets[7]}
    assert at.catalog.publish("u", "late").hour_bucket == buckets[7]
    loads = [load.members for load in at.catalog.slots()]
    assert (len(loads), min(loads), max(loads)) == (24, 1, 2)


def test_five_thousand_products_are_even_to_one_also_when_published_at_once(shop: Open) -> None:
    at = shop()
    rows = [{"user_id": f"u{n % 3}", "sku": f"S{n}"} for n in range(5_000)]
    with ThreadPoolExecutor(4) as publishers:
        fresh = list(publishers.map(at.catalog.publish_many, (rows[n::4] for n in range(4))))
    assert sum(fresh) == 5_000
    assert {load.members for load in at.catalog.slots()} == {208, 209}


def test_every_slot_is_synced_at_the_full_hour_once_a_day(shop: Open) -> None:
    at = shop(start=utc("2024-01-15T00:00:01"))
    at.catalog.publish_many({"user_id": "u", "sku": f"S{n}"} for n in range(48))
    at.until("2024-01-16T00:00:00")
    planned = [row.planned_at for row in at.app.read.pages(task="catalog.sync")]
    assert sorted(planned) == sorted(
        hour for n in range(1, 25) for hour in [utc("2024-01-15T00:00") + timedelta(hours=n)] * 2
    )
    assert sorted(at.api.asked()) == sorted(f"S{n}" for n in range(48))
    assert len(at.calls) == 24
    assert all((call.minute, call.second) == (0, 0) for call in at.calls)


def test_publishing_twice_is_publishing_once_and_keeps_the_slot(shop: Open) -> None:
    at = shop()
    first = at.catalog.publish("u", "S")
    assert at.catalog.publish("u", "S") == first
    assert at.catalog.publish("other", "S").id != first.id
    assert at.catalog.publish_many([{"user_id": "u", "sku": "S"}, {"user_id": "u", "sku": "T"}]) == 1


def test_a_slash_in_a_users_id_makes_no_two_products_one(shop: Open) -> None:
    at = shop()
    products = [at.catalog.publish(*each) for each in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"))]
    assert len({product.id for product in products}) == 3
    assert [(product.user_id, product.sku) for product in products] == [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]


# -- the sync


def test_a_published_product_is_pending_and_then_in_step(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    before = at.product("S")
    assert (before.sync_status, before.hour_bucket, before.is_active) == ("pending", 10, True)
    assert (before.last_sync_at, before.last_successful_sync, before.last_boeing_hash) == (None, None, None)
    assert before.created_at.tzinfo is UTC
    at.until("2024-01-15T10:00")
    after = at.product("S")
    assert (after.sync_status, after.consecutive_failures, after.last_error) == ("success", 0, None)
    assert (after.last_sync_at, after.last_successful_sync) == (utc("2024-01-15T10:00"), date(2024, 1, 15))
    assert (after.last_price, after.last_quantity, len(after.last_boeing_hash or "")) == (Decimal("19.99"), 7, 32)
    (request,) = at.api.requests
    assert (request.path, request.body) == ("/catalog/batch", {"skus": ["S"]})
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_ten_products_are_one_call_and_two_calls_go_out_in_any_minute(shop: Open) -> None:
    at = shop()
    at.fill(10, *(f"S{n}" for n in range(55)))
    at.until("2024-01-15T10:59")
    assert [len(request.body["skus"]) for request in at.api.requests] == [10, 10, 10, 10, 10, 5]
    for first, third in zip(at.calls, at.calls[2:], strict=False):
        assert third - first > timedelta(minutes=1)
    assert at.calls[-1] < utc("2024-01-15T10:04")


def test_retries_and_slots_share_the_one_limit(shop: Open) -> None:
    at = shop(settings=CatalogTuning(retry_windows="0 11 * * *"))
    at.api.passes = 0
    at.fill(10, *(f"S{n}" for n in range(20)))
    at.until("2024-01-15T10:30")
    at.api.passes = None
    at.fill(11, *(f"T{n}" for n in range(20)))
    at.until("2024-01-15T12:00")
    assert len(at.calls) == 6
    for first, third in zip(at.calls, at.calls[2:], strict=False):
        assert third - first > timedelta(minutes=1)


def test_what_has_not_changed_is_counted_and_nothing_follows_from_it(shop: Open) -> None:
    heard: list[tuple[Any, ...]] = []

    def on(app: Duly) -> Any:
        @app.task
        def tell(user_id: str, sku: str, price: float, quantity: int, in_stock: bool) -> None:
            heard.append((user_id, sku, price, quantity, in_stock))

        return tell

    at = shop(on=on)
    at.fill(10, "S", "T")
    at.until("2024-01-15T10:00")
    assert sorted(heard) == [("u", "S", 19.99, 7, True), ("u", "T", 19.99, 7, True)]
    seen = at.product("S").last_boeing_hash
    at.api.entries["T"] = entry("T", quantity=6)
    at.until("2024-01-16T10:00")
    assert heard[2:] == [("u", "T", 19.99, 6, True)]
    outcomes = {row.args["sku"]: row.outcome for row in at.world.items(task="catalog.sync", most=2)}
    assert outcomes == {"S": "unchanged", "T": "done"}
    schedules = {each.key: each.unchanged for each in at.app.schedules.page(task="catalog.sync")}
    assert schedules == {"u/S": 1, "u/T": 0}
    assert at.product("S").last_boeing_hash == seen
    assert at.product("S").last_successful_sync == date(2024, 1, 16)
    assert at.product("T").last_quantity == 6


def test_a_follow_up_that_cannot_take_the_news_is_refused_at_once(shop: Open) -> None:
    with pytest.raises(InputError, match="price"):
        shop(on=lambda app: app.task(name="tell")(lambda user_id, sku: None))


def test_a_whole_number_and_its_decimal_are_the_same_price(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    at.api.entries["S"] = entry("S", price=20)
    at.until("2024-01-15T10:00")
    at.api.entries["S"] = entry("S", price=20.0)
    at.until("2024-01-16T10:00")
    assert at.world.items()[0].outcome == "unchanged"


@pytest.mark.parametrize(
    ("told", "kept"), [("19.99", "19.99"), (0.1, "0.1"), ("1234567890123.123456789", "1234567890123.123456789")]
)
def test_a_price_keeps_its_digits_also_when_it_is_text(shop: Open, told: Any, kept: str) -> None:
    at = shop()
    at.fill(10, "S")
    at.api.entries["S"] = entry("S", price=told)
    at.until("2024-01-15T10:00")
    assert (at.product("S").sync_status, at.product("S").last_price) == ("success", Decimal(kept))
    at.api.entries["S"] = entry("S", price=f"{kept}0")  # the same, written otherwise
    at.until("2024-01-16T10:00")
    assert at.world.items()[0].outcome == "unchanged"


def test_who_wants_the_price_as_a_decimal_gets_all_its_digits(shop: Open) -> None:
    heard: list[Any] = []

    def on(app: Duly) -> Any:
        @app.task
        def tell(user_id: str, sku: str, price: Decimal, quantity: int, in_stock: bool) -> None:
            heard.append(price)

        return tell

    at = shop(on=on)
    at.fill(10, "S")
    at.api.entries["S"] = entry("S", price="1234567890123.123456789")
    at.until("2024-01-15T10:00")
    assert heard == [Decimal("1234567890123.123456789")]


@pytest.mark.parametrize("kind", [None, float, Any, float | None])
def test_who_does_not_ask_for_digits_gets_the_price_as_a_number(shop: Open, kind: Any) -> None:
    heard: list[Any] = []

    def on(app: Duly) -> Any:
        def tell(user_id: str, sku: str, price, quantity: int, in_stock: bool) -> None:  # type: ignore[no-untyped-def]
            heard.append(price)

        if kind is not None:
            tell.__annotations__["price"] = kind
        return app.task(tell)

    at = shop(on=on)
    at.fill(10, "S")
    at.until("2024-01-15T10:00")
    assert [(price, type(price)) for price in heard] == [(19.99, float)]


def test_a_task_of_any_arguments_gets_the_price_as_a_number(shop: Open) -> None:
    heard: list[Any] = []

    def on(app: Duly) -> Any:
        @app.task
        def tell(**news: Any) -> None:
            heard.append(news["price"])

        return tell

    at = shop(on=on)
    at.fill(10, "S")
    at.until("2024-01-15T10:00")
    assert heard == [19.99]


@pytest.mark.parametrize("price", ["1E+200000", "1E-200000", "1" * 16, f"0.{'1' * 16}"])
def test_a_price_of_no_end_is_not_imported(shop: Open, price: str) -> None:
    at = shop()
    with pytest.raises(InputError, match="last_price: must have at most 15 digits"):
        at.catalog.import_many([{"user_id": "u", "sku": "S", "last_price": price}])
    assert at.catalog.import_many([{"user_id": "u", "sku": "S", "last_price": f"{'1' * 15}.{'1' * 15}"}]).products == 1
    assert at.product("S").last_price == Decimal(f"{'1' * 15}.{'1' * 15}")


def test_a_price_of_thousands_of_digits_is_the_trouble_of_its_own_sku() -> None:
    found = supplier._read([entry("S", price=10**5_000), entry("T", price=1)])
    assert isinstance(found["S"], BadAnswer)
    assert found["T"] == Offer("T", Decimal(1), 7, True)


def test_two_users_with_the_same_sku_cost_one_question(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T", user_id="a")
    at.fill(10, "S", user_id="b")
    at.until("2024-01-15T10:00")
    (request,) = at.api.requests
    assert sorted(request.body["skus"]) == ["S", "T"]
    assert [at.product("S", user).sync_status for user in "ab"] == ["success", "success"]


# -- failures


def test_a_failed_product_waits_for_the_next_window_and_its_neighbours_do_not(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.api.missing = {"S"}
    at.until("2024-01-15T10:00")
    failed = at.product("S")
    assert (failed.sync_status, failed.consecutive_failures, failed.is_active) == ("failed", 1, True)
    assert (failed.last_successful_sync, failed.last_sync_at) == (None, utc("2024-01-15T10:00"))
    assert "does not have 'S'" in (failed.last_error or "")
    assert at.product("T").sync_status == "success"
    at.until("2024-01-15T10:29:59")
    assert len(at.api.requests) == 1
    at.api.missing = set()
    at.until("2024-01-15T10:30:01")
    assert at.api.requests[1].body == {"skus": ["S"]}
    recovered = at.product("S")
    assert (recovered.sync_status, recovered.consecutive_failures) == ("success", 0)
    at.until("2024-01-16T09:59")
    assert len(at.api.requests) == 2


@pytest.mark.parametrize(
    ("misbehave", "word"),
    [
        (answer(500), "answered 500"),
        (answer(404, b"no such batch"), "no such batch"),
        (answer(401), "answered 401"),
        (answer(307, Location="http://127.0.0.1:9/"), "answered 307"),
        (answer(200, b'{"products": [{"sku'), "not JSON"),
        (answer(200, b'["products"]'), "products"),
        (answer(200, b'{"products": {"S": 1}}'), "products"),
        (hang_up, "Unreachable"),
        (hang, "TimedOut"),
    ],
    ids=["500", "404", "401", "redirect", "cut json", "list", "wrong shape", "hangs up", "times out"],
)
def test_a_call_that_goes_wrong_fails_all_its_products_and_sends_none_to_review(
    shop: Open, misbehave: Answer, word: str
) -> None:
    at = shop(misbehave, catalog_timeout_seconds=1.0)
    at.fill(10, "S", "T")
    at.until("2024-01-15T10:00")
    for sku in "ST":
        product = at.product(sku)
        assert (product.sync_status, product.consecutive_failures) == ("failed", 1)
        assert word in (product.last_error or "")
    assert at.world.items(state="failed") == []
    at.until("2024-01-15T10:31")
    assert [at.product(sku).sync_status for sku in "ST"] == ["success", "success"]


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({"price": "dear"}, "price"),
        ({"price": -1}, "price"),
        ({"price": float("nan")}, "price"),
        ({"price": float("inf")}, "inf"),
        ({"quantity": None}, "quantity"),
        ({"quantity": 1.5}, "quantity"),
        ({"quantity": -3}, "quantity"),
        ({"price": "19,99"}, "price"),
        ({"price": "-1"}, "price"),
        ({"in_stock": "yes"}, "in_stock"),
    ],
)
def test_a_malformed_entry_is_the_trouble_of_its_own_product(shop: Open, told: dict[str, Any], word: str) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.api.entries["S"] = entry("S", **told)
    at.until("2024-01-15T10:00")
    assert at.product("T").sync_status == "success"
    product = at.product("S")
    assert (product.sync_status, product.last_price) == ("failed", None)
    assert word in (product.last_error or "")


def test_entries_that_nobody_asked_for_are_ignored_and_contradictions_are_not_believed(shop: Open) -> None:
    def odd(skus: list[str]) -> list[Any]:
        twice = [entry("S"), entry("S", price=1), entry("S", price=1), entry("T"), entry("T")]
        return [*twice, entry("other"), None, 7, {"price": 1}, {"sku": 3}]

    at = shop(answer_with(odd))
    at.fill(10, "S", "T")
    at.until("2024-01-15T10:00")
    assert at.product("T").sync_status == "success"
    assert "twice, and differently" in (at.product("S").last_error or "")


def test_a_busy_api_is_nobodys_failure(shop: Open) -> None:
    at = shop(answer(429, Retry_After="600"))
    at.fill(10, "S", "T")
    at.until("2024-01-15T10:00")
    for sku in "ST":
        product = at.product(sku)
        assert (product.sync_status, product.consecutive_failures, product.last_error) == ("pending", 0, None)
    at.until("2024-01-15T10:09:59")
    assert len(at.api.requests) == 1
    at.until("2024-01-15T10:10")
    assert [at.product(sku).sync_status for sku in "ST"] == ["success", "success"]


def test_a_window_takes_fifty_those_with_fewest_failures_first_then_the_oldest(shop: Open) -> None:
    at = shop()
    old, new = [f"O{n:02}" for n in range(40)], [f"N{n:02}" for n in range(40)]
    at.fill(10, *old)
    at.api.passes = 0
    at.until("2024-01-15T11:00")  # failed at 10:00 and at 10:30
    at.fill(14, *new)
    at.until("2024-01-15T14:29")  # failed once, later
    since = len(at.api.requests)
    at.until("2024-01-15T15:00")
    asked = at.api.asked(since)
    assert len(asked) == 50
    assert sorted(asked[:40]) == new
    assert sorted(asked[40:]) == old[:10]  # of equals, who failed first
    since = len(at.api.requests)
    at.api.passes = None
    at.until("2024-01-15T18:40")
    assert sorted(at.api.asked(since)[:30]) == old[10:]


def test_who_failed_first_goes_first(shop: Open) -> None:
    at = shop(settings=CatalogTuning(retry_limit=10))
    at.api.passes = 0
    at.fill(12, *(f"B{n}" for n in range(10)))
    at.fill(11, *(f"A{n}" for n in range(10)))
    at.until("2024-01-15T12:30")
    since = len(at.api.requests)
    at.until("2024-01-15T14:40")
    assert sorted(at.api.asked(since)) == [f"A{n}" for n in range(10)]


def test_a_success_resets_what_was_counted(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:00")
    assert at.product("S").consecutive_failures == 4  # 10:00, 10:30, 14:30, 18:30
    at.api.missing = set()
    at.until("2024-01-15T22:31")
    assert at.product("S").consecutive_failures == 0
    at.api.missing = {"S"}
    at.until("2024-01-16T18:31")
    assert (at.product("S").consecutive_failures, at.product("S").is_active) == (4, True)


def test_the_fifth_failure_in_a_row_deactivates_and_a_person_reactivates(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:31")
    broken = at.product("S")
    assert (broken.is_active, broken.consecutive_failures, broken.sync_status) == (False, 5, "failed")
    assert [product.sku for product in at.catalog.products(is_active=False)] == ["S"]
    assert [load.members for load in at.catalog.slots() if load.slot == 10] == [1]
    at.until("2024-01-17T12:00")
    assert at.dispatched("2024-01-16T10:00") == 1  # T
    at.api.missing = set()
    with pytest.raises(WrongState):
        at.catalog.reactivate("u", "T")
    again = at.catalog.reactivate("u", "S", actor="maja")
    assert (again.is_active, again.consecutive_failures, again.sync_status) == (True, 0, "pending")
    assert again.hour_bucket == 10
    told = [(note.actor, note.action) for note in reversed(at.app.schedules.audit(again.id))]
    assert told[-2:] == [("duly", "schedule.deactivated"), ("maja", "schedule.reactivated")]
    at.until("2024-01-18T10:00")
    assert at.product("S").sync_status == "success"


def test_what_was_not_recovered_is_superseded_by_the_next_day_and_its_failures_count_on(shop: Open) -> None:
    at = shop(settings=CatalogTuning(retry_windows="30 22 * * *"))
    at.fill(23, "S")
    at.api.missing = {"S"}
    at.until("2024-01-16T22:00")
    assert at.product("S").consecutive_failures == 1
    at.app.pause("catalog")  # the window passes without a try
    at.until("2024-01-16T23:00")
    at.app.resume("catalog")
    at.world.run()
    states = [(row.planned_at.day, row.state, row.outcome) for row in at.world.items()]
    assert states == [(16, "waiting", "failed"), (15, "cancelled", "superseded")]
    assert at.product("S").consecutive_failures == 2


def test_what_recovered_after_midnight_is_not_asked_for_again_on_that_day(shop: Open) -> None:
    at = shop()
    at.fill(21, "S", "T")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:31")
    at.api.missing = set()
    at.until("2024-01-16T02:31")
    assert at.product("S").last_successful_sync == date(2024, 1, 16)
    since = len(at.api.requests)
    at.until("2024-01-16T21:00")
    assert at.api.asked(since) == ["T"]
    skipped = next(row for row in at.world.items() if row.args["sku"] == "S")
    assert (skipped.state, skipped.outcome) == ("done", "skipped")
    assert at.product("S").sync_status == "success"
    assert utc("2024-01-16T02:30") <= (at.product("S").last_sync_at or START) < utc("2024-01-16T02:31")
    at.until("2024-01-17T21:00")
    assert sorted(at.api.asked(since)) == ["S", "T", "T"]


def test_a_batch_of_which_all_were_synced_today_makes_no_call_but_a_person_may_ask_for_one(shop: Open) -> None:
    at = shop()
    at.fill(21, "S")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:31")
    at.api.missing = set()
    at.until("2024-01-16T20:59")
    since = len(at.api.requests)
    at.until("2024-01-16T21:30")
    assert len(at.api.requests) == since
    at.app.internals.verbs.schedules.run_now(local("maja"), at.product("S").id)
    at.world.run()
    assert at.api.asked(since) == ["S"]


def test_a_failed_neighbour_does_not_blame_what_was_synced_already(shop: Open) -> None:
    at = shop()
    at.fill(21, "S", "T")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:31")
    at.api.missing = set()
    at.until("2024-01-16T02:31")
    at.api._answers.append(answer(500))
    at.until("2024-01-16T21:00")
    assert (at.product("S").sync_status, at.product("S").consecutive_failures) == ("success", 0)
    assert (at.product("T").sync_status, at.product("T").consecutive_failures) == ("failed", 1)


def test_reactivating_takes_the_failure_out_of_review_and_may_sync_at_once(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.until("2024-01-15T10:01")
    at.api.missing = {"S", "T"}
    at.until("2024-01-16T22:31")
    assert {row.args["sku"] for row in at.world.items(state="failed")} == {"S", "T"}
    at.api.missing = set()
    later = at.catalog.reactivate("u", "T")
    assert (later.sync_status, at.product("T").is_active) == ("pending", True)
    since = len(at.api.requests)
    now = at.catalog.reactivate("u", "S", sync_now=True)
    assert (now.sync_status, now.is_active) == ("pending", True)
    at.world.run()
    assert at.api.asked(since) == ["S"]
    assert at.product("S").sync_status == "success"
    assert at.world.items(state="failed") == []
    at.until("2024-01-17T10:01")
    assert sorted(at.api.asked(since)) == ["S", "S", "T"]


def test_while_a_product_is_synced_reactivating_it_does_not_sync_it_twice(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    at.api.missing = {"S"}
    at.until("2024-01-15T22:31")
    (failed,) = at.world.items(state="failed")
    at.api.missing = set()
    at.app.retry(failed.id)  # a person has it tried again before the product is reactivated
    since = len(at.api.requests)
    ask = at.catalog.ask
    at.catalog.ask = lambda skus: (at.catalog.reactivate("u", "S", sync_now=True), ask(skus))[1]
    at.world.run()
    assert at.api.asked(since) == ["S"]
    assert at.product("S").is_active


def test_what_one_cause_deactivated_is_reactivated_together(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.fill(11, "V")
    at.api.missing = {"S", "T", "V"}
    at.until("2024-01-15T10:59")
    at.catalog.ask = lambda skus: {sku: TimeoutError("no answer") for sku in skus}
    at.until("2024-01-16T10:59")
    assert at.catalog.day().causes == (CauseCount(cause="TimeoutError", products=3),)
    at.api.missing = set()
    assert at.catalog.reactivate_all("ValueError") == Reactivated(0, False)
    assert at.app.schedules.reactivate_all("catalog.sync", cause="TimeoutError", discard=True, most=2) == (2, True)
    assert at.catalog.reactivate_all("TimeoutError", sync_now=True, who=local("maja")) == Reactivated(1, False)
    assert at.catalog.day().causes == ()
    at.catalog.ask = lambda skus: {sku: Offer(sku, Decimal(1), 1, True) for sku in skus}
    at.world.run()
    assert [p.sync_status for p in at.catalog.products()] == ["pending", "pending", "success"]
    assert at.world.items(state="failed") == []


def test_the_day_is_told_slot_by_slot_and_window_by_window(shop: Open) -> None:
    at = shop(start=utc("2024-01-15T00:00:01"), settings=CatalogTuning(retry_limit=3, batch_size=2))
    at.fill(10, *(f"S{n}" for n in range(6)))
    at.fill(11, "T")
    at.api.missing = {f"S{n}" for n in range(1, 6)}
    at.until("2024-01-15T10:29")
    day = at.catalog.day()
    assert (day.zone, day.day, len(day.slots)) == ("UTC", date(2024, 1, 15), 24)
    assert day.slots[10] == SlotDay(slot=10, hour="10:00", planned=6, done=1, failed=5, running=0, waiting=0)
    assert day.slots[11] == SlotDay(slot=11, hour="11:00", planned=1, done=0, failed=0, running=0, waiting=0)
    assert day.statuses == StatusCounts(pending=1, syncing=0, success=1, failed=5, deactivated=0)
    assert day.budget == Budget(per_minute=2, used_today=3, most_per_day=2_880, batch=2)
    used = [(f"{window.at:%H:%M}", window.used, window.waiting, window.cap) for window in day.windows]
    assert used == [("02:30", 0, 0, 3), ("06:30", 0, 0, 3), ("10:30", 0, 5, 3), ("14:30", 0, 0, 3),
                    ("18:30", 0, 0, 3), ("22:30", 0, 0, 3)]  # fmt: skip
    at.until("2024-01-15T10:59")
    told = {f"{window.at:%H:%M}": (window.used, window.waiting) for window in at.catalog.day().windows}
    assert (told["10:30"], told["14:30"]) == ((3, 0), (0, 5))
    assert at.catalog.day().budget.used_today == 5
    at.app.set_limit("boeing", "60/1h")
    assert at.catalog.day().budget.per_minute == 1
    at.until("2024-01-16T02:00")
    assert at.catalog.day().slots[10].failed == 0  # today's sync of this slot is yet to come


def test_products_are_found_by_a_part_of_their_sku_whatever_characters_it_has(shop: Open) -> None:
    at = shop()
    for sku in ("ab_1", "abx1", "AB%2", "c!d"):
        at.catalog.publish("Maja", sku)
    found = {text: [p.sku for p in at.catalog.products(text=text)] for text in ("b_1", "%", "!", "aB", "maja", "x_")}
    assert found == {
        "b_1": ["ab_1"], "%": ["AB%2"], "!": ["c!d"], "aB": ["ab_1", "abx1", "AB%2"],
        "maja": ["ab_1", "abx1", "AB%2", "c!d"], "x_": [],
    }  # fmt: skip
    with pytest.raises(InputError, match="sync_status"):
        at.catalog.products(sync_status="lost")  # type: ignore[arg-type]


# -- the seed's walk-through


def test_a_hundred_products_fail_in_slot_ten_and_nothing_else_feels_it(shop: Open) -> None:
    at = shop()
    at.catalog.publish_many({"user_id": "u", "sku": f"S{n:04}"} for n in range(24 * 208))
    assert {load.members for load in at.catalog.slots()} == {208}
    for hour in (n for n in range(24) if n not in (10, 11)):
        at.app.schedules.remove(*(p.id for p in at.catalog.products(hour_bucket=hour, most=300)))
    ours = {product.sku for product in at.catalog.products(hour_bucket=10, most=300)}

    def failed() -> list[int]:
        return sorted(p.consecutive_failures for p in at.catalog.products(sync_status="failed", most=300))

    def window(until: str, passes: int) -> list[str]:
        since, at.api.passes = len(at.api.requests), passes
        at.until(until)
        asked = at.api.asked(since)
        at.api.passes = None
        return asked

    asked = window("2024-01-15T10:29", passes=108)
    assert (len(asked), set(asked)) == (208, ours)
    assert len(at.calls) == 21
    assert at.calls[-1] < utc("2024-01-15T10:11")
    assert failed() == [1] * 100

    assert len(window("2024-01-15T10:59", passes=40)) == 50
    assert failed() == [1] * 50 + [2] * 10

    since = len(at.api.requests)
    at.until("2024-01-15T11:59")
    assert len(at.api.asked(since)) == 208
    assert not set(at.api.asked(since)) & ours

    assert len(window("2024-01-15T14:59", passes=45)) == 50
    assert failed() == [2] * 15
    assert len(window("2024-01-15T18:59", passes=12)) == 15
    assert failed() == [3] * 3
    (last,) = window("2024-01-15T22:59", passes=2)[2:]
    assert failed() == [4]
    assert at.product(last).is_active
    summary = at.catalog.products(hour_bucket=10, most=300)
    assert sum(product.last_successful_sync == date(2024, 1, 15) for product in summary) == 207

    # The first window of the next day is its fifth failure.
    assert window("2024-01-16T02:59", passes=0) == [last]
    assert not at.product(last).is_active
    at.until("2024-01-16T11:30")
    assert at.dispatched("2024-01-16T10:00") == 207
    assert at.dispatched("2024-01-16T11:00") == 208
    assert failed() == [5]


# -- from another system


def test_products_of_another_system_keep_their_slot_hash_and_last_success(shop: Open) -> None:
    at = shop(start=utc("2024-01-15T09:30"))
    same = {"last_price": "19.99", "last_quantity": "7", "in_stock": "true"}
    rows = [
        {"user_id": "u", "sku": "S", "hour_bucket": 10, "last_successful_sync": "2024-01-14", **same},
        {"user_id": "u", "sku": "T", "hour_bucket": "10", "last_successful_sync": date(2024, 1, 15), **same},
        {"user_id": "u", "sku": "V", "hour_bucket": 10, "sync_status": "pending", "consecutive_failures": 4},
        {"user_id": "w", "sku": "S"},
    ]
    assert at.catalog.import_many(rows, who=local("maja")).products == 4
    assert at.catalog.import_many(rows).products == 0
    first = at.product("S")
    assert (first.hour_bucket, first.last_successful_sync, first.last_price) == (
        10,
        date(2024, 1, 14),
        Decimal("19.99"),
    )
    assert [load.members for load in at.catalog.slots() if load.slot == 10] == [3]
    assert at.app.schedules.find("catalog.sync", "u/S").next_at == utc("2024-01-15T10:00")
    at.api.missing = {"V"}
    at.until("2024-01-15T10:01")
    assert sorted(at.api.asked()) == ["S", "V"]  # T was synced today already
    outcomes = {row.args["sku"]: row.outcome for row in at.world.items(task="catalog.sync")}
    assert outcomes == {"S": "unchanged", "T": "skipped", "V": "failed"}
    assert (at.product("V").consecutive_failures, at.product("V").is_active) == (5, False)
    (line,) = [line for line in at.app.internals.verbs.audit.page() if line.action == "schedules.imported"]
    assert (line.actor, line.details) == ("maja", {"count": 4})


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"hour_bucket": 24}, "rows[1].hour_bucket"),
        ({"hour_bucket": "noon"}, "rows[1].hour_bucket"),
        ({"last_price": "-1"}, "rows[1].last_price"),
        ({"last_price": "NaN"}, "rows[1].last_price"),
        ({"last_successful_sync": "yesterday"}, "rows[1].last_successful_sync"),
        ({"sku": " "}, "rows[1].sku"),
        ({"colour": "red"}, "rows[1]"),
    ],
)
def test_a_bad_row_of_an_import_is_named_and_nothing_is_written(shop: Open, row: dict[str, Any], field: str) -> None:
    at = shop()
    with pytest.raises(InputError) as refused:
        at.catalog.import_many([{"user_id": "u", "sku": "ok"}, {"user_id": "u", "sku": "S", **row}])
    assert refused.value.field.startswith(field)
    assert at.catalog.products() == ()


# -- care


def test_a_withdrawn_product_is_asked_for_no_more_and_what_waits_is_cancelled(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    at.api.missing = {"S"}
    at.until("2024-01-15T10:00")
    at.catalog.withdraw("u", "S")
    at.until("2024-01-17T00:00")
    assert len(at.api.requests) == 1
    (row,) = at.world.items()
    assert row.state == "cancelled"
    assert sum(load.members for load in at.catalog.slots()) == 0
    for look in (at.catalog.product, at.catalog.withdraw, at.catalog.reactivate):
        with pytest.raises(DoesNotExist, match="'u' has no product 'S'"):
            look("u", "S")


def test_products_are_listed_by_user_slot_and_status_a_page_at_a_time(shop: Open) -> None:
    at = shop()
    at.fill(10, "S", "T")
    at.fill(11, "V", user_id="w")
    at.api.missing = {"T"}
    at.until("2024-01-15T10:00")
    assert [p.sku for p in at.catalog.products()] == ["S", "T", "V"]
    assert [p.sku for p in at.catalog.products(user_id="w")] == ["V"]
    assert [p.sku for p in at.catalog.products(hour_bucket=10)] == ["S", "T"]
    assert [p.sku for p in at.catalog.products(sync_status="failed")] == ["T"]
    assert [p.sku for p in at.catalog.products(is_active=True, sync_status="pending")] == ["V"]
    (first,) = at.catalog.products(most=1)
    assert [p.sku for p in at.catalog.products(after=first.id)] == ["T", "V"]


def test_a_long_error_is_cut_to_500_characters(shop: Open) -> None:
    at = shop(answer(500, b"x" * 5_000))
    at.fill(10, "S")
    at.until("2024-01-15T10:00")
    assert 400 < len(at.product("S").last_error or "") <= 500


def test_a_product_that_is_being_asked_for_is_syncing(shop: Open) -> None:
    at = shop()
    at.fill(10, "S")
    seen: list[str] = []
    ask = at.catalog.ask
    at.catalog.ask = lambda skus: (seen.append(at.product("S").sync_status), ask(skus))[1]
    at.until("2024-01-15T10:00")
    assert seen == ["syncing"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"user_id": "", "sku": "S"}, "user_id"),
        ({"user_id": "u", "sku": "  "}, "sku"),
        ({"user_id": "u", "sku": "x" * 201}, "sku"),
        ({"user_id": "u", "sku": "a\x00"}, "sku"),
        ({"user_id": "u", "sku": 7}, "sku"),
    ],
)
def test_bad_input_names_its_field(shop: Open, given: dict[str, Any], field: str) -> None:
    at = shop()
    with pytest.raises(InputError) as refused:
        at.catalog.publish(**given)
    assert refused.value.field == field
    with pytest.raises(InputError) as refused:
        at.catalog.publish_many([{"user_id": "u", "sku": "ok"}, given])
    assert refused.value.field == f"rows[1].{field}"
    with pytest.raises(InputError, match=r"^rows\[0\]: missing .*'sku'"):
        at.catalog.publish_many([{"user_id": "u"}])
    assert at.catalog.products() == ()


def test_the_seeds_parameters_are_settings(shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    at = shop()
    assert at.catalog.settings.shown().items() >= CatalogTuning().shown().items()
    monkeypatch.setenv("DULY_CATALOG_RETRY_WINDOWS", "30 */2 * * *")
    monkeypatch.setenv("DULY_CATALOG_RETRY_LIMIT", "150")
    monkeypatch.setenv("DULY_CATALOG_STUCK_THRESHOLD_SECONDS", "60")
    changed = shop().catalog
    tuned = CatalogTuning(retry_windows="30 */2 * * *", retry_limit=150, stuck_threshold_seconds=60.0)
    assert changed.settings.shown().items() >= tuned.shown().items()
    assert changed.task.deadline == 60
    monkeypatch.setenv("DULY_CATALOG_RETRY_WINDOWS", "sometimes")
    with pytest.raises(ConfigError, match="CATALOG_RETRY_WINDOWS: must begin with cron"):
        shop()


def test_the_key_of_the_api_is_in_no_row(shop: Open) -> None:
    at = shop(answer(403, KEY.encode()))
    at.fill(10, "S")
    at.until("2024-01-15T10:00")
    assert "***" in (at.product("S").last_error or "")
    assert KEY not in str(at.world.items())
    assert KEY not in str(at.app.settings.shown())


def test_a_simulation_asks_the_handler_and_nobody_outside() -> None:
    from duly.apps.catalog import simulated
    from duly.virtual.simulation import Conditions, Simulation
    from duly.virtual.world import stage

    app = Duly(catalog_base_url="http://127.0.0.1:9")
    simulated_catalog = catalog_on(app)
    with stage(app, utc("2024-01-14T23:59")) as (clock, runner):
        world = Simulation(app, clock, runner, Conditions(failure_rate=0.2, outages=(), seed=7))
        simulated(simulated_catalog, world, 240)
        world.run_until(utc("2024-01-16T00:00") - timedelta(seconds=1))
        statuses = {product.sync_status for product in simulated_catalog.products(most=300)}
        assert statuses == {"success", "failed"}
        assert world.story(utc("2024-01-15T00:00"), utc("2024-01-16T00:00")).calls.max_per_minute <= 2
