"""The pace of calls to a provider, in virtual time."""

from __future__ import annotations

import pytest

from duly.core.policy.adapt import Average
from duly.core.policy.pace import Call, Pace, Pacing
from tests.core.adapt.provider import NOON, Adaptive, Provider, best_constant, run

BOUNDS = Pace("p")
MINUTE = 60.0
# Fifty good answers a second, each after 0.2 s.
GOOD = tuple(0.9 + n / 1_000 for n in range(50))
KNOWN = Pacing(top=10.0, since=0.0, used=10.0, answers=GOOD, latency=Average(30.0, 0.2))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_provider_with_a_limit_that_slows_down_at_noon(seed: int) -> None:
    """The issue's own case: 429 above 20 calls a second, and three times as slow after noon."""
    start, end = NOON - 10 * MINUTE, NOON + 10 * MINUTE
    policy = Adaptive(start)
    told = run(Provider(seed=seed), policy, start, end)
    for phase_start, phase_end in ((start + 2 * MINUTE, NOON), (NOON + 3 * MINUTE, end)):
        calls, best = best_constant(lambda: Provider(seed=seed), phase_start, phase_start + 15)
        settled = told.rate(phase_start, phase_end)
        print(f"best constant {calls} at a time: {best:.1f}/s; settled at {settled:.1f}/s")
        assert settled >= 0.8 * best
        levels = [level for at, level in policy.levels if phase_start <= at < phase_end]
        assert max(levels) <= 1.4 * min(levels), "it does not swing"
        decreases = sum(phase_start <= at < phase_end for at in policy.decreases)
        assert decreases <= 2.5 * (phase_end - phase_start) / MINUTE
    assert told.error_share(start, end) < 0.02
    assert told.rate(NOON + MINUTE, NOON + 2 * MINUTE) > 0.8 * best, "a slower provider gets more calls at a time soon"


def test_a_provider_that_breaks_down_under_load_is_kept_at_what_it_can_do() -> None:
    """At noon it manages only ten answers a second; more calls at a time only wait, and time out in the end."""
    start, end = NOON - 5 * MINUTE, NOON + 15 * MINUTE

    def make() -> Provider:
        return Provider(limit=1000, latency=lambda at: 0.2, capacity=lambda at: 40.0 if at < NOON else 10.0)

    policy = Adaptive(start, Pace("p", most=128.0))
    told = run(make(), policy, start, end)
    _, best = best_constant(make, NOON + 5 * MINUTE, NOON + 5.5 * MINUTE)
    assert told.rate(NOON + 5 * MINUTE, end) >= 0.8 * best
    assert told.error_share(start, end) < 0.02


def test_a_lower_limit_is_found_within_seconds() -> None:
    start = 0.0
    provider = Provider(latency=lambda at: 0.2)
    policy = Adaptive(start)
    run(provider, policy, start, 120.0)
    provider.limit = 4
    told = run(provider, policy, 120.0, 240.0)
    assert told.error_share(130.0, 240.0) < 0.05
    assert told.rate(150.0, 240.0) > 0.8 * 4


def test_an_outage_is_met_with_patience_and_recovered_from() -> None:
    provider = Provider(limit=0)
    policy = Adaptive(0.0)
    told = run(provider, policy, 0.0, 600.0)
    assert len(told.bad) < 600, "a provider that only refuses is hardly called"
    provider.limit = 20
    told = run(provider, policy, 600.0, 1_800.0)
    assert told.rate(1_500.0, 1_800.0) > 0.8 * 20


def _call(at: float, **more: object) -> Call:
    return Call(started=at, ended=at + 0.2, **more)  # type: ignore[arg-type]


def test_one_burst_of_refusals_is_one_decrease() -> None:
    pace = KNOWN
    for n in range(5):
        pace = pace.after(_call(1.0 + n / 100, trouble="throttled"), BOUNDS)
    assert pace.level(1.2, BOUNDS) == pytest.approx(8.5, rel=0.01)
    assert pace.after(_call(2.0, trouble="throttled"), BOUNDS).level(2.2, BOUNDS) < 8.0


def test_a_first_overshoot_is_brought_down_to_what_was_answered() -> None:
    eager = Pacing(top=40.0, since=0.0, used=40.0, answers=GOOD[:20], latency=Average(30.0, 0.2))
    once = eager.after(_call(1.0, trouble="throttled"), BOUNDS)
    assert once.level(1.2, BOUNDS) == pytest.approx(0.85 * 20), "at most a half"
    twice = once.after(_call(1.4, trouble="throttled"), BOUNDS)
    assert twice.level(1.6, BOUNDS) == pytest.approx(0.85 * 0.85 * 10, rel=0.05)
    quick = Pacing(top=9.0, since=0.0, used=9.0, answers=tuple(n / 100 for n in range(64)), latency=Average(30.0, 0.1))
    assert quick.after(_call(0.5, trouble="throttled"), BOUNDS).top == 9.0, "a hundred a second, of which 64 are known"


def test_a_slow_provider_gets_no_more_calls_than_the_most_and_is_asked_at_least_now_and_then() -> None:
    one = Pace("p", most=1)
    hung = Pacing(top=1.0, since=0.0, used=1.0, latency=Average(30.0, 1_800.0))
    assert (hung.concurrency(10.0, one), hung.gap(10.0, one)) == (1, one.longest_gap)
    after = hung.after(Call(started=1.0, ended=1_801.0, trouble="timeout"), one)
    assert after.recovery == one.longest_recovery


def test_time_outs_weigh_more_and_other_troubles_do_not_count() -> None:
    pace = KNOWN
    assert pace.after(_call(1.0, trouble="timeout"), BOUNDS).level(1.2, BOUNDS) == pytest.approx(6.0)
    assert pace.after(_call(1.0, trouble="not_found"), BOUNDS).level(1.2, BOUNDS) == 10.0


def test_the_level_comes_back_to_where_the_trouble_was_and_then_beyond() -> None:
    pace = Pacing(top=10.0, since=0.0, kept=0.85, recovery=30.0, used=10.0)
    levels = [pace.level(at, BOUNDS) for at in (0.0, 15.0, 30.0, 45.0, 90.0, 10_000.0)]
    assert levels[:3] == [pytest.approx(8.5), pytest.approx(9.8, rel=0.01), pytest.approx(10.0)]
    assert levels[3] < 10.3 < levels[4]
    assert levels[5] == 16.0, "no further than what is used, and a half"


def test_a_provider_that_says_when_is_left_alone_until_then() -> None:
    pace = KNOWN.after(_call(1.0, trouble="throttled", retry_after=7.0), BOUNDS)
    assert pace.not_before == pytest.approx(8.2)
    endless = pace.after(_call(2.0, trouble="throttled", retry_after=1e9), BOUNDS)
    assert endless.not_before == pytest.approx(302.2)


def test_nothing_known_means_one_call_and_no_delay() -> None:
    pace = Pacing.first(5.0, BOUNDS)
    assert (pace.concurrency(5.0, BOUNDS), pace.gap(5.0, BOUNDS)) == (1, 0.0)
    assert pace.after(_call(5.0), BOUNDS).concurrency(5.2, BOUNDS) == 3
    assert pace.throttled.get(0.0) == 0.0
