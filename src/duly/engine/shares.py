"""Who gets how much of a claim: fair between queues and owners, fresh work before retries, better ranks first. Pure.

A line's room is split between its lanes, and that of the main lane between a backlog and what has just become due.
Each call goes to who has had the least for its weight, so the parts hold over time too where there is room for one call
only, as under a limit.
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

# One part in four is for retries that are due beside fresh work.
LANES: Mapping[Lane, int] = {"main": 3, "retry": 1}
# Of a backlog's line, one part in four is for what has just become due.
AGES: Mapping[Age, int] = {"late": 3, "fresh": 1}
# With more calls than this to hand out, proportions are near enough.
EXACT = 32


class Turns(Generic[T]):
    """How much each has had, for its weight: whoever had least is next."""

    __slots__ = ("_costs", "_had", "_weights")

    def __init__(self, weights: Mapping[T, int]) -> None:
        self._weights = weights
        self._costs = _costs(tuple(weights.items()))
        self._had: dict[T, int] = {}

    def split(self, names: Sequence[T], calls: int) -> dict[T, int]:
        """So many calls over those who are there, the one whose turn it is first."""
        if len(names) == 1:
            self._had = {names[0]: self._had.get(names[0], 0)}
            return {names[0]: calls}
        # Who was not there has no claim to what the others had meanwhile.
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
        """This one was really given so many."""
        if name in self._had:
            self._had[name] += calls * self._costs[name]


@cache
def _costs(weights: tuple[tuple[T, int], ...]) -> dict[T, int]:
    """What one call of each counts, so that all have had the same when each has had its part."""
    return {name: prod(weight for _, weight in weights) // weight for name, weight in weights}


class LineTurns:
    """The turns of one line: between its lanes, and between a backlog and what is fresh."""

    __slots__ = ("ages", "lanes")

    def __init__(self) -> None:
        self.lanes = Turns(LANES)
        self.ages = Turns(AGES)

    def served(self, share: Share, calls: int) -> None:
        self.lanes.served(share.lane, calls)
        if share.lane == "main":
            self.ages.served("fresh" if share.is_fresh else "late", calls)


def evenly(room: int, count: int) -> list[int]:
    """Room in equal parts; the first get what is left over."""
    base, extra = divmod(room, count)
    return [base + (place < extra) for place in range(count)]


def share_out(
    heads: Iterable[Head], room: int, turns: LineTurns, fresh_since: datetime = EPOCH, batch: int = 1
) -> list[Share]:
    """Split the room of one line, in whole calls; whose turn it is first.

    A line whose oldest item is older than `fresh_since` has a backlog: some of its share is for what is younger. There
    may be nothing young, and nobody knows before asking.
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
