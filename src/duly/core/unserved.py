"""Tasks that nobody runs: which tasks have waiting items, but no running worker that has them.

Workers report which tasks they have. A task is unserved when no worker that is alive has it, and that has been so for a
minute: the time in which a deploy replaces workers does not count. Without any worker that is alive, nothing is
unserved; that is another state, with a message of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from msgspec import Struct

from duly.core.results import UnservedTask

# A worker reports every 30 seconds. One that missed two reports is not alive.
ALIVE = timedelta(seconds=90)
# For this long, nobody has to run a task: a new version may be on its way.
GRACE = timedelta(seconds=60)
# What the names of duly's own tasks begin with, which every worker runs.
OWN = "duly."


class WaitingTask(Struct, frozen=True):
    """How many items of a task wait, as far as they were counted, and when the first of them was put."""

    task: str
    items: int
    put_at: datetime

    def plus(self, other: WaitingTask) -> WaitingTask:
        return WaitingTask(self.task, self.items + other.items, min(self.put_at, other.put_at))

    def at_least(self, other: WaitingTask) -> WaitingTask:
        return WaitingTask(self.task, max(self.items, other.items), min(self.put_at, other.put_at))


class ServedTask(Struct, frozen=True):
    """When a worker with this task reported last, and one that did not sign off; and since when any worker runs."""

    task: str
    seen_at: datetime
    alive_at: datetime | None
    began_at: datetime | None


class Fleet(Struct, frozen=True):
    """The tasks that workers have reported, and since when a worker has been running; None: none is."""

    tasks: Mapping[str, ServedTask]
    since: datetime | None

    def has(self, task: str, now: datetime) -> bool:
        """Whether a worker that is alive has this task."""
        known = self.tasks.get(task)
        is_alive = known is not None and known.alive_at is not None and now - known.alive_at <= ALIVE
        return is_alive or task.startswith(OWN)

    def unserved(self, waiting: Iterable[WaitingTask], now: datetime) -> list[UnservedTask]:
        """Those of these tasks that nobody runs, with the most waiting items first."""
        if self.since is None:
            return []
        alive = [task for task in self.tasks if self.has(task, now)]
        found = []
        for each in waiting:
            known = self.tasks.get(each.task)
            seen_at = None if known is None else known.seen_at
            since = max(time for time in (self.since, each.put_at, seen_at) if time is not None)
            if not self.has(each.task, now) and now - since >= GRACE:
                near = next(iter(get_close_matches(each.task, alive, 1)), None)
                found.append(UnservedTask(each.task, each.items, since, seen_at, near))
        return sorted(found, key=lambda each: (-each.items, each.task))


def described(unserved: UnservedTask, is_more: bool = False) -> str:
    """What is wrong, in a sentence: the task and how many items wait for it."""
    more = " or more" if is_more else ""
    many = f"1 item{more} waits" if unserved.items == 1 else f"{unserved.items:,} items{more} wait"
    text = f"no running worker has the task {unserved.task}, and {many} for it"
    if unserved.seen_at is None:
        return text
    return f"{text}; the last worker that had it reported at {unserved.seen_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def remedy(unserved: UnservedTask) -> str:
    """What to do about it."""
    if unserved.near is None:
        return f"start a worker that has it; if it was renamed, `duly items retask {unserved.task} NEW` moves its items"
    return f"did you mean {unserved.near}? `duly items retask {unserved.task} {unserved.near}` moves its items"
