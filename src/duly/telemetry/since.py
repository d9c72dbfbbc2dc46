"""What was added to counters since the last read. Counters only grow, and reading must not disturb the counting."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from duly.core.shown import Measured


class CounterDeltas:
    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[int, float]] = {}
        self._lock = threading.Lock()  # two workers of one process may look at the same time

    def __call__(
        self,
        totals: Mapping[str, Mapping[str, tuple[int, float]]],
        mosts: Mapping[str, Mapping[str, float]],
    ) -> list[Measured]:
        """What these totals (by measure and task: how many, and their sum) have more than at the last look."""
        found = []
        with self._lock:
            for measure, by_task in totals.items():
                for task, (n, total) in by_task.items():
                    known, sum_before = self._before.get((task, measure), (0, 0.0))
                    if n > known:
                        self._before[task, measure] = (n, total)
                        most = mosts.get(measure, {}).get(task, 0.0)
                        found.append(Measured("task", task, measure, n - known, total - sum_before, most))
        return found
