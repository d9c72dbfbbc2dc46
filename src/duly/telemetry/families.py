"""Counters and histograms, and the metric families that a scrape makes of them; each shows a bounded number of names.

prometheus_client is imported at the first scrape, so that a program that only puts items starts without it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from duly.core.shown import Measured

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

NAMES = 200  # how many names a metric shows at most
OTHERS = "others"


class Metrics:
    """The metrics of a part of the process. Each is declared once, and shown in this order."""

    def __init__(self) -> None:
        self._shown: list[Callable[[], Metric]] = []

    def counter(self, name: str, doc: str, *labels: str) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        self.add(lambda: counter(name, doc, labels, counts))
        return counts

    def histogram(self, name: str, doc: str, bounds: tuple[float, ...], label: str = "task") -> Histogram:
        made = Histogram(bounds)
        self.add(lambda: made.family(name, doc, label))
        return made

    def add(self, family: Callable[[], Metric]) -> None:
        """Show what this function makes at a scrape."""
        self._shown.append(family)

    def families(self) -> Iterable[Metric]:
        return (family() for family in self._shown)


class Histogram:
    """Counts per bucket and task."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: dict[str, float] = defaultdict(float)
        self.mosts: dict[str, float] = defaultdict(float)  # the largest value since `take_mosts`

    def observe_all(self, values: Iterable[tuple[str, float]]) -> None:
        bounds, counts, sums, mosts = self.bounds, self.counts, self.sums, self.mosts
        for task, value in values:
            counts[task][bisect_left(bounds, value)] += 1
            sums[task] += value
            if value > mosts[task]:
                mosts[task] = value

    def totals(self) -> dict[str, tuple[int, float]]:
        """How many values of each task there were, and their sum."""
        return {task: (sum(counts), self.sums[task]) for task, counts in list(self.counts.items())}

    def take_mosts(self) -> dict[str, float]:
        mosts, self.mosts = self.mosts, defaultdict(float)
        return mosts

    def family(self, metric: str, doc: str, label: str) -> HistogramMetricFamily:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(metric, doc, labels=[label])
        items = list(self.counts.items())
        names = _names(task for task, _ in items)
        totals: dict[str, list[int]] = {}
        sums: dict[str, float] = defaultdict(float)
        for task, counts in items:
            name = names[task]
            totals[name] = [sum(both) for both in zip(totals.get(name, [0] * len(counts)), counts, strict=True)]
            sums[name] += self.sums[task]
        bounds = (*map(str, self.bounds), "+Inf")
        for name, counts in totals.items():
            family.add_metric([name], list(zip(bounds, accumulate(counts), strict=True)), sums[name])
        return family


class CounterDeltas:
    """What was added to counters since the last read. Counters only grow, and reading must not disturb the counting."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[int, float]] = {}
        self._lock = threading.Lock()  # two workers of one process may look at the same time

    def __call__(
        self, totals: Mapping[str, Mapping[str, tuple[int, float]]], mosts: Mapping[str, Mapping[str, float]]
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


def counter(name: str, doc: str, labels: Sequence[str], counts: Counter[Any]) -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, doc, labels=labels)
    given = {key if isinstance(key, tuple) else (key,): count for key, count in list(counts.items())}
    names = _names(key[0] for key in given if key)
    totals: Counter[tuple[str, ...]] = Counter()
    for key, count in given.items():
        totals[(names[key[0]], *key[1:]) if key else key] += count
    for key, count in totals.items():
        family.add_metric(list(key), count)
    return family


def gauge(name: str, doc: str, labels: list[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, doc, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family


def _names(seen: Iterable[str]) -> dict[str, str]:
    """The name under which each is shown. The first ones keep their names, so that no counter ever decreases."""
    return {name: name if place < NAMES else OTHERS for place, name in enumerate(dict.fromkeys(seen))}
