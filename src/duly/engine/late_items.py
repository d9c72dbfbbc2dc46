"""Finds late items, and why they are late: those that fell due while no worker ran, and the rest.

What a pause, a limit or a window holds back by plan is not late, and neither is what waits for a source that is down.
`Reasons` gathers what the limits and windows are, and how far the limits are used. One query is about all that is
overdue, since there may be a queue for each of ten thousand customers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct
from msgspec.json import encode

from duly.core.clock import EPOCH
from duly.core.model import Head, Lane, Meter
from duly.core.policy.lateness import BUSY, Holds, Use, explained, has_missed_windows, is_used_up
from duly.store.contract import START, Store

# If rows that are not late fill a look, this many lines are looked at in each tick instead.
LINES = 10_000

# Whether an outage explains that items of a queue wait, the oldest since then; the last argument is the time now.
Explain = Callable[[str, datetime, datetime], bool]


class OverdueItems(Struct, frozen=True):
    """How many items of a queue and lane are due for long, and since when the oldest is."""

    queue: str
    lane: Lane
    items: int
    oldest: datetime


@dataclass(eq=False)
class Reasons:
    store: Store
    holds_of: Callable[[str], Holds]  # what holds a queue by plan
    least: float  # seconds that a limit explains at least while it is used up

    def __post_init__(self) -> None:
        self._holds: dict[str, Holds] = {}
        self._uses: dict[Meter, Use] = {}
        self._waiting: Counter[Meter] = Counter()  # items that wait under each meter
        self._full_at: dict[Meter, datetime] = {}  # when it was last seen that a meter is used up

    def begin(self, now: datetime) -> None:
        """Forget what was found in the last tick, except which meters were used up a moment ago."""
        self._holds, self._uses, self._waiting = {}, {}, Counter()
        self._full_at = {meter: at for meter, at in self._full_at.items() if now - at <= BUSY}

    def look(self, overdue: Sequence[OverdueItems], now: datetime) -> None:
        """Take note of what holds these back, with one query for all meters that are not known yet."""
        for queue in {each.queue for each in overdue} - self._holds.keys():
            self._holds[queue] = self.holds_of(queue)
        limited = [each for each in overdue if each.lane == "main"]
        for each in limited:
            for meter in self._holds[each.queue].meters:
                self._waiting[meter] += each.items
        if not (new := [meter for meter in self._waiting if meter not in self._uses]):
            return
        asked = [
            {"place": place, "name": meter.name, "most": meter.most, "per": meter.per}
            for place, meter in enumerate(new)
        ]
        for place, *use in self.store.read("meter_use", {"meters": encode(asked).decode()}):
            self._uses[new[place]] = Use(*use)
            if is_used_up(Use(*use), now):
                self._full_at[new[place]] = now

    def explain(self, each: OverdueItems, now: datetime) -> bool:
        """Whether a limit that is used up, or a window without room, explains that these wait."""
        holds = self._holds[each.queue]
        if each.lane == "retry":
            return holds.windows is not None and not has_missed_windows(holds.windows, each.oldest, each.items, now)
        if not holds.meters:
            return False
        return (now - each.oldest).total_seconds() <= explained(self._used_up(holds), self.least)

    def is_held(self, queue: str) -> bool:
        """Whether a limit that is used up holds this queue back."""
        return bool(self._used_up(self._holds[queue]))

    def _used_up(self, holds: Holds) -> list[tuple[Use, int]]:
        if not self._full_at:
            return []
        return [(self._uses[meter], self._waiting[meter]) for meter in holds.meters if meter in self._full_at]


class LateCount(Struct, frozen=True):
    """How many items are late, and since when the oldest is due."""

    items: int = 0
    oldest: datetime | None = None

    def plus(self, more: LateCount, most: int) -> LateCount:
        return LateCount(min(self.items + more.items, most), self._older(more))

    @classmethod
    def of(cls, some: Sequence[tuple[int, datetime]], most: int) -> LateCount:
        """The sum of such numbers of items, each with the time since when the oldest is due."""
        return cls(min(sum(items for items, _ in some), most), min((oldest for _, oldest in some), default=None))

    def at_least(self, other: LateCount) -> LateCount:
        return LateCount(max(self.items, other.items), self._older(other))

    def _older(self, other: LateCount) -> datetime | None:
        return min((time for time in (self.oldest, other.oldest) if time is not None), default=None)


class Late(Struct, frozen=True):
    """What is late: what fell due while no worker ran, and the rest."""

    missed: LateCount = LateCount()
    rest: LateCount = LateCount()

    def plus(self, more: Late, most: int) -> Late:
        return Late(self.missed.plus(more.missed, most), self.rest.plus(more.rest, most))

    def at_least(self, other: Late) -> Late:
        return Late(self.missed.at_least(other.missed), self.rest.at_least(other.rest))


class Look(Struct, frozen=True):
    """Find items due before `before`, and count them up to `most`. A time without workers ended at `back_at`."""

    now: datetime
    before: datetime
    back_at: datetime | None
    most: int


@dataclass(eq=False)
class LateItems:
    store: Store
    reasons: Reasons
    explain: Explain

    def __post_init__(self) -> None:
        self.is_complete = True  # whether the last look, or the last walk over the lines, has seen all that is overdue
        # The walk over the lines: where it is, what it has found so far, and what the last walk found.
        self._place = START
        self._walk = Late()
        self._last_walk: Late | None = None

    @property
    def is_first_walk(self) -> bool:
        """Whether only a part of the lines was looked at yet."""
        return self._place != START and self._last_walk is None

    def find(self, look: Look) -> Late:
        """What is late in queues that are not paused, found with one look at twice `most` rows by due time.

        If items that are not late fill these rows, such as those of paused queues, a walk from line to line passes over
        them, some lines in each tick.
        """
        given = {"before": look.before, "most": 2 * look.most, "back_at": look.back_at or EPOCH}
        rows = self.store.read("overdue", given)
        are_open = self.store.open_queues({row[0] for row in rows})
        overdue = [OverdueItems(*row) for row in rows]
        is_all = sum(each.items for each in overdue) < 2 * look.most
        overdue = [each for each in overdue if each.queue in are_open]
        self.reasons.begin(look.now)
        self.reasons.look(overdue, look.now)
        late = self._sum(overdue, look)[0]
        if is_all or late.missed.items + late.rest.items >= look.most:
            self._place, self._walk, self._last_walk = START, Late(), None
            self.is_complete = is_all
            return late
        heads, place = self.store.survey(self._place, LINES)
        found = self._count([head for head in heads if head.due_at < look.before], look)
        self._walk = self._walk.plus(found, look.most)
        self._place = place or START
        self.is_complete = place is None
        if place is None:
            self._walk, self._last_walk = Late(), self._walk
        return self._walk if self._last_walk is None else self._walk.at_least(self._last_walk)

    def _sum(self, overdue: Sequence[OverdueItems], look: Look) -> tuple[Late, list[tuple[bool, int] | None]]:
        """What is late of these; and for each that is late, whether it was missed, and how many of it count."""
        sums: dict[bool, list[tuple[int, datetime]]] = {True: [], False: []}
        found: list[tuple[bool, int] | None] = []
        for each in overdue:
            items = self._unexplained(each, look)
            if items is None:
                found.append(None)
                continue
            is_missed = look.back_at is not None and each.oldest < look.back_at
            found.append((is_missed, items))
            sums[is_missed].append((items, each.oldest))
        return Late(LateCount.of(sums[True], look.most), LateCount.of(sums[False], look.most)), found

    def _unexplained(self, each: OverdueItems, look: Look) -> int | None:
        """How many of these count as late, None if they are not: the main lane by number, unless a limit holds it.

        Retries, and what a limit holds, are late by their age alone.
        """
        if self.explain(each.queue, each.oldest, look.now):
            return None
        if each.lane == "main" and look.back_at is not None and each.oldest < look.back_at:
            return each.items  # what a limit holds back waits because no worker ran
        if self.reasons.explain(each, look.now):
            return None
        # That many wait is the plan of a limit; that one waits for longer than the limit explains, is not.
        return each.items if each.lane == "main" and not self.reasons.is_held(each.queue) else 0

    def _count(self, heads: list[Head], look: Look) -> Late:
        """What is late in these lines. A line with something that fell due while no worker ran is all about that."""
        overdue = [OverdueItems(head.line.queue, head.lane, 1, head.due_at) for head in heads]
        self.reasons.look(overdue, look.now)
        late, found = self._sum(overdue, look)
        missed: list[Head] = []
        rest: list[Head] = []
        for head, each in zip(heads, found, strict=True):
            if each is not None and each[1]:
                (missed if each[0] else rest).append(head)
        before, most = look.before, look.most
        return Late(
            LateCount(self._backlog(missed, min(before, look.back_at or before), most), late.missed.oldest),
            LateCount(self._backlog(rest, before, most), late.rest.oldest),
        )

    def _backlog(self, heads: list[Head], before: datetime, most: int) -> int:
        """How many items of these lines were due before then."""
        groups = [{**head.line._asdict(), "lane": "main", "rank": head.rank} for head in heads]
        given = {"groups": encode(groups).decode(), "before": before, "most": most}
        return int(self.store.read("backlog", given)[0][0]) if groups else 0
