"""The pace against whole providers, in virtual time: a few of those that `python -m bench.pace --providers` draws."""

from __future__ import annotations

import pytest
from bench.pace.provider import Outage, Traits
from bench.pace.virtual import Adaptive, Ends, best_constant, count, run

from duly.core.policy.pace import Pace

# Answers in 0.1 s and takes any number of calls at a time: 16 at a time are 160 a second.
OPEN = Traits(kind="queue", slots=1_000, latency=0.1)
SIXTEEN = Pace("p", most=16)


def paced(traits: Traits, end: float, workers: int = 1, bounds: Pace | None = None) -> list[Ends]:
    return run(traits, [Adaptive(bounds=bounds) for _ in range(workers)], end)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.05])
def test_errors_that_do_not_come_with_load_do_not_slow_a_pace_down(share: float) -> None:
    (ends,) = paced(Traits(kind="queue", slots=1_000, latency=0.1, errors=share), 60.0, bounds=SIXTEEN)
    assert ends.rate(20.0, 60.0) >= 0.85 * 160 * (1 - share)


@pytest.mark.parametrize(("seconds", "hangs"), [(5.0, False), (10.0, False), (60.0, False), (60.0, True)])
def test_within_seconds_after_an_outage_most_of_the_former_pace_is_back(seconds: float, hangs: bool) -> None:
    outage = Outage(20.0, seconds, hangs)
    traits = Traits(kind="queue", slots=1_000, latency=0.1, errors=0.01, outage=outage)
    back = outage.end + 15
    (ends,) = paced(traits, back + 20, bounds=SIXTEEN)
    assert ends.rate(back, back + 20) >= 0.8 * 160
    assert count(ends.begun, outage.start, outage.end) <= 40 + seconds / 5, "a few, and then one probe in five seconds"


def test_eight_workers_send_as_many_probes_as_eight_workers_and_no_more() -> None:
    outage = Outage(20.0, 600.0)
    seen = paced(Traits(kind="queue", slots=1_000, latency=0.5, outage=outage), 660.0, workers=8, bounds=SIXTEEN)
    assert sum(count(each.begun, 60.0, 620.0) for each in seen) <= 8 * (560 / 5 + 1)
    assert sum(each.rate(635.0, 660.0) for each in seen) >= 0.8 * 8 * 32


LIMITS = {
    "a bucket of tokens": Traits(kind="tokens", rate=20.0, burst=20.0, latency=0.2),
    "a bucket of tokens, with Retry-After": Traits(kind="tokens", rate=8.0, burst=40.0, latency=0.5, tells=True),
    "a window of a second": Traits(kind="window", rate=20.0, window=1.0, latency=0.3),
    "a window of a minute": Traits(kind="window", rate=5.0, window=60.0, latency=0.2),
    "a window of a minute, with Retry-After": Traits(kind="window", rate=5.0, window=60.0, latency=0.2, tells=True),
    "six calls at a time": Traits(kind="slots", slots=6, latency=0.5),
    "six calls at a time, and then 503": Traits(kind="busy", slots=6, latency=0.5),
    "errors above six calls at a time": Traits(kind="strain", slots=6, latency=0.5),
    "a queue above six calls at a time": Traits(kind="queue", slots=6, latency=0.5),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_pace_finds_nine_tenths_of_the_best_constant_pace(name: str) -> None:
    traits = LIMITS[name]
    (ends,) = paced(traits, 420.0)
    _, best = best_constant(traits, 180.0, 240.0)
    assert ends.rate(180.0, 420.0) >= 0.9 * best
    begun = count(ends.begun, 180.0, 420.0)
    assert count(ends.refused, 180.0, 420.0) <= 0.02 * begun
    assert count(ends.failed, 180.0, 420.0) <= 0.08 * begun


@pytest.mark.parametrize(("workers", "rate"), [(2, 20.0), (4, 20.0), (8, 40.0)])
def test_workers_that_share_a_provider_get_as_much_together_and_about_the_same_each(workers: int, rate: float) -> None:
    seen = paced(Traits(kind="tokens", rate=rate, burst=rate, latency=0.2), 300.0, workers)
    each = [ends.rate(120.0, 300.0) for ends in seen]
    assert sum(each) >= 0.9 * rate
    assert sum(each) ** 2 >= 0.8 * workers * sum(one * one for one in each), "Jain's index of fairness"
    assert sum(len(ends.refused) for ends in seen) <= 0.03 * sum(len(ends.begun) for ends in seen)


@pytest.mark.parametrize(("change", "slowdown"), [(0.5, 1.0), (2.0, 1.0), (1.0, 3.0)])
def test_a_provider_that_changes_at_noon_is_followed(change: float, slowdown: float) -> None:
    noon = Traits(kind="tokens", rate=20.0, burst=20.0, latency=0.2, noon=120.0, change=change, slowdown=slowdown)
    (ends,) = paced(noon, 400.0)
    assert ends.rate(60.0, 120.0) >= 0.85 * 20
    assert ends.rate(240.0, 400.0) >= 0.9 * 20 * change


def test_workers_that_overload_a_provider_together_slow_down_together() -> None:
    """Each of them sees that its own trial does not help much: only all together are too many."""
    seen = paced(Traits(kind="busy", slots=16, latency=0.3), 300.0, workers=4)
    begun = sum(count(each.begun, 100.0, 300.0) for each in seen)
    assert sum(each.rate(100.0, 300.0) for each in seen) >= 0.8 * 16 / 0.3
    assert sum(count(each.failed, 100.0, 300.0) for each in seen) <= 0.15 * begun
