"""Finds waiting items whose task no running worker has; what that means is decided in `duly.core.unserved`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec.json import encode

from duly.core.clock import EPOCH
from duly.core.model import Head
from duly.core.results import UnservedTask
from duly.core.unserved import ALIVE, Fleet, ServedTask, WaitingTask
from duly.store.contract import START, Store
from duly.store.statements import SurveyPlace

# Items that one look reads. Where more wait, it goes from line to line, this many lines at a time.
LOOKED = 10_000
LINES = 10_000


@dataclass(eq=False)
class UnservedTasks:
    store: Store

    def __post_init__(self) -> None:
        self.is_complete = True  # whether all that waits was seen, in the last look or by the last walk over the lines
        self.queues: frozenset[str] = frozenset()  # in which nothing else waits; empty where a look does not show all
        self._place = START
        self._walk: dict[str, WaitingTask] = {}
        self._last_walk: dict[str, WaitingTask] = {}

    def find(self, now: datetime) -> list[UnservedTask]:
        """The tasks that nobody runs, with items that wait in queues that are not paused.

        A look at the items that are due first shows all of them, unless more wait than it reads. Then each call looks
        at some lines more, and returns what it and the walk before have found.
        """
        fleet = self._fleet(now)
        if fleet.since is None:
            self.is_complete = True
            return []
        rows = self.store.read("waiting_tasks", {"most": LOOKED})
        if sum(row[2] for row in rows) < LOOKED:
            self._place, self._walk, self._last_walk, self.is_complete = START, {}, {}, True
            are_open = self.store.open_queues({row[0] for row in rows})
            looked = _summed(WaitingTask(*row[1:]) for row in rows if row[0] in are_open)
            unserved = fleet.unserved(looked.values(), now)
            names = {each.task for each in unserved}
            self.queues = frozenset(are_open).difference(row[0] for row in rows if row[1] not in names)
            return unserved
        self.queues = frozenset()
        heads, place = self.store.survey(self._place, LINES)
        self._walk = _summed([*self._walk.values(), *self._waiting(fleet, heads, now)])
        found = {task: each.at_least(self._last_walk.get(task, each)) for task, each in self._walk.items()}
        found = {**self._last_walk, **found}
        self._end_of_walk(place)
        return fleet.unserved(found.values(), now)

    def recurring(self, now: datetime) -> list[UnservedTask]:
        """The tasks that nobody runs and that have schedules; `items` is how many schedules."""
        rows = self.store.read("tasks_of_schedules", {})
        return self._fleet(now).unserved([WaitingTask(task, count, EPOCH) for task, count in rows], now)

    def _end_of_walk(self, place: SurveyPlace | None) -> None:
        self.is_complete = place is None
        self._place = place or START
        if place is None:
            self._walk, self._last_walk = {}, self._walk

    def _fleet(self, now: datetime) -> Fleet:
        tasks = [ServedTask(*row) for row in self.store.read("served_tasks", {"alive": now - ALIVE})]
        return Fleet({each.task: each for each in tasks}, tasks[0].began_at if tasks else None)

    def _waiting(self, fleet: Fleet, heads: Iterable[Head], now: datetime) -> list[WaitingTask]:
        groups = [
            {**head.line._asdict(), "lane": head.lane, "rank": head.rank}
            for head in heads
            if not fleet.has(head.line.task, now)
        ]
        if not groups:
            return []
        rows = self.store.read("waiting_in_lines", {"groups": encode(groups).decode(), "most": LOOKED})
        return [WaitingTask(*row) for row in rows]


def _summed(found: Iterable[WaitingTask]) -> dict[str, WaitingTask]:
    """What waits of each task."""
    sums: dict[str, WaitingTask] = {}
    for each in found:
        sums[each.task] = sums[each.task].plus(each) if each.task in sums else each
    return sums
