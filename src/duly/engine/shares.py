"""Who gets how much of a claim: fair between queues and owners, fresh work before retries, better ranks first. Pure.

Work of one line comes in up to three kinds: what is due (`main`), what has just become due beside a backlog (`fresh`),
and retries. Room is handed out call by call to the kind that has had the least for its weight, so the parts hold over
time too where there is room for one call only, as under a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Literal

from duly.clock import EPOCH
from duly.model import Head, Lane, Line, Share

Kind = Literal["main", "fresh", "retry"]

# Of a line's share, one part in four is for retries, and of the rest one in four for what is fresh beside a backlog.
WEIGHTS: Mapping[Kind, int] = {"main": 9, "fresh": 3, "retry": 4}
# What all weights divide, so that turns are counted exactly.
UNIT = 36
# With more calls than this to hand out, proportions are near enough.
EXACT = 32


class Turns:
    """How much each kind of work of a line has had, for its weight: whoever had least is next."""

    __slots__ = ("_had", "_kinds")

    def __init__(self) -> None:
        self._had: dict[Kind, int] = {}
        self._kinds: frozenset[Kind] = frozenset()

    def split(self, kinds: Sequence[Kind], calls: int) -> dict[Kind, int]:
        """So many calls over these kinds, the one whose turn it is first."""
        self._welcome(frozenset(kinds))
        weights = _weights(kinds)
        parts = dict.fromkeys(sorted(kinds, key=self._had.__getitem__), 0)
        if calls > EXACT:
            for kind in parts:
                parts[kind] = calls * weights[kind] // sum(weights.values())
            calls -= sum(parts.values())
        had = dict(self._had)
        for _ in range(calls):
            kind = min(parts, key=had.__getitem__)
            parts[kind] += 1
            had[kind] += UNIT // weights[kind]
        return parts

    def served(self, kind: Kind, calls: int) -> None:
        """This kind was really given so many."""
        if kind in self._had:
            self._had[kind] += calls * UNIT // _weights(tuple(self._kinds))[kind]

    def _welcome(self, kinds: frozenset[Kind]) -> None:
        """Who was not there has no claim to what the others had meanwhile."""
        if kinds != self._kinds:
            level = min((self._had[kind] for kind in kinds & self._kinds), default=0)
            self._had = {kind: self._had[kind] if kind in self._kinds else level for kind in sorted(kinds)}
            self._kinds = kinds


def _weights(kinds: Sequence[Kind]) -> dict[Kind, int]:
    """Without fresh work to tell from the backlog, its part is the line's own."""
    weights = {kind: WEIGHTS[kind] for kind in kinds}
    if "main" in weights and "fresh" not in weights:
        weights["main"] += WEIGHTS["fresh"]
    return weights


def evenly(room: int, count: int) -> list[int]:
    """Room in equal parts; the first get what is left over."""
    base, extra = divmod(room, count)
    return [base + (place < extra) for place in range(count)]


def share_out(
    heads: Iterable[Head], room: int, turns: Turns, fresh_since: datetime = EPOCH, batch: int = 1
) -> list[Share]:
    """Split the room of one line over its kinds of work, in whole calls; the kind whose turn it is first.

    A line whose oldest item is older than `fresh_since` has a backlog: some of its share is for what is younger. There
    may be nothing young, and nobody knows before asking.
    """
    lanes: dict[Lane, list[Head]] = {}
    for head in sorted(heads, key=attrgetter("rank", "due_at")):
        lanes.setdefault(head.lane, []).append(head)
    kinds: dict[Kind, Share] = {}
    if main := lanes.get("main"):
        kinds["main"] = _share(main)
        if min(kinds["main"].floors) < fresh_since:
            kinds["fresh"] = _share(main, fresh_since)
    if retries := lanes.get("retry"):
        kinds["retry"] = _share(retries)
    if room <= 0 or not kinds:
        return []
    parts = turns.split(tuple(kinds), -(-room // batch))
    shares = []
    for kind, calls in parts.items():
        limit = min(calls * batch, room)
        room -= limit
        if limit:
            share = kinds[kind]
            shares.append(Share(share.line, share.lane, share.ranks, limit, share.floors, share.is_fresh))
    return shares


def kind_of(share: Share) -> Kind:
    if share.lane == "retry":
        return "retry"
    return "fresh" if share.is_fresh else "main"


def _share(heads: list[Head], since: datetime | None = None) -> Share:
    ranks, floors = tuple(head.rank for head in heads), tuple(head.due_at for head in heads)
    if since is not None:
        floors = tuple(max(floor, since) for floor in floors)
    line: Line = heads[0].line
    return Share(line, heads[0].lane, ranks, 0, floors, is_fresh=since is not None)
