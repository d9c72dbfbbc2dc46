"""Schedules and the items that they made: what both stores do in the same way to keep them consistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from heapq import heapify, heapreplace
from typing import TypeVar

from msgspec.json import encode
from msgspec.structs import replace

from duly.core.model import LIVE, Change, Item, Member, NewAuditLine, Schedule

T = TypeVar("T")


def live_by_schedule(items: Iterable[Item]) -> dict[int, list[Item]]:
    live: dict[int, list[Item]] = {}
    for item in items:
        if item.state in LIVE and item.schedule_id is not None:
            live.setdefault(item.schedule_id, []).append(item)
    return live


def one_at_a_time(schedules: Iterable[Schedule]) -> list[int]:
    """The schedules whose items must not overlap."""
    return [schedule.id for schedule in schedules if schedule.overlap != "allow"]


def only_moves_on(before: Schedule, after: Schedule) -> bool:
    """Whether the schedule just moved on to its next time: the common case, written by the thousand."""
    return after == replace(before, next_at=after.next_at, last_at=after.last_at, skipped=after.skipped)


def members_of(changes: Iterable[Change]) -> list[Member]:
    """What these changes of items mean for their schedules, in the same order."""
    return [change.member for change in changes if change.member]


def rounds_of(values: Iterable[T], key: Callable[[T], int]) -> list[list[T]]:
    """These values in groups that have each key at most once, because one statement can change a row only once."""
    rounds: list[list[T]] = []
    seen: Counter[int] = Counter()
    for value in values:
        row = key(value)
        place = seen[row]
        seen[row] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(value)
    return rounds


def notes_of(members: Iterable[Member]) -> list[tuple[datetime, NewAuditLine]]:
    return [
        (
            member.at,
            NewAuditLine(
                "duly",
                "schedule.deactivated",
                f"schedule:{member.schedule_id}",
                encode({"failures": member.failures, "error": (member.error or "").partition("\n")[0]}),
            ),
        )
        for member in members
        if member.is_broken
    ]


class SlotAllocator:
    """Hands out the slots of one ring: always the one with the fewest members, and the first of those."""

    def __init__(self, slots: int, taken: Mapping[int, int]) -> None:
        self._heap = [(taken.get(slot, 0), slot) for slot in range(slots)]
        heapify(self._heap)

    def take(self) -> int:
        members, slot = self._heap[0]
        heapreplace(self._heap, (members + 1, slot))
        return slot
