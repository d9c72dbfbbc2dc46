"""The seed's arithmetic, to the digit, and what it says about growth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import InputError
from duly.apps.catalog import CatalogTuning, plan, recommend
from duly.errors import ConfigError


def test_five_thousand_products_as_the_seed_counts_them() -> None:
    load = plan(5_000)
    assert (load.slot_least, load.slot_most) == (208, 209)
    assert (load.slot_calls, load.slot_minutes) == (21, 10.5)
    assert (load.window_calls, load.window_minutes) == (5, 2.5)
    assert (load.worst_hour_calls, load.worst_hour_minutes) == (26, 13.0)
    assert (load.hour_limit, round(load.hour_used_percent, 1)) == (120, 21.7)
    assert (load.scheduled_calls, load.retry_calls, load.day_calls) == (504, 30, 534)
    assert (load.day_limit, round(load.day_used_percent, 1)) == (2_880, 18.5)


@pytest.mark.parametrize(("products", "per_hour"), [(1_000, 42), (5_000, 208), (10_000, 417), (20_000, 833)])
def test_products_per_hour_as_the_seed_counts_them(products: int, per_hour: int) -> None:
    load = plan(products)
    assert per_hour in (load.slot_least, load.slot_most)
    assert load.slot_most - load.slot_least <= 1


def test_an_empty_catalog_asks_for_nothing_but_retries_that_may_come() -> None:
    load = plan(0)
    assert (load.slot_calls, load.scheduled_calls, load.day_calls) == (0, 0, 30)
    assert plan(0, windows=0).day_calls == 0


def test_what_breaks_first_as_the_catalog_grows() -> None:
    first, *rest = plan(5_000).breaks
    assert plan(5_000).breaks_first == first
    assert first.products == 5_701  # 5 % of which, and 5 % of those again, are more than 6 x 50
    assert str(first) == "from 5,701 products on: more products fail in a day (5.0%) than retry windows allow"
    assert [each.products for each in rest] == [14_401, 27_601, 28_339, 28_801]
    words = ("retry window opens", "retry window are not done", "day has more calls", "next one begins")
    for each, word in zip(rest, words, strict=True):
        assert word in each.what


def test_each_break_is_the_very_first_product_too_many() -> None:
    for each in plan(0).breaks:
        assert each in plan(each.products).breaks
    fits, breaks = plan(14_400), plan(14_401)
    assert (fits.slot_minutes, breaks.slot_minutes) == (30, 30.5)
    fits, breaks = plan(28_338), plan(28_339)
    assert (fits.day_calls, breaks.day_calls) == (2_880, 2_881)
    assert plan(5_700).retries_wanted <= plan(5_700).retries_possible < plan(5_701).retries_wanted


def test_without_failures_retries_never_break() -> None:
    assert all("fails" not in each.what for each in plan(5_000, failure_rate=0).breaks)
    assert plan(5_000, rate=1e6, failure_rate=0).breaks == ()
    assert plan(5_000, rate=1e6, failure_rate=0).breaks_first is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.integers(0, 50_000), st.integers(1, 50), st.integers(1, 60), st.integers(0, 48), st.integers(1, 500),
    st.integers(1, 48),
)  # fmt: skip
def test_more_products_never_cost_less(
    products: int, batch: int, rate: int, windows: int, cap: int, slots: int
) -> None:
    load = plan(products, batch, rate, windows, cap, slots)
    more = plan(products + 1, batch, rate, windows, cap, slots)
    assert load.scheduled_calls <= more.scheduled_calls <= load.scheduled_calls + 1
    assert load.scheduled_calls * batch >= products
    assert load.worst_hour_calls <= more.worst_hour_calls
    assert load.slot_least * slots <= products <= load.slot_most * slots


def test_the_seeds_scaling_table() -> None:
    assert recommend(1_000) == recommend(5_000) == CatalogTuning()
    assert recommend(10_000) == CatalogTuning(retry_limit=100)
    assert recommend(20_000) == CatalogTuning(retry_windows="30 */2 * * *", retry_limit=150)
    assert (recommend(10_000).windows_per_day, recommend(20_000).windows_per_day) == (6, 12)


def test_a_plan_has_the_scaling_table_with_the_changes_in_plain_words() -> None:
    load = plan(5_000)
    assert [(each.products, each.per_hour, each.fits) for each in load.growth] == [
        (1_000, 42, True), (5_000, 208, True), (10_000, 417, False), (20_000, 833, False),
    ]  # fmt: skip
    assert [each.changes[:2] for each in load.growth] == [
        (), (), ("increase the retry limit to 100",),
        ("add retry windows (every 2 hours)", "increase the retry limit to 150"),
    ]  # fmt: skip
    assert load.growth[3].settings == {"catalog_retry_windows": "30 */2 * * *", "catalog_retry_limit": 150}
    assert load.growth[3].changes[2:] == ("even then, a slot is not done when a retry window opens, 30 minutes later",)
    assert (load.day_limit, load.most_products, load.usable_products) == (2_880, 28_800, 20_000)
    assert [each.products for each in plan(7_000).growth] == [1_000, 5_000, 7_000, 10_000, 20_000]


@pytest.mark.parametrize("products", [1_000, 5_000, 10_000, 14_400])
@pytest.mark.parametrize("failure_rate", [0.01, 0.05, 0.1, 0.2])
def test_the_recommended_changes_make_a_catalog_fit(products: int, failure_rate: float) -> None:
    (size,) = [each for each in plan(products, failure_rate=failure_rate).growth if each.products == products]
    tuned = CatalogTuning(**{name.removeprefix("catalog_"): value for name, value in size.settings.items()})
    assert tuned.plan(products, failure_rate).fits == (not any("even then" in text for text in size.changes))
    assert plan(products, failure_rate=failure_rate).fits == (not size.changes)


def test_a_plan_says_whether_it_fits_with_this_share_of_failures() -> None:
    assert plan(5_700).fits
    assert not plan(5_701).fits
    assert not plan(5_000, failure_rate=0.1).fits
    assert plan(20_000, failure_rate=0, rate=4).fits
    assert plan(40_000).growth[-1].changes[0] == "ask for 4 calls a minute"


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(0, 19_999))
def test_in_between_the_recommendation_grows_in_whole_batches_and_carries_its_catalog(products: int) -> None:
    now, more = recommend(products), recommend(products + 1)
    assert now.retry_limit % now.batch_size == 0
    assert 0 <= more.retry_limit - now.retry_limit <= now.batch_size
    assert more.windows_per_day >= now.windows_per_day
    load = now.plan(products)
    assert load.retries_wanted <= load.retries_possible
    assert load.worst_hour_calls <= load.hour_limit
    assert load.day_used_percent <= 100


def test_more_than_a_rate_can_carry_is_refused_with_the_rate_to_ask_for() -> None:
    with pytest.raises(InputError, match=r"20,000 .*28,800 .*25,000: ask for 3 calls"):
        recommend(25_000)
    asked = recommend(25_000, calls_per_minute=3)
    assert (asked.calls_per_minute, asked.retry_limit) == (3, 180)
    assert asked.plan(25_000).worst_hour_calls <= asked.plan(25_000).hour_limit
    with pytest.raises(InputError, match="10,000 products"):
        recommend(10_001, calls_per_minute=1)
    assert recommend(10_000, calls_per_minute=1).retry_limit == 100


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"products": -1}, "products"),
        ({"products": 1.5}, "products"),
        ({"products": True}, "products"),
        ({"products": 1, "batch": 0}, "batch"),
        ({"products": 1, "rate": 0}, "rate"),
        ({"products": 1, "rate": float("nan")}, "rate"),
        ({"products": 1, "windows": -1}, "windows"),
        ({"products": 1, "cap": -1}, "cap"),
        ({"products": 1, "slots": 0}, "slots"),
        ({"products": 1, "failure_rate": 1}, "failure_rate"),
        ({"products": 1, "failure_rate": -0.1}, "failure_rate"),
    ],
)
def test_bad_input_names_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(**given)
    assert refused.value.field == field


def test_settings_plan_for_themselves() -> None:
    assert CatalogTuning().plan(5_000) == plan(5_000)
    twice = CatalogTuning(hour_buckets=48, stuck_threshold_seconds=300).plan(5_000)
    assert (twice.hour_limit, twice.slot_most) == (60, 105)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"hour_buckets": 0}, "hour_buckets"),
        ({"hour_buckets": 86_401}, "hour_buckets"),
        ({"retry_windows": "sometimes"}, "retry_windows"),
        ({"retry_windows": 7}, "retry_windows"),
        ({"retry_limit": 0}, "retry_limit"),
        ({"retry_limit": 100_001}, "retry_limit"),
        ({"max_consecutive_failures": 0}, "max_consecutive_failures"),
        ({"stuck_threshold_seconds": 0}, "stuck_threshold_seconds"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"calls_per_minute": 0}, "calls_per_minute"),
        ({"calls_per_minute": True}, "calls_per_minute"),
    ],
)
def test_settings_that_no_catalog_can_have_are_refused_where_they_are_said(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"^catalog_{field}: "):
        CatalogTuning(**given)
