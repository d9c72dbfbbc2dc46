"""Structs of the core as the HTTP API writes them, read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct, ValidationError, field

from duly.core import wire


class Inner(Struct, frozen=True):
    started_at: datetime
    is_done: bool = False


class Outer(Struct, frozen=True):
    first_name: str
    since: datetime = field(name="from")
    args: Any = None
    last_one: Inner | None = None
    all_of_them: list[Inner] = []
    some_counts: dict[str, int] = {}
    points: list[tuple[int, float | None]] = []
    either_way: int | str | None = None


NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
INNER = {"startedAt": "2026-12-01T12:00:00Z", "isDone": True}


def test_names_are_changed_wherever_there_are_structs_and_nowhere_else() -> None:
    found = wire.read(
        Outer,
        {
            "firstName": "Ann", "from": "2026-12-01T12:00:00Z", "args": {"firstName": {"lastName": 1}},
            "lastOne": INNER, "allOfThem": [INNER], "someCounts": {"notFound": 3}, "points": [[1, None]],
            "eitherWay": "x", "aFieldOfANewerService": 1,
        },
    )  # fmt: skip
    inner = Inner(NOON, True)
    assert found == Outer(
        "Ann", NOON, {"firstName": {"lastName": 1}}, inner, [inner], {"notFound": 3}, [(1, None)], "x"
    )


def test_what_is_missing_has_its_default_or_is_an_error() -> None:
    assert wire.read(Outer, {"firstName": "Ann", "from": "2026-12-01T12:00:00Z", "lastOne": None}) == Outer("Ann", NOON)
    with pytest.raises(ValidationError, match="from"):
        wire.read(Outer, {"firstName": "Ann"})
    assert wire.read(list[Inner], [INNER, INNER]) == [Inner(NOON, True)] * 2


def test_values_are_written_with_the_names_of_the_api() -> None:
    given = {"max_lateness": timedelta(minutes=2), "at": NOON, "key": None, "args": {"a_b": 1}, "late_p50_seconds": 1}
    assert wire.written(given) == {
        "maxLateness": 120.0, "at": "2026-12-01T12:00:00+00:00", "args": {"a_b": 1}, "lateP50Seconds": 1,
    }  # fmt: skip
