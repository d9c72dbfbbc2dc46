"""Values read from the database at a scrape: depths of queues, and health."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.core.errors import DulyError
from duly.core.patience import Patient, Thrifty
from duly.core.shown import Depth, Signs
from duly.tasks.task import Task
from duly.telemetry.families import NAMES, OTHERS, gauge

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# Seconds that a scrape waits for the database, which is less than scrapers usually wait for us.
PATIENCE = 5.0
# Seconds that it waits for the depths of queues, since it can show the last known ones instead.
DEPTHS_PATIENCE = 2.0
# Seconds for which the number of pending rows is cached.
PENDING_FOR = 45.0

_OF_A_JOB = re.compile(r"/job-\d+$")


class DatabaseMetrics:
    """Asks the database at a scrape: each time for signs of life, and less often for depths if they cost much."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        late_seconds: float,
        held_seconds: float,
        signs: Callable[[], tuple[Signs, datetime]],
        depths: Callable[[], Sequence[Depth]],
        pending: Callable[[], Mapping[str, int]],
    ) -> None:
        self._tasks = tasks
        # How long due items may wait: by themselves, and under a limit, which works off many over a while.
        self._late_seconds, self._held_seconds = late_seconds, held_seconds
        self._ask = Patient(signs, PATIENCE)
        # Others that look again and again, such as dashboards, use this too.
        self.depths = Thrifty(depths, DEPTHS_PATIENCE)
        self._pending = Thrifty(pending, DEPTHS_PATIENCE, PENDING_FOR)

    def families(self) -> Iterable[Metric]:
        """All levels as metric families; only `duly_store_up` when the database is down."""
        up = "1 when the database answered this scrape."
        try:
            signs, now = self._ask()
        except DulyError:
            yield gauge("duly_store_up", up, [], {(): 0})
            return
        yield gauge("duly_store_up", up, [], {(): 1})
        silence = {} if signs.seen_at is None else {(): max((now - signs.seen_at).total_seconds(), 0.0)}
        yield gauge("duly_silence_seconds", "Seconds since the last report of any worker.", [], silence)
        yield gauge("duly_alert", "1 for each raised alert.", ["alert"], dict.fromkeys(signs.alerts, 1))
        broken = "Schedules deactivated after failures in a row."
        yield gauge("duly_broken_schedules", broken, [], {(): signs.broken})
        try:
            yield gauge("duly_pending_rows", "Rows of jobs that have not ended.", ["type"], self._pending())
            depths = self.depths()
        except DulyError:  # they take longer than a scrape can wait; the next one will have them
            return
        yield from self._queues(depths, now)

    def _queues(self, depths: Sequence[Depth], now: datetime) -> Iterable[Metric]:
        """The depths of queues as metric families; queues without a name of their own are added up."""
        names = labels(depths, {task.queue for task in list(self._tasks.values())}, families_of(self._tasks))
        counts: Counter[tuple[str, str, str]] = Counter()
        dues: Counter[tuple[str, str]] = Counter()
        ages: dict[str, float] = {}
        closed: dict[str, set[str]] = {name: set() for name in names.values()}
        is_late = False
        limited = {task.queue for task in list(self._tasks.values()) if task.limits}
        for depth in depths:
            name = names[depth.queue]
            counts[name, depth.lane, depth.state] += depth.items
            if depth.paused:
                closed[name].add(depth.queue)
            if depth.state == "waiting":
                dues[name, depth.lane] += depth.due
                if depth.oldest is not None:
                    age = max((now - depth.oldest).total_seconds(), 0.0)
                    ages[name] = max(age, ages.get(name, 0.0))
                    most = self._held_seconds if depth.queue.partition("/")[0] in limited else self._late_seconds
                    is_late |= bool(depth.due) and depth.lane == "main" and not depth.paused and age > most
        recovering = "1 while an item has been due for longer than alert_late_seconds."
        yield gauge("duly_recovery_mode", recovering, [], {(): float(is_late)})
        yield gauge("duly_queue_items", "Items in the queue.", ["queue", "lane", "state"], counts)
        yield gauge("duly_queue_due_items", "Waiting items that are due.", ["queue", "lane"], dues)
        yield gauge("duly_queue_oldest_due_seconds", "Age of the oldest due item.", ["queue"], ages)
        paused = {name: len(queues) for name, queues in closed.items()}
        yield gauge("duly_queue_paused", "1 if the queue is paused; of several, how many are.", ["queue"], paused)


def labels(depths: Iterable[Depth], known: Collection[str], families: Collection[str]) -> dict[str, str]:
    """The name under which each queue is shown. Queues of tasks and the largest ones have their own.

    Queues of a family (`family/…`, one for each value of an argument) have the family's name; the rest are `others`.
    """
    sizes: Counter[str] = Counter()
    names: dict[str, str] = {}
    for depth in depths:
        name = names.setdefault(depth.queue, family_of(depth.queue, families))
        sizes[name] += depth.items
    own = set(sorted(sizes, key=lambda name: (name not in known, -sizes[name], name))[:NAMES])
    return {queue: name if name in own else OTHERS for queue, name in names.items()}


def family_of(queue: str, families: Collection[str]) -> str:
    of_task = _OF_A_JOB.sub("", queue)  # rows of a job wait in a queue of its own below that of its task
    return next((family for family in families if of_task.startswith(f"{family}/")), of_task)


def families_of(tasks: Mapping[str, Task[..., Any]]) -> set[str]:
    """The queues that have one below them for each value of an argument."""
    return {task.queue for task in list(tasks.values()) if any(limit.by for limit in task.limits)}
