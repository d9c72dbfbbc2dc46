"""How the room of a claim is split over lines, lanes and ranks. Pure.

The room of a line is split between its lanes, and that of the main lane between a backlog and fresh items. Each call
goes to the part that has had the least for its weight. So the proportions hold over time, even if each claim has room
for one call only, as under a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from math import prod
from operator import attrgetter
from typing import Generic, Literal, TypeVar

from duly.core.clock import EPOCH
from duly.core.model import Head, Lane, Line, Share

T = TypeVar("T")
Age = Literal["late", "fresh"]

# While both lanes have due items, one call in four is for retries.
LANES: Mapping[Lane, int] = {"main": 3, "retry": 1}
# In a line with a backlog, one call in four is for fresh items.
AGES: Mapping[Age, int] = {"late": 3, "fresh": 1}
# Up to this many calls are dealt out one by one; more are split by proportion first.
EXACT = 32


class Turns(Generic[T]):
    """Counts how much each name has had for its weight; the one that had least is next."""

    __slots__ = ("_costs", "_had", "_weights")

    def __init__(self, weights: Mapping[T, int]) -> None:
        self._weights = weights
        self._costs = _costs(tuple(weights.items()))
        self._had: dict[T, int] = {}

    def split(self, names: Sequence[T], calls: int) -> dict[T, int]:
        """Split the calls over these names; the name whose turn it is comes first."""
        if len(names) == 1:
            self._had = {names[0]: self._had.get(names[0], 0)}
            return {names[0]: calls}
        # A name that was not there before starts level with the others and gets nothing in arrears.
        level = min((self._had[name] for name in names if name in self._had), default=0)
        self._had = {name: self._had.get(name, level) for name in names}
        parts = dict.fromkeys(sorted(names, key=self._had.__getitem__), 0)
        if calls > EXACT:
            whole = sum(self._weights[name] for name in names)
            parts = {name: calls * self._weights[name] // whole for name in parts}
            calls -= sum(parts.values())
        had = dict(self._had)
        for _ in range(calls):
            name = min(parts, key=had.__getitem__)
            parts[name] += 1
            had[name] += self._costs[name]
        return parts

    def served(self, name: T, calls: int) -> None:
        """Count that this name was really given these calls."""
        if name in self._had:
            self._had[name] += calls * self._costs[name]


@cache
def _costs(weights: tuple[tuple[T, int], ...]) -> dict[T, int]:
    """What one call of each name counts: the counts are equal when each name has had its proportion."""
    return {name: prod(weight for _, weight in weights) // weight for name, weight in weights}


class LineTurns:
    """The turns of one line: between its lanes, and between its backlog and fresh items."""

    __slots__ = ("ages", "lanes")

    def __init__(self) -> None:
        self.lanes = Turns(LANES)
        self.ages = Turns(AGES)

    def served(self, share: Share, calls: int) -> None:
        self.lanes.served(share.lane, calls)
        if share.lane == "main":
            self.ages.served("fresh" if share.is_fresh else "late", calls)


def evenly(room: int, count: int) -> list[int]:
    """The room in `count` equal parts; the first ones get one more each if it does not divide."""
    base, extra = divmod(room, count)
    return [base + (place < extra) for place in range(count)]


def share_out(
    heads: Iterable[Head], room: int, turns: LineTurns, fresh_since: datetime = EPOCH, batch: int = 1
) -> list[Share]:
    """Split the room of one line in whole calls; the part whose turn it is comes first.

    A line whose oldest item was due before `fresh_since` has a backlog, and a part of its share is for fresh items.
    Whether there are any is known only after asking.
    """
    lanes: dict[Lane, list[Head]] = {}
    for head in sorted(heads, key=attrgetter("rank", "due_at")):
        lanes.setdefault(head.lane, []).append(head)
    if room <= 0 or not lanes:
        return []
    shares: list[Share] = []
    for lane, calls in turns.lanes.split(tuple(lanes), -(-room // batch)).items():
        part = min(calls * batch, room)
        room -= part
        if part:
            shares.extend(_by_age(lanes[lane], part, turns, fresh_since, batch))
    return shares


def _by_age(heads: list[Head], room: int, turns: LineTurns, fresh_since: datetime, batch: int) -> Iterator[Share]:
    if heads[0].lane == "retry" or min(head.due_at for head in heads) >= fresh_since:
        yield _share(heads, room)
        return
    for age, calls in turns.ages.split(("late", "fresh"), -(-room // batch)).items():
        limit = min(calls * batch, room)
        room -= limit
        if limit:
            yield _share(heads, limit, fresh_since if age == "fresh" else None)


def _share(heads: list[Head], limit: int, since: datetime | None = None) -> Share:
    ranks, floors = tuple(head.rank for head in heads), tuple(head.due_at for head in heads)
    if since is not None:
        floors = tuple(max(floor, since) for floor in floors)
    line: Line = heads[0].line
    return Share(line, heads[0].lane, ranks, limit, floors, is_fresh=since is not None)
