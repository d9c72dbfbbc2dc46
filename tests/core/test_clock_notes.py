"""What is said where clocks change: times that do not exist, and times that come twice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from duly.core.policy.recur import clock_notes, parse, preview, zone_named

SPRING, AUTUMN = datetime(2026, 3, 27, 12, tzinfo=UTC), datetime(2026, 10, 23, 12, tzinfo=UTC)


def notes(rule: str, after: datetime, zone: str = "Europe/Zagreb", n: int = 5) -> list[str]:
    read, place = parse(rule), zone_named(zone)
    return [note for _, note in clock_notes(read, after, preview(read, after, place, n), place)]


@pytest.mark.parametrize(
    ("rule", "after", "said"),
    [
        ("daily 02:30", SPRING, ["02:30 does not exist that day; runs 03:30"]),
        ("daily 02:30 skipped=earlier", SPRING, ["02:30 does not exist that day; runs 01:30"]),
        ("daily 02:30 skipped=skip", SPRING, ["02:30 does not exist that day; does not run"]),
        ("30 2 * * *", SPRING, ["02:30 does not exist that day; runs 03:30"]),
        ("daily 02:30:15", SPRING, ["02:30:15 does not exist that day; runs 03:30:15"]),
        ("daily 09:00", SPRING, []),
        ("weekly sun 02:30", SPRING, ["02:30 does not exist that day; runs 03:30"]),
        ("daily 02:30", AUTUMN, ["02:30 happens twice that day; runs the first time"]),
        ("daily 02:30 doubled=second", AUTUMN, ["02:30 happens twice that day; runs the second time"]),
        ("daily 02:30 doubled=both", AUTUMN, ["02:30 happens twice that day; runs both times"] * 2),
        ("daily 09:00", AUTUMN, []),
        ("*/30 * * * *", datetime(2026, 3, 29, 0, 30, tzinfo=UTC), []),
        ("every 1h", SPRING, []),
        ("slot 2/24", AUTUMN, []),
    ],
)
def test_it_is_said_where_clocks_change(rule: str, after: datetime, said: list[str]) -> None:
    assert notes(rule, after) == said


def test_a_time_that_is_skipped_may_run_on_another_day() -> None:
    """Where clocks go forward at midnight, half past twelve runs the evening before."""
    after = datetime(2026, 9, 3, 12, tzinfo=UTC)
    assert notes("daily 00:30 skipped=earlier", after, "America/Santiago") == [
        "00:30 does not exist that day; runs 23:30"
    ]


def test_nothing_is_said_of_no_times() -> None:
    assert clock_notes(parse("daily 02:30"), SPRING, [], zone_named("Europe/Zagreb")) == []
