"""Limits: what they mean, and that no window of time ever holds more than was promised."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.core.model import Ask, Meter, Suspects
from duly.core.policy.limits import LEAST_SLACK, MOST, Limit, parse_limit, period, slack, tokens, worth_keeping
from duly.core.shown import MeterRow
from duly.store.granting import MeterBudget, calls_of
from tests.core.test_decide import an_item
from tests.support import NOW, after, share

MINUTE = Meter("boeing", 2, per=60)
SLOW = timedelta(seconds=61.2)  # a minute and its slack
WINDOW = Meter("window:catalog", 5, since=after(-60), until=after(600))


def test_a_limit_says_how_much_and_per_what() -> None:
    assert Limit("boeing", 2, per="1m").meter() == MINUTE
    assert Limit("boeing", 2, per=timedelta(minutes=1)).seconds == 60
    assert Limit("gpu", 4).meter() == Meter("gpu", 4)
    assert Limit("gpu", 4).seconds is None


def test_a_clock_that_was_set_back_holds_nobody_for_longer_than_two_windows() -> None:
    hits = [after(3_590), after(3_600)]
    assert tokens(MINUTE, hits, 0, NOW) == (2, None), "an hour back: those calls are over"
    assert worth_keeping(MINUTE, hits, NOW) == []
    near = [after(20), after(30)]
    assert tokens(MINUTE, near, 0, NOW) == (0, after(20) + SLOW), "half a minute back: they may not be"
    assert worth_keeping(MINUTE, near, NOW) == near


def test_a_limit_by_an_argument_has_a_meter_for_each_of_its_values() -> None:
    limit = Limit("shop", 2, per="1m", by="shop")
    assert [limit.meter(key).name for key in ("a", "b", "")] == ["shop:a", "shop:b", "shop"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1m", 60), ("m", 60), (" 2 h ", 7200), ("1.5d", 129_600), (5, 5), (timedelta(hours=1), 3600)],
)
def test_periods_are_written_as_people_do(text: str, seconds: float) -> None:
    assert period(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1w", "1m30s", "-1s", "one minute"])
def test_a_period_that_cannot_be_read_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="per: must be like 30s, 1m, 2h or 1d, got "):
        period(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("2/1m", (2, 60)), ("2/m", (2, 60)), (" 10 / 30s ", (10, 30)), ("4", (4, None)), ("0", (0, None))],
)
def test_a_limit_is_read_from_a_line(text: str, limit: tuple[int, float | None]) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "/1m", "2 per minute", "-2", "2/1m/1s"])
def test_a_limit_that_cannot_be_read_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be like (2/1m|30s)"):
        parse_limit(text)


@pytest.mark.parametrize("most", [-1, MOST + 1, 2.5, True, "2", None])
def test_a_limit_needs_a_sensible_number(most: object) -> None:
    with pytest.raises(ValueError, match="most: must be between 0 and 10,000, got "):
        Limit("x", most)


@pytest.mark.parametrize("per", [0, 0.05, "0s", 32 * 86_400, float("nan")])
def test_a_limit_needs_a_sensible_period(per: object) -> None:
    with pytest.raises(ValueError, match="per: must be between a tenth of a second and 31 days, got "):
        Limit("x", 2, per=per)


def test_slack_is_a_part_of_the_window_and_never_nothing() -> None:
    assert slack(60) == timedelta(seconds=1.2)
    assert slack(0.5) == timedelta(seconds=LEAST_SLACK)


# -- tokens


def test_calls_at_the_same_time_are_counted_by_what_runs() -> None:
    gpu = Meter("gpu", 4)
    assert tokens(gpu, (), 1, NOW) == (3, None)
    assert tokens(gpu, (), 4, NOW) == (0, None)
    assert tokens(gpu, (), 9, NOW) == (0, None), "it was lowered while they ran"


def test_a_token_comes_back_a_window_and_its_slack_after_it_was_taken() -> None:
    assert tokens(MINUTE, (), 0, NOW) == (2, None)
    assert tokens(MINUTE, [after(-30)], 0, NOW) == (1, None)
    assert tokens(MINUTE, [after(-30), after(-10)], 0, NOW) == (0, after(-30) + SLOW)
    assert tokens(MINUTE, [after(-30), after(-10)], 0, after(-30) + SLOW) == (1, None)
    assert tokens(MINUTE, [after(-90), after(-80)], 0, NOW) == (2, None)


def test_a_lowered_limit_waits_until_enough_tokens_are_back() -> None:
    hits = [after(-40), after(-30), after(-20)]
    assert tokens(MINUTE, hits, 0, NOW) == (0, after(-30) + SLOW)


def test_a_limit_of_nothing_waits_for_a_person() -> None:
    assert tokens(Meter("x", 0, per=60), [after(-1)], 0, NOW) == (0, None)
    assert tokens(Meter("x", 0, per=60), (), 0, NOW) == (0, None)
    assert tokens(Meter("x", 0), (), 0, NOW) == (0, None)


def test_a_window_takes_so_many_since_it_opened() -> None:
    hits = [after(-61), after(-60), after(-1)]
    assert tokens(WINDOW, hits, 0, NOW) == (3, after(600))
    assert tokens(WINDOW, hits * 3, 0, NOW) == (0, after(600))


def test_only_what_can_still_count_is_worth_keeping() -> None:
    hits = [after(-62), NOW - SLOW, after(-61), after(-60), NOW]
    assert worth_keeping(MINUTE, hits, NOW) == [after(-61), after(-60), NOW]
    assert worth_keeping(WINDOW, hits, NOW) == [after(-60), NOW]


@settings(derandomize=True, max_examples=400, deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from([0.5, 1.0, 7.5, 60.0]),
    st.lists(st.tuples(st.floats(0, 90), st.integers(1, 4), st.floats(0, 1)), max_size=60),
)
def test_no_window_ever_holds_more_calls_than_the_limit(
    most: int, per: float, asks: list[tuple[float, int, float]]
) -> None:
    """Whenever it is asked, and however late within its slack a granted call begins."""
    meter, now = Meter("x", most, per=per), NOW
    hits: list[datetime] = []
    begun: list[datetime] = []
    for wait, wanted, delay in asks:
        now += timedelta(seconds=wait * per / 60)
        free, until = tokens(meter, hits, 0, now)
        granted = min(free, wanted)
        assert 0 <= free <= most
        if not free:
            assert until > now
            assert tokens(meter, hits, 0, until - timedelta(microseconds=1))[0] == 0, "it is not there before"
            assert tokens(meter, hits, 0, until)[0] > 0, "it is there when it was promised"
        hits = worth_keeping(meter, hits, now) + [now] * granted
        begun += [now + delay * 0.8 * slack(per)] * granted
    begun.sort()
    for first, beyond in zip(begun, begun[most:], strict=False):
        assert beyond - first >= timedelta(seconds=per), "one more than the limit in a window"


# -- several at once


def offered(
    *meters: Meter, hits: dict[str, list[datetime]] | None = None, running: dict[str, int] | None = None,
    calls: int = 10, batch: int = 1,
) -> tuple[int, int, bool, datetime | None]:  # fmt: skip
    """Calls and items that one ask is offered; whether it is refused, and when it may come back."""
    ask = Ask(share(limit=1_000), meters)
    rows = [MeterRow(name, None, None, log) for name, log in (hits or {}).items()]
    budget = MeterBudget([ask], rows, running or {}, NOW)
    if refused := budget.refusal(ask):
        return 0, 0, refused.is_refused, refused.until
    granted, part = budget.offer(ask, calls, batch)
    return granted, part.limit if part else 0, False, None


def test_all_meters_must_have_room() -> None:
    gpu, minute = Meter("gpu", 3), MINUTE
    assert offered(gpu, minute, hits={"boeing": [after(-5)]}, running={"gpu": 1}) == (1, 1, False, None)
    assert offered(gpu, running={"gpu": 1}, batch=5) == (2, 10, False, None)
    assert offered(gpu, minute, running={"gpu": 3}) == (0, 0, True, None), "until something ends"
    assert offered(gpu, minute, hits={"boeing": [NOW, NOW]}) == (0, 0, True, NOW + SLOW)
    assert offered(gpu, minute, hits={"boeing": [NOW, NOW]}, running={"gpu": 3}) == (0, 0, True, None)


def test_of_several_that_have_no_room_the_last_says_when_to_come_back() -> None:
    other = Meter("other", 1, per=3600)
    assert offered(MINUTE, other, hits={"boeing": [NOW, NOW], "other": [NOW]})[3] == after(3672)


def test_a_batch_costs_one_call() -> None:
    assert offered(MINUTE, batch=25) == (2, 50, False, None)
    assert offered(calls=3, batch=25) == (3, 75, False, None)


def test_a_window_caps_items_and_not_calls() -> None:
    assert offered(WINDOW, batch=2) == (3, 5, False, None)
    assert offered(WINDOW, MINUTE, batch=2) == (2, 4, False, None)
    assert offered(WINDOW, hits={WINDOW.name: [NOW] * 5}, batch=2) == (0, 0, True, after(600))


def test_whoever_asks_for_nothing_gets_nothing() -> None:
    assert offered(MINUTE, calls=0, batch=10) == (0, 0, False, None)


def test_items_under_suspicion_share_no_call_with_others_and_come_last() -> None:
    plain, suspect = an_item(), an_item(crashes=1)
    calls = [len(call) for call in calls_of([suspect] * 2 + [plain] * 12, 10)]
    assert calls == [10, 2, 1, 1]
    assert len(list(calls_of([suspect] * 2 + [plain] * 10, 1))) == 12
    assert list(calls_of([], 10)) == []


def test_items_under_suspicion_are_called_together_while_one_more_crash_sends_none_of_them_to_review() -> None:
    first, again = an_item(crashes=1), an_item(crashes=2)
    last_try = an_item(crashes=1, attempt=4, max_attempts=5)
    rules = Suspects(crash_limit=3, tries=100)
    calls = list(calls_of([again, first, last_try, an_item()] + [first] * 10, 10, rules))
    assert [[item.crashes for item in call] for call in calls] == [[0], [1] * 10, [1], [2], [1]]
    assert [len(call) for call in calls_of([first] * 3, 10, Suspects(crash_limit=2, tries=100))] == [1, 1, 1]
