"""Under which names the metrics show the depths of queues: a bounded number of names, for users may make up any."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from duly.core.shown import Depth
from duly.tasks.task import Task

NAMES = 200  # how many names a metric shows at most
OTHERS = "others"
_OF_A_JOB = re.compile(r"/job-\d+$")


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
