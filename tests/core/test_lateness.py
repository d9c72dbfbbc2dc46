"""What is late: what waits longer than its plan explains."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from duly.core.model import Lane
from duly.core.policy.lateness import BUSY, Holds, Use, explained, has_missed_windows, is_used_up, lateness
from duly.core.policy.limits import Limit
from duly.core.policy.retry import Windows

NOW = datetime(2026, 1, 1, 4, 0, tzinfo=UTC)
HOUR = 3_600.0
LIMITED = Holds((Limit("boeing", 2, per="1m").meter(),), Windows("30 2-22/4 * * *", cap=50))
DAY = 86_400 * 1.02 + BUSY.total_seconds()  # a call counts for a little longer than the limit's window
DAILY = Holds((Limit("boeing", 100, per="1d").meter(),))


@pytest.mark.parametrize(
    ("lane", "holds", "waited", "late"),
    [
        ("main", Holds(), 400, 400),
        ("main", Holds(), -5, 0),
        ("main", LIMITED, 630, 0),
        ("main", LIMITED, 3_601, 3_601),
        ("main", DAILY, 10_800, 0),  # a window of its limit it may wait
        ("main", DAILY, 90_000, 90_000),
        ("main", Holds(until=NOW - timedelta(hours=1)), 80_000, 0),  # its source was down until an hour ago
        ("main", Holds(until=NOW - timedelta(hours=1)), 3_000, 3_000),
        ("retry", Holds(), 400, 400),
        ("retry", LIMITED, 6 * 3_600, 5_400),  # left over at 22:30 and at 02:30: its time began at 02:30
        ("retry", LIMITED, 60, 60),
    ],
)
def test_what_a_limit_or_a_window_holds_back_is_not_late(lane: Lane, holds: Holds, waited: float, late: float) -> None:
    assert lateness(lane, NOW - timedelta(seconds=waited), NOW, holds, HOUR) == late


def use(most: int, per: float | None, first: float | None = None, last: float | None = None, under_way: int = 0) -> Use:
    """A limit whose last calls, enough to use it up, were between so many seconds ago."""

    def ago(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    return Use(most, per, most - most // 10, ago(first), ago(last), under_way)


@pytest.mark.parametrize(
    ("limit", "is_full"),
    [
        (use(2, 60, first=40, last=10), True),
        (use(2, 60, first=70, last=BUSY.total_seconds() + 60), True),  # the window before was full
        (use(2, 60, first=125, last=BUSY.total_seconds() + 61), False),  # it has room for long
        (use(2, 60, first=100, last=30), False),  # the two were more than a window apart
        (use(1_000, 60, last=30), False),  # there were not so many calls
        (use(100, 86_400, first=3 * HOUR + 60, last=3 * HOUR), True),
        (use(2, 60), False),
        (use(0, 60), True),  # a person set it to nothing
        (use(10, None, under_way=1), False),
        (use(10, None, under_way=9), True),
        (use(1, None, under_way=1), True),
        (use(1, None), False),
    ],
)
def test_a_limit_explains_what_waits_only_while_it_is_nearly_used_up(limit: Use, is_full: bool) -> None:
    assert is_used_up(limit, NOW) is is_full


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ([], 0),
        ([(use(2, 60), 208)], HOUR + 208 * 30),
        ([(use(100, 86_400), 50)], DAY + 50 * 864),
        ([(use(10, None), 500)], HOUR),
        ([(use(10, None), 5), (use(2, 60), 4)], HOUR + 120),
        ([(use(0, 60), 1)], inf),
    ],
)
def test_a_limit_explains_its_window_and_what_the_items_ahead_need(
    limits: list[tuple[Use, int]], seconds: float
) -> None:
    assert explained(limits, HOUR) == seconds


@pytest.mark.parametrize(
    ("windows", "items", "hours", "is_missed"),
    [
        (Windows("30 2-22/4 * * *"), 10, 0.5, False),
        (Windows("30 2-22/4 * * *"), 10, 5.5, False),
        (Windows("30 2-22/4 * * *"), 10, 9.5, False),  # due at 18:30, it has missed the window of 22:30 too
        (Windows("30 2-22/4 * * *"), 10, 13.5, True),
        (Windows("30 2-22/4 * * *"), 100, 13.5, False),  # so many need two windows more
        (Windows("30 2-22/4 * * *"), 100, 24 * 30, True),
        (Windows("0 0 * * 1"), 1, 24 * 15, False),
        (Windows("0 0 * * 1"), 1, 24 * 28, True),
    ],
)
def test_retries_that_missed_more_windows_than_they_fill_are_late(
    windows: Windows, items: int, hours: float, is_missed: bool
) -> None:
    assert has_missed_windows(windows, NOW - timedelta(hours=hours), items, NOW) is is_missed
