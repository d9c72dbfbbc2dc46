"""Finds paces that have collapsed: far fewer calls than in their own best minutes, while work waits for them.

Both are in the database: how many calls ended, in the history that all workers write, and what waits. So all workers
find the same, and one that was started a moment ago knows it too. Without history nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.core.clock import begin_of
from duly.core.policy.pace import Collapse, collapse
from duly.core.shown import HISTORY_LONG, HISTORY_SHORT, Alert, NewAlert
from duly.engine.work import Tasks
from duly.store.contract import START, Store

PREFIX = "pace:"
LATELY = timedelta(minutes=2)  # work has waited for so long, and this is the time of the present rate
BEST = timedelta(hours=2)  # the time of the best rate
LINES = 1_000  # how many lines are looked at in one query
QUERIES = 10

# Whether an outage of a source explains that items of a queue wait, the oldest since then.
Explain = Callable[[str, datetime, datetime], bool]


@dataclass(eq=False)
class SlowPaces:
    store: Store
    tasks: Tasks
    explain: Explain

    def find(self, now: datetime) -> Iterator[NewAlert]:
        slow = dict(self._slow(now))
        if not slow:
            return
        waiting = self._waiting(slow.keys(), now)
        for name, found in slow.items():
            if name in waiting:
                queue, since = waiting[name]
                yield NewAlert(
                    f"{PREFIX}{name}",
                    f"{name} is called {found.rate:.2g} times a second, after {found.best:.3g} at best in the last two"
                    f" hours, and work waits in queue {queue}",
                    {"pace": name, "rate": found.rate, "best": found.best, "waitingSince": since.isoformat(),
                     "queue": queue, "tasks": self._tasks_of(name)},
                )  # fmt: skip

    def over(self, opened: Iterable[tuple[str, Alert]], found: Iterable[str]) -> set[str]:
        """The open alerts that have no reason any more, of paces that this worker has, or that no task has now."""
        return {name for name, alert in opened if name.startswith(PREFIX) and self._knows(alert)} - set(found)

    def _knows(self, alert: Alert) -> bool:
        tasks = alert.details.get("tasks", ())
        return bool(self._tasks_of(alert.details.get("pace", ""))) or all(task in self.tasks for task in tasks)

    def _tasks_of(self, pace: str) -> list[str]:
        return sorted(name for name, task in self.tasks.items() if task.pace is not None and task.pace.name == pace)

    def _slow(self, now: datetime) -> Iterator[tuple[str, Collapse]]:
        """The paces of this worker with far fewer calls than they had."""
        names = {task.pace.name for task in self.tasks.values() if task.pace is not None}
        if not names:
            return
        given = {
            "short": HISTORY_SHORT, "short_since": begin_of(now - LATELY, HISTORY_SHORT),
            "long": HISTORY_LONG, "long_since": begin_of(now - BEST, HISTORY_LONG),
        }  # fmt: skip
        recent: dict[str, int] = {}
        best: dict[str, int] = {}
        for name, step, calls in self.store.read("pace_rates", given):
            if step == HISTORY_SHORT:
                recent[name] = recent.get(name, 0) + int(calls)
            else:
                best[name] = max(best.get(name, 0), int(calls))
        for name in sorted(names & best.keys()):
            seconds = LATELY.total_seconds()
            if (found := collapse(recent.get(name, 0) / seconds, best[name] / HISTORY_LONG, seconds)) is not None:
                yield name, found

    def _waiting(self, paces: Iterable[str], now: datetime) -> dict[str, tuple[str, datetime]]:
        """For each of these paces with work that has waited for the whole time: the queue, and since when."""
        tasks = {task: pace for pace in paces for task in self._tasks_of(pace)}
        found: dict[str, tuple[str, datetime]] = {}
        place = START
        for _ in range(QUERIES):
            heads, after = self.store.survey(place, LINES)
            for head in heads:
                pace, queue = tasks.get(head.line.task), head.line.queue
                if pace is None or head.due_at > now - LATELY or self.explain(queue, head.due_at, now):
                    continue
                if pace not in found or head.due_at < found[pace][1]:
                    found[pace] = (queue, head.due_at)
            if after is None:
                break
            place = after
        return found
