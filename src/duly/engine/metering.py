"""Determines the meters of a claim: of the limits of the task, of a retry window, of the pace of a backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from duly.core.model import Meter, Share, Suspects
from duly.core.policy.lateness import Holds
from duly.core.policy.limits import Limit
from duly.core.policy.outage import Source
from duly.core.policy.retry import SPREAD, Windows, windows_of
from duly.engine.work import Tasks
from duly.store.claims import family
from duly.store.contract import FRESH
from duly.tasks.task import Task

# How many queues' meters are remembered.
MANY = 20_000

Metering = tuple[tuple[Limit, ...], Limit | None, Windows | None, Source | None]
# The meters of a source, which has some while it is down.
Probe = Callable[[Source], tuple[Meter, ...]]


def metering_of(task: Task[..., Any]) -> Metering:
    """The limits, windows, pace and source of a task. Tasks are claimed together only if these are the same."""
    return task.limits, task.backlog, windows_of(task.rules.retry), task.source


class Meters:
    """The meters of one pool, whose tasks all have the same limits."""

    def __init__(self, metering: Metering, prefixes: tuple[str, ...] = (), probe: Probe = lambda _: ()) -> None:
        self._limits, self._backlog, self._windows, self._source = metering
        self._probe = probe
        self._prefixes = prefixes
        self._by_queue = lru_cache(MANY)(self.of_queue)

    def of(self, share: Share, now: datetime, with_torn: bool = False) -> Iterator[tuple[Share, tuple[Meter, ...]]]:
        """The share with its meters. With `with_torn`, then one of items that its window has counted already."""
        queue = share.line.queue
        meters, seated = self._by_queue(queue), None
        if self._source is not None:
            meters += self._probe(self._source)
        if share.lane == "retry" and self._windows is not None:
            opened, opens = self._windows.around(now)
            all_due = opened + SPREAD
            cap, until = (0, all_due) if now < all_due else (self._windows.cap, opens)
            seated = meters
            meters += (Meter(f"window:{queue} {self._windows.rule}", cap, since=opened, until=until),)
        if self._backlog is not None and self.is_paced(share, now):
            meters += (self._backlog.meter(queue),)
        yield share, meters
        # Items that waited for the window were due by then; those due later lost their worker, or were throttled.
        if seated is not None and with_torn and now > all_due:
            floors = tuple(max(floor, all_due + timedelta(microseconds=1)) for floor in share.floors)
            yield replace(share, floors=floors, started_since=opened), seated

    def of_queue(self, queue: str) -> tuple[Meter, ...]:
        """The meters of the tasks' limits for the items of this queue."""
        return tuple(limit.meter(self._key(queue) if limit.by else "") for limit in self._limits)

    def is_paced(self, share: Share, now: datetime) -> bool:
        """Whether this share is for a backlog whose pace is limited."""
        is_backlog = share.lane == "main" and not share.is_fresh and min(share.floors) < now - FRESH
        return self._backlog is not None and is_backlog

    def _key(self, queue: str) -> str:
        """The value of the argument that this queue is for, under a limit `by` an argument."""
        return next((queue.removeprefix(prefix) for prefix in self._prefixes if queue.startswith(prefix)), "")


def meters_of(tasks: Sequence[Task[..., Any]], probe: Probe = lambda _: ()) -> Meters | None:
    """The meters of tasks that all have the same limits; None when they have none.

    `probe` gives those of a source, which has some while it is down.
    """
    metering = metering_of(tasks[0])
    return Meters(metering, prefixes_of(tasks), probe) if any(metering) else None


def suspects_of(tasks: Iterable[Task[..., Any]]) -> Suspects:
    """How items of these tasks under suspicion are called, where a call of several has a process of its own."""
    rules = [task.rules for task in tasks]
    return Suspects(min(each.crash_limit for each in rules), min(each.retry.tries_for(()) for each in rules))


def prefixes_of(tasks: Iterable[Task[..., Any]]) -> tuple[str, ...]:
    """The prefixes of queues that are for one value of an argument, under limits `by` an argument."""
    return tuple(f"{task.queue}/" for task in tasks if any(limit.by for limit in task.limits))


def holds_of(tasks: Tasks) -> Callable[[str], Holds]:
    """What may hold back the items of a queue by plan: what holds those of all the tasks that have it."""
    by_queue: dict[str, list[Task[..., Any]]] = {}
    for task in tasks.values():
        by_queue.setdefault(task.queue, []).append(task)

    @cache
    def meters_for(name: str) -> Meters:
        return Meters(metering_of(tasks[name]), prefixes_of([tasks[name]]))

    @lru_cache(MANY)
    def held(queue: str) -> Holds:
        own = [task for name in family(queue) for task in by_queue.get(name, ())]
        meters: list[Meter] = []
        if all(task.limits for task in own):
            meters = [each for task in own for each in meters_for(task.name).of_queue(queue)]
        windows = [windows_of(task.rules.retry) for task in own]
        return Holds(tuple(dict.fromkeys(meters)), windows[0] if windows and all(windows) else None)

    return held
