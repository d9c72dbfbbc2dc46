"""What is late: what waits longer than its plan explains."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from duly.core.model import Lane
from duly.core.policy.lateness import BUSY, Holds, is_held, lateness
from duly.core.policy.retry import Windows

NOW = datetime(2026, 1, 1, 4, 0, tzinfo=UTC)
HOUR = 3_600.0
LIMITED = Holds(("boeing",), 60.0, Windows("30 2-22/4 * * *", cap=50))


@pytest.mark.parametrize(
    ("lane", "holds", "waited", "late"),
    [
        ("main", Holds(), 400, 400),
        ("main", Holds(), -5, 0),
        ("main", LIMITED, 630, 0),
        ("main", LIMITED, 3_601, 3_601),
        ("retry", Holds(), 400, 400),
        ("retry", LIMITED, 6 * 3_600, 5_400),  # left over at 22:30 and at 02:30: its time began at 02:30
        ("retry", LIMITED, 60, 60),
    ],
)
def test_what_a_limit_or_a_window_holds_back_is_not_late(lane: Lane, holds: Holds, waited: float, late: float) -> None:
    assert lateness(lane, NOW - timedelta(seconds=waited), NOW, holds, HOUR) == late


@pytest.mark.parametrize(
    ("holds", "granted", "back", "held"),
    [
        (LIMITED, 30, None, True),
        (LIMITED, BUSY.total_seconds() + 60, None, True),
        (LIMITED, BUSY.total_seconds() + 61, None, False),  # it has room, so it holds nothing back
        (LIMITED, None, None, False),
        (Holds(), 30, None, False),
        (LIMITED, 30, 600, True),  # it fell due after workers were back
        (LIMITED, 30, 200, False),
    ],
)
def test_a_limit_explains_what_waits_while_it_lets_calls_through(
    holds: Holds, granted: float | None, back: float | None, held: bool
) -> None:
    def ago(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    assert is_held(holds, NOW - timedelta(seconds=400), NOW, ago(granted), ago(back)) is held
