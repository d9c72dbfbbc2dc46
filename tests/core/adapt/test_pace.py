"""What single calls make of a pace: pure values, in and out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from duly.core.policy.adapt import Average
from duly.core.policy.pace import Call, Collapse, Pace, collapse
from duly.core.policy.pacing import Curve, Pacing, Proof
from duly.core.policy.suspicion import Errors

BOUNDS = Pace("p")
# Ten calls at a time, each 0.2 s: it had trouble at this level half a minute ago.
KNOWN = Pacing(
    curve=Curve(10.0, -30.0, 0.9, 30.0), proof=Proof(10.0, 0.2), latency=Average(30.0, 0.2), errors=Errors(),
)  # fmt: skip


def call(started: float, trouble: str | None = None, took: float = 0.2, **more: Any) -> Call:
    return Call(started=started, ended=started + took, in_flight=10, trouble=trouble, **more)  # type: ignore[arg-type]


def after(pace: Pacing, *calls: Call, bounds: Pace = BOUNDS) -> Pacing:
    for each in calls:
        pace = pace.after(each, bounds)
    return pace


def errors(since: float, count: int, trouble: str = "server") -> list[Call]:
    return [call(since + n / 50, trouble, took=0.02) for n in range(count)]


# -- growth


def test_nothing_known_means_one_call_and_no_delay() -> None:
    pace = Pacing.first(5.0, BOUNDS)
    assert (pace.concurrency(5.0, BOUNDS), pace.gap(5.0, BOUNDS)) == (1, 0.0)
    assert pace.turn(5.0, BOUNDS)[0] == 0.0
    assert after(pace, call(5.0)).concurrency(5.2, BOUNDS) == 2
    assert pace.throttled.get(0.0) == 0.0


def test_the_level_doubles_as_long_as_answers_do_not_take_longer_for_it() -> None:
    pace, at, widths = Pacing.first(0.0, BOUNDS), 0.0, []
    for _ in range(6):
        pace = after(pace, *(call(at + 0.01) for _ in range(10)))
        at += 1.0
        widths.append(pace.concurrency(at, BOUNDS))
    assert widths == [2, 4, 8, 16, 20, 20], "and ends at twice of what is used"


def test_growth_that_only_makes_answers_slower_is_taken_back() -> None:
    grown = Pacing(curve=Curve(64.0, 0.0), proof=Proof(4.0, 0.2), latency=Average(30.0, 0.2))
    assert grown.level(1.0, BOUNDS) == 8.0
    slow = after(grown, *(call(1.0, took=0.4) for _ in range(10)))
    assert slow.curve.top == 4.0
    assert slow.level(1.5, BOUNDS) < 4.0
    worth = after(grown, *(call(1.0, took=0.22) for _ in range(10)))
    assert worth.level(1.5, BOUNDS) == 16.0


def test_the_level_comes_back_to_where_the_trouble_was_and_then_beyond() -> None:
    pace = Pacing(curve=Curve(10.0, 0.0, 0.85, 30.0), proof=Proof(10.0))
    levels = [pace.level(at, BOUNDS) for at in (0.0, 15.0, 30.0, 45.0, 90.0, 10_000.0)]
    assert levels[:3] == [pytest.approx(8.5), pytest.approx(9.8, rel=0.01), pytest.approx(10.0)]
    assert levels[3] < 10.3 < levels[4]
    assert levels[5] == 20.0, "no further than twice of what is used"


def test_a_small_growth_is_judged_when_there_are_enough_answers() -> None:
    steady = after(KNOWN, *(call(0.1) for _ in range(20)))
    assert steady.proof == Proof(10.0, pytest.approx(0.2), 0.1 + 0.2)
    assert after(steady, call(0.2)).proof.calls == 0, "it began before"


def test_a_slow_provider_gets_no_more_calls_than_the_most_and_is_asked_at_least_now_and_then() -> None:
    one = Pace("p", most=1)
    hung = Pacing(curve=Curve(1.0, 0.0, 0.9), proof=Proof(1.0), latency=Average(30.0, 1_800.0))
    assert (hung.concurrency(10.0, one), hung.gap(10.0, one)) == (1, one.longest_gap)


def test_calls_that_began_late_are_made_up_for_within_bounds() -> None:
    wait, pace = KNOWN.turn(1.0, BOUNDS)
    assert (wait, pace.next_at) == (0.0, pytest.approx(1.0 - 3 * 0.02 + 0.02))
    starts = 0
    while (turn := pace.turn(1.0, BOUNDS))[0] == 0.0:
        starts, pace = starts + 1, turn[1]
    assert starts == 3


# -- 429


def test_one_burst_of_refusals_is_one_decrease() -> None:
    pace = after(KNOWN, *(call(1.0 + n / 100, "throttled") for n in range(5)))
    assert pace.level(1.2, BOUNDS) == pytest.approx(9.0, rel=0.01)
    assert pace.throttled.get(0.0) > 0


def test_a_provider_that_says_when_is_left_alone_until_then() -> None:
    pace = after(KNOWN, call(1.0, "throttled", retry_after=7.0))
    assert pace.not_before == pytest.approx(8.2)
    assert pace.turn(1.2, BOUNDS)[0] == pytest.approx(7.0)
    endless = after(pace, call(2.0, "throttled", retry_after=1e9))
    assert endless.not_before == pytest.approx(302.2)


def test_refused_again_at_once_means_probes_and_then_the_part_that_it_takes_in_the_long_run() -> None:
    """As a quota of a minute that is used up after 15 of 60 seconds."""
    begun = Pacing(curve=Curve(64.0, 0.0), proof=Proof(20.0, 0.2), latency=Average(30.0, 0.2))
    shut = after(begun, call(15.0, "throttled", took=0.0), call(16.0, "throttled", took=0.0))
    assert shut.shut is not None
    assert (shut.concurrency(17.0, BOUNDS), shut.gap(17.0, BOUNDS)) == (4, 1.0)
    for n in range(8):
        shut = after(shut, call(20.0 + 5 * n, "throttled", took=0.0))
    assert shut.gap(60.0, BOUNDS) == 5.0
    assert shut.level(60.0, BOUNDS) == pytest.approx(0.2 / 5.0)
    opened = after(shut, call(59.8))
    assert opened.curve.top == pytest.approx(20.0 * 15 / 60, rel=0.01)
    told = after(begun, call(15.0, "throttled", took=0.0, retry_after=45.0))
    assert told.curve.top == pytest.approx(20.0 * 15 / 60, rel=0.01), "the same when it says so itself"


def test_a_429_is_about_calls_a_second_also_when_answers_take_longer_later() -> None:
    pace = after(KNOWN, call(1.0, "throttled"))
    slower = after(pace, *(call(2.0, took=0.35) for _ in range(400)))
    assert slower.level(3.0, BOUNDS) > 1.6 * pace.level(3.0, BOUNDS)
    assert slower.gap(3.0, BOUNDS) == pytest.approx(pace.gap(3.0, BOUNDS), rel=0.01)


def test_refused_again_soon_means_still_less() -> None:
    pace = after(KNOWN, call(1.0, "throttled"), call(2.5), call(3.0, "throttled"))
    assert pace.curve.top == pytest.approx(0.9 * 9.0, rel=0.05)


# -- errors


def test_a_stray_error_changes_nothing() -> None:
    pace = after(KNOWN, call(1.0, "server"), call(1.1, "timeout"), call(1.2, "not_found"))
    assert pace.level(2.0, BOUNDS) == KNOWN.level(2.0, BOUNDS)
    assert pace.trial is None
    assert not Errors().is_down()


def mixed(since: float, share: int, count: int) -> list[Call]:
    """Every so manieth call fails."""
    return [call(since + n / 50, "server" if n % share == 0 else None) for n in range(count)]


def test_many_errors_mean_fewer_calls_on_trial_and_all_of_them_again_when_that_does_not_help() -> None:
    pace = after(KNOWN, *mixed(1.0, 4, 40))
    assert pace.trial is not None
    assert pace.level(1.9, BOUNDS) <= 9.0
    back = after(pace, *mixed(3.0, 4, 40), *mixed(5.0, 4, 40), *mixed(7.0, 4, 40))
    assert back.trial is None
    assert back.level(8.0, BOUNDS) == pytest.approx(10.0, rel=0.05)
    assert back.errors.usual.get(0.0) > 0.15, "and they are the usual ones now"
    again = after(back, *mixed(9.0, 4, 200))
    assert again.trial is None


def test_errors_that_vanish_with_fewer_calls_came_with_load() -> None:
    pace = after(KNOWN, *mixed(1.0, 4, 40))
    calm = after(pace, *(call(3.0 + n / 50) for n in range(60)))
    assert calm.trial is None
    assert calm.level(4.2, BOUNDS) < 9.6
    assert calm.errors.usual.get(1.0) == 0.0


def test_a_trial_halves_the_level_when_most_calls_fail() -> None:
    pace = after(KNOWN, *(call(1.0 + n / 50, "server" if n % 4 else None) for n in range(80)))
    assert pace.trial is not None or pace.shut is not None
    assert pace.level(3.0, BOUNDS) <= 5.0


def test_before_the_first_trouble_a_trial_goes_back_to_what_was_worth_it_and_on_from_there() -> None:
    begun = Pacing(curve=Curve(64.0, 0.0), proof=Proof(8.0, 0.2), latency=Average(30.0, 0.2))
    pace = after(begun, *mixed(1.0, 3, 9))
    assert pace.trial is not None
    assert pace.curve.top == 8.0
    back = after(pace, *mixed(3.0, 3, 30), *mixed(5.0, 3, 30), *mixed(7.0, 3, 30))
    assert back.curve.kept == 1.0, "it still looks for the limit"


# -- outages


def test_a_provider_that_is_down_gets_a_probe_now_and_then_and_most_of_the_level_with_its_first_answer() -> None:
    shut = after(KNOWN, *errors(1.0, 7))
    assert shut.shut is not None
    assert shut.turn(1.2, BOUNDS)[0] > 0.5
    probing = after(shut, *(call(3.0 + 5 * n, "server", took=0.02) for n in range(10)))
    assert probing.gap(60.0, BOUNDS) == BOUNDS.probe
    late = after(probing, call(0.9))
    assert late.shut is not None, "an answer to a call from before says nothing"
    back = after(probing, call(60.0))
    assert back.shut is None
    assert back.turn(60.2, BOUNDS)[0] == 0.0
    assert back.level(60.2, BOUNDS) == pytest.approx(7.0, rel=0.02)
    assert back.level(75.2, BOUNDS) > 9.5


def test_an_outage_that_comes_back_at_once_shows_that_the_level_was_too_much() -> None:
    back = after(KNOWN, *errors(1.0, 7), call(10.0))
    again = after(back, *errors(11.0, 8), call(30.0))
    assert again.curve.top < 0.6 * back.curve.top


def test_an_outage_during_a_trial_ends_at_the_level_from_before_the_trial() -> None:
    pace = after(KNOWN, *mixed(1.0, 4, 40))
    back = after(pace, *errors(3.0, 8), call(10.0))
    assert back.curve.top == pytest.approx(10.0, rel=0.05)


def test_an_outage_of_a_provider_that_was_never_seen_to_answer() -> None:
    pace = after(Pacing.first(0.0, BOUNDS), *errors(0.0, 7))
    assert pace.shut is not None
    refused = after(Pacing.first(0.0, BOUNDS), call(0.0, "throttled"))
    assert refused.curve.rate == 0.0
    assert refused.gap(1.0, BOUNDS) >= 1.0


def test_answers_of_calls_from_before_an_outage_do_not_hide_it() -> None:
    pace = after(KNOWN, call(1.0, "server", took=0.02))
    for n in range(7):
        pace = after(pace, call(0.95, took=0.1 + n / 100), call(1.03 + n / 100, "server", took=0.02))
    assert pace.shut is not None


# -- what people are told


def test_a_pace_has_collapsed_far_below_its_best_rate() -> None:
    assert collapse(1.0, 160.0, 120.0) == Collapse(1.0, 160.0)
    assert collapse(40.0, 160.0, 120.0) is None
    assert collapse(0.0, 0.01, 120.0) is None, "one call in a hundred seconds is too few to tell"


def test_bounds_are_checked() -> None:
    for wrong in ({"most": 0}, {"keep": 1.0}, {"recovery": math.nan}, {"probe": -1}, {"longest_wait": math.inf}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Pace("p", **wrong)  # type: ignore[arg-type]
    assert BOUNDS.trouble(("ValueError",)) is None
    assert BOUNDS.trouble(("x.TimedOut", "duly.outbound.http.OutboundError")) == "timeout"
