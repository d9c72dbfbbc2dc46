"""Alerts about tasks that nobody runs: an alert for each task, `task:NAME`, and one more for those beyond a bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from duly.core.shown import NewAlert
from duly.core.unserved import described, remedy
from duly.store.contract import Store
from duly.store.unserved import LOOKED, UnservedTasks

PREFIX = "task:"
# Tasks that have an alert of their own, at most: the names may come from anybody who can put items.
NAMED = 20
OTHERS = "tasks"


@dataclass(eq=False)
class UnservedAlerts:
    store: Store

    def __post_init__(self) -> None:
        self._tasks = UnservedTasks(self.store)

    def explain(self, queue: str) -> bool:
        """Whether all that waits in this queue waits for a worker with its task: there is an alert about that."""
        return queue in self._tasks.queues

    def look(self, opened: Iterable[str], now: datetime) -> tuple[list[NewAlert], set[str]]:
        """The current alerts, and which of the open ones have cleared."""
        found = self._tasks.find(now)
        alerts = [
            NewAlert(
                f"{PREFIX}{each.task}",
                f"{described(each, each.items >= LOOKED)}; {remedy(each)}",
                {
                    "task": each.task, "items": each.items, "since": each.since.isoformat(), "near": each.near,
                    "seenAt": None if each.seen_at is None else each.seen_at.isoformat(),
                },
            )
            for each in found[:NAMED]
        ]  # fmt: skip
        if more := found[NAMED:]:
            count = sum(each.items for each in more)
            text = f"no running worker has {len(more):,} more tasks, and {count:,} items wait for them"
            alerts.append(NewAlert(OTHERS, f"{text}; `duly doctor` lists them", {"tasks": len(more), "items": count}))
        ours = {name for name in opened if name.startswith(PREFIX) or name == OTHERS}
        over = ours - {alert.name for alert in alerts} if self._tasks.is_complete else set()
        return alerts, over
