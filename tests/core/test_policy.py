"""Retry policies: the arithmetic of seed 001, and nothing that overflows."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.core.policy.retry import LONGEST, LOOK_BACK, Windows, class_name, class_names, spread, windows_of
from duly.policy import NEVER, Backoff, ByError, Daily, Retry
from tests.support import NOW, after


class Busy(Exception):
    class Line(Exception):
        pass


class VeryBusy(Busy):
    pass


def delays(policy: Backoff, count: int = 5) -> list[float]:
    return [policy.delay(failures) for failures in range(1, count + 1)]


def test_the_delays_of_the_reminders_are_a_minute_then_two_then_four() -> None:
    policy = Backoff(base=60, factor=2, tries=3)
    assert delays(policy, 3) == [60, 120, 240]
    assert [policy.delay_for(failures, "seed") for failures in (1, 2, 3)] == [60, 120, 240]
    assert policy.tries_for(("my.Error",)) == 3


def test_no_delay_exceeds_the_cap() -> None:
    assert delays(Backoff(base=60, cap=200)) == [60, 120, 200, 200, 200]
    assert delays(Backoff(base=60, cap=60)) == [60] * 5
    assert delays(Backoff(base=60, cap=10)) == [10] * 5, "not even the first"
    assert delays(Backoff(base=60, cap=0)) == [0] * 5


def test_a_factor_of_one_is_a_steady_delay() -> None:
    assert delays(Backoff(base=7, factor=1)) == [7] * 5


def test_a_base_of_zero_is_at_once() -> None:
    assert delays(Backoff(base=0)) == [0] * 5
    assert (NEVER.tries_for(()), NEVER.delay(1)) == (1, 0)


def test_a_factor_may_be_a_fraction() -> None:
    assert delays(Backoff(base=8, factor=1.5), 3) == [8, 12, 18]


def test_no_failure_yet_waits_like_the_first() -> None:
    assert Backoff(base=60).delay(0) == Backoff(base=60).delay(-5) == 60


@pytest.mark.parametrize("failures", [10**9, 10**18])
@pytest.mark.parametrize(
    "policy",
    [Backoff(), Backoff(factor=1), Backoff(base=1e-6, factor=1.5), Backoff(base=0), Backoff(cap=LONGEST, factor=1e6)],
    ids=str,
)
def test_a_billion_failures_overflow_nothing(policy: Backoff, failures: int) -> None:
    assert policy.delay(failures) == (policy.cap if policy.base and policy.factor > 1 else policy.base)
    timedelta(seconds=policy.delay_for(failures, "seed"))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.builds(
        Backoff,
        base=st.just(0) | st.floats(1e-6, LONGEST),
        factor=st.floats(1, 1e6),
        cap=st.floats(0, LONGEST),
        jitter=st.floats(0, LONGEST),
    ),
    st.integers(0, 10**12),
    st.text(),
)
def test_delays_never_shrink_and_stay_within_bounds(policy: Backoff, failures: int, seed: str) -> None:
    assert 0 <= policy.delay(failures) <= policy.delay(failures + 1) <= policy.cap
    assert policy.delay(failures) <= policy.delay_for(failures, seed) <= policy.cap + policy.jitter


def test_jitter_spreads_and_is_the_same_for_the_same_try() -> None:
    policy = Backoff(base=60, factor=1, jitter=10)
    found = [policy.delay_for(1, str(n)) for n in range(1000)]
    assert found == [policy.delay_for(1, str(n)) for n in range(1000)]
    assert min(found) >= 60
    assert max(found) < 70
    assert sum(delay < 65 for delay in found) in range(400, 600)
    assert 0 <= spread("any") < 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("base", "cap", "jitter") for value in (-1, float("nan"), LONGEST * 2, "60", None)),
        *(("base", value) for value in (1e-7, 5e-324)),
        *(("factor", value) for value in (0.5, 1e7, float("nan"), "2")),
        *(("tries", value) for value in (0, -1, 1_000_001, 2.5, "3")),
    ],
)
def test_a_bad_value_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: must be .*, got "):
        Backoff(**{name: value})


# -- by error

FAST, SLOW = Backoff(base=1, tries=9), Backoff(base=100, tries=2)


def test_an_error_is_found_by_its_class() -> None:
    policy = ByError({Busy: FAST})
    assert policy.policy_for(class_names(Busy())) is FAST
    assert policy.tries_for(class_names(Busy())) == 9
    assert policy.next_at(NOW, 1, class_names(Busy()), "seed") == NOW + timedelta(seconds=1)


def test_an_error_is_found_by_its_base_class_and_the_nearest_wins() -> None:
    assert ByError({Busy: FAST, Exception: SLOW}).policy_for(class_names(VeryBusy())) is FAST
    assert ByError({Exception: SLOW, VeryBusy: FAST}).policy_for(class_names(VeryBusy())) is FAST


def test_an_error_is_found_by_its_dotted_name() -> None:
    policy = ByError({f"{__name__}.Busy.Line": FAST, "ValueError": SLOW})
    assert policy.policy_for(class_names(Busy.Line())) is FAST
    assert policy.policy_for(class_names(UnicodeError())) is SLOW, "a ValueError by birth"


def test_all_other_errors_have_the_default() -> None:
    assert ByError({Busy: FAST}, default=SLOW).policy_for(class_names(KeyError())) is SLOW
    assert ByError({Busy: FAST}).policy_for(()) == Backoff()


def test_policies_nest() -> None:
    policy = ByError({OSError: ByError({TimeoutError: FAST}, default=SLOW)})
    assert policy.tries_for(class_names(TimeoutError())) == 9
    assert policy.tries_for(class_names(ConnectionError())) == 2
    assert isinstance(policy, Retry)


def test_a_value_that_is_no_policy_is_named() -> None:
    with pytest.raises(ValueError, match=r"policies\[KeyError\]: must be a retry policy, got 5"):
        ByError({KeyError: 5})


def test_policies_are_values() -> None:
    assert ByError({Busy: FAST}) == ByError({f"{__name__}.Busy": FAST})
    assert len({ByError({Busy: FAST}), ByError({Busy: FAST}), ByError({Busy: SLOW})}) == 2
    assert Backoff(base=60) == Backoff(base=60.0)


def test_classes_are_named_nearest_first_without_the_roots() -> None:
    assert class_names(VeryBusy()) == (f"{__name__}.VeryBusy", f"{__name__}.Busy", "Exception")
    assert class_names(KeyboardInterrupt()) == ("KeyboardInterrupt",)
    assert class_name(Busy.Line) == f"{__name__}.Busy.Line"


# -- windows

SIX = Windows("30 2-22/4 * * *", cap=50)  # NOW is nine o'clock


def test_a_window_is_known_by_when_it_opened_and_when_the_next_one_does() -> None:
    assert SIX.around(NOW) == (after(-9_000), after(5_400))
    assert SIX.around(after(5_399.999999)) == (after(-9_000), after(5_400))
    assert SIX.around(after(5_400)) == (after(5_400), after(5_400 + 14_400)), "it is open at its very minute"
    assert SIX.around(NOW) == (after(-9_000), after(5_400)), "also when asked about the past again"


def test_failures_wait_for_the_next_window_and_keep_their_order_there() -> None:
    moments = [after(n * 600) for n in range(9)]
    times = [SIX.next_at(moment, 1, (), "seed") for moment in moments]
    assert times == sorted(set(times))
    assert all(after(5_400) <= at < after(5_401) for at in times)
    assert SIX.tries_for(()) == 1_000_000


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.integers(0, 400 * 86_400), st.integers(1, 86_400))
def test_who_failed_first_is_never_behind(first: int, later: int) -> None:
    one, two = (SIX.next_at(after(seconds), 1, (), "") for seconds in (first, first + later))
    assert one < two
    assert one > after(first)


def test_windows_follow_the_clock_of_their_zone() -> None:
    assert Windows(Daily("10:30"), zone="Europe/Zagreb").around(NOW) == (after(-86_400 + 1_800), after(1_800))


def test_windows_that_will_not_open_again_are_a_year_away() -> None:
    class Over:
        def next(self, *_: object) -> None:
            return None

    assert Windows(Over()).around(NOW) == (NOW - LOOK_BACK, NOW + LOOK_BACK)


def test_windows_are_values_and_found_behind_errors() -> None:
    assert SIX == Windows("30 2-22/4 * * *") == Windows("cron 30 2-22/4 * * *")
    assert isinstance(SIX, Retry)
    assert windows_of(SIX) is SIX
    assert windows_of(FAST) is None
    assert windows_of(ByError({Busy: FAST}, default=SIX)) is SIX
    assert windows_of(ByError({OSError: ByError({Busy: SIX})})) is SIX
    assert windows_of(ByError({Busy: FAST})) is None
    assert ByError({Busy: SIX}).has_windows
    assert not ByError({Busy: FAST}).has_windows


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"cap": 0}, "cap"),
        ({"cap": True}, "cap"),
        ({"cap": 1.5}, "cap"),
        ({"cap": 100_001}, "cap"),
        ({"tries": 0}, "tries"),
        ({"tries": "3"}, "tries"),
        ({"zone": "Mars/Phobos"}, "zone"),
        ({"rule": "now and then"}, "rule"),
    ],
)
def test_a_bad_value_of_windows_is_named(given: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}: must be|^{named}: "):
        Windows(**{"rule": "30 2 * * *", **given})
