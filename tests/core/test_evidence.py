"""What the failures of a source since its last answer show, how they fade, and that adding one costs no more later."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.policy.evidence import FADED, FRESH, Evidence, Failure
from duly.core.policy.outage import AWAY, HUNG, MANIFOLD, MIXED, SEVERAL, SHARE, Source
from tests.support import NOW, after

SOURCE = Source("boeing")
OUT, ODD = "OSError no route", "ValueError no price"

Calls = list[list[Failure]]


def calls(*sizes: int, cause: str = OUT, first: int = 0, **more: Any) -> Calls:
    """Failed calls of so many new items each."""
    numbers = iter(range(first, first + sum(sizes)))
    return [[Failure(next(numbers), cause, **more) for _ in range(size)] for size in sizes]


def same(count: int) -> Calls:
    """One item that fails again and again."""
    return [[Failure(7, OUT)] for _ in range(count)]


def mixed(count: int, size: int = 1, **more: Any) -> Calls:
    """Different items that fail for two causes by turns, in calls of so many."""
    failures = [Failure(n, (OUT, ODD)[n % 2], **more) for n in range(count)]
    return [failures[at : at + size] for at in range(0, count, size)]


def found(made: Calls, doubt: int = 1, at: datetime = NOW) -> str | None:
    evidence = Evidence(SOURCE, doubt)
    for call in made:
        evidence.add(at, call)
    return evidence.cause()


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ([], None),
        (calls(10), None),  # one call may fail for a reason of its own, however many rows it is about
        (calls(10, 10), None),
        (calls(10, 10, 10), OUT),
        (calls(*[1] * 9), None),
        (calls(*[1] * 10), OUT),
        (same(500), None),  # one that fails alone says nothing
        (calls(*[1] * 20, is_new=False), None),  # nor do those that failed before while the source was well
        (calls(*[1] * 20, is_new=False) + calls(*[1] * 10), OUT),
        (calls(*[1] * 10) + calls(*[1] * 20, is_new=False), OUT),
        (calls(*[1] * 9, cause=ODD) + calls(*[1] * 10), OUT),  # only the last ones count
        (calls(1, cause=ODD) + calls(*[1] * 9), OUT),  # nearly everything
        (calls(1, 1, cause=ODD) + calls(*[1] * 8), None),
        (calls(*[1] * 5, cause=ODD) + calls(*[1] * 5), None),  # two causes are not one fact
        (calls(1, 1, 1, cause=AWAY, is_last=True), AWAY),  # before anybody is given up
        (calls(1, 1, cause=AWAY, is_last=True), None),
        (calls(3, cause=AWAY, is_last=True), None),
        (calls(1, 1, 1, cause=AWAY), None),
        (calls(1, cause=ODD, is_last=True) + calls(1, 1, 1, cause=AWAY), None),
        (calls(1, 1, 1, is_last=True), None),  # three bad items with the same fault are given up
        (mixed(30), MIXED),  # so many that it does not matter why
        (mixed(29), None),
        ([*mixed(29), *mixed(29)], None),  # different items
        (mixed(30, is_new=False), None),
        (mixed(30, size=15), None),
        (calls(*[1] * 10, cause=HUNG), HUNG),
        (calls(1, 1, 1, cause=HUNG, is_last=True), None),  # three that hang are given up
        (calls(*[1] * 4, cause=HUNG) + calls(*[1] * 6, cause=AWAY, first=4), AWAY),
        (calls(*[1] * 6, cause=HUNG) + calls(*[1] * 4, cause=AWAY, first=6), HUNG),
        (calls(1, cause=HUNG) + calls(1, 1, cause=AWAY, first=1, is_last=True), AWAY),
    ],
)
def test_a_source_is_down_when_nearly_everything_fails_for_one_cause(made: Calls, cause: str | None) -> None:
    assert found(made) == cause


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (calls(*[1] * 39), None),
        (calls(*[1] * 40), OUT),
        (calls(*[1] * 11, cause=AWAY, is_last=True), None),
        (calls(*[1] * 12, cause=AWAY, is_last=True), AWAY),
        (mixed(119), None),
        (mixed(120), MIXED),
    ],
)
def test_with_doubt_it_takes_as_many_times_as_many(made: Calls, cause: str | None) -> None:
    assert found(made, 4) == cause


# -- fading


def test_what_failed_in_the_morning_is_no_evidence_in_the_evening() -> None:
    evidence = Evidence(SOURCE)
    for call in calls(*[1] * 9):
        evidence.add(NOW, call)
    evidence.add(NOW + FRESH, [Failure(9, OUT)])
    assert evidence.cause() is None
    assert len(evidence) == 2, "of the nine, one still counts for its hour"


def test_a_source_that_is_asked_once_an_hour_is_found_to_be_down() -> None:
    evidence = Evidence(SOURCE)
    for hour in range(10):
        assert evidence.cause() is None
        evidence.add(NOW + hour * FRESH, [Failure(hour, OUT)])
    assert evidence.cause() == OUT


def test_after_a_day_nothing_counts() -> None:
    evidence = Evidence(SOURCE)
    for n in range(9):
        evidence.add(NOW + n * timedelta(hours=3), [Failure(n, OUT)])
    assert len(evidence) == 8
    evidence.add(NOW + 9 * FADED, [Failure(10, OUT)])
    assert len(evidence) == 1
    assert 0 not in evidence
    assert 10 in evidence


def test_a_clock_that_is_set_back_forgets_nothing() -> None:
    evidence = Evidence(SOURCE)
    for n, call in enumerate(calls(*[1] * 10)):
        evidence.add(after(-60 * n), call)
    assert evidence.cause() == OUT


# -- the same finding as by looking at everything


def by_hand(made: Sequence[Sequence[Failure]], tries: int) -> str | None:
    new = [(failure, number) for number, call in enumerate(made) for failure in call if failure.is_new]
    last: list[tuple[Failure, int]] = []
    for each in reversed(new):
        if len(last) >= tries and len({number for _, number in last}) >= SEVERAL:
            break
        last.append(each)
    if len({number for _, number in last}) < SEVERAL or len({failure.subject for failure, _ in last}) < SEVERAL:
        return None
    causes = Counter(failure.cause for failure, _ in last)
    away, hung = causes[AWAY], causes[HUNG]
    if away + hung >= SHARE * len(last):
        is_urgent = away >= hung and any(each.is_last and each.cause == AWAY for call in made for each in call)
        if len(last) < (SEVERAL if is_urgent else tries):
            return None
        return AWAY if away >= hung else HUNG
    cause, count = causes.most_common(1)[0]
    if count >= SHARE * len(last):
        return cause if len(last) >= tries else None
    return MIXED if len({failure.subject for failure, _ in new}) >= MANIFOLD * tries else None


failures = st.builds(
    Failure,
    st.integers(0, 12),
    st.sampled_from([AWAY, HUNG, OUT, ODD, OUT]),
    st.booleans(),
    st.sampled_from([False, False, True]),
)


@given(st.lists(st.lists(failures, min_size=1, max_size=4), max_size=40), st.sampled_from([3, 4, 7]))
def test_what_is_counted_is_what_there_is(made: Calls, tries: int) -> None:
    evidence = Evidence(Source("x", tries=tries))
    for count, call in enumerate(made, 1):
        evidence.add(NOW, call)
        kept = [[*each.failures] for each in evidence._fresh]
        assert kept == made[count - len(kept) : count]
        assert evidence.cause() == by_hand(kept, tries)


@given(st.lists(st.tuples(st.integers(0, 200), st.lists(failures, min_size=1, max_size=3)), max_size=40))
def test_what_has_faded_counts_no_more(made: list[tuple[int, list[Failure]]]) -> None:
    evidence, now = Evidence(Source("x", tries=4)), NOW
    for minutes, call in made:
        now += timedelta(minutes=minutes)
        evidence.add(now, call)
        kept = [*evidence._old, *evidence._fresh]
        assert [each for each in kept if each.at <= now - FADED] == []
        assert all(
            later.at - each.at >= FRESH for each, later in zip(evidence._old, [*evidence._old][1:], strict=False)
        )
        assert evidence.cause() == by_hand([[*each.failures] for each in kept], 4)
        assert len(evidence) == sum(len(each.failures) for each in kept)


def steps_of_one_more(evidence: Evidence, number: int) -> int:
    """How many lines of Python one more failure takes."""
    steps = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        evidence.add(NOW, [Failure(number, f"cause {number}")])
        evidence.cause()
    finally:
        sys.settrace(before)
    return steps


def test_one_more_failure_costs_the_same_however_many_are_remembered() -> None:
    evidence = Evidence(Source("x", tries=1_000))
    costs = {}
    for number in range(30_000):
        if number in (100, 10_000, 25_000):
            costs[number] = steps_of_one_more(evidence, number)
        else:
            evidence.add(NOW, [Failure(number, f"cause {number}")])
    assert len(evidence) == 20_000
    assert max(costs.values()) < 100, costs
