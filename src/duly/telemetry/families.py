"""Makes metric families of numbers, as a scrape is answered; each shows a bounded number of names.

prometheus_client is imported at the first scrape, so that a program that only puts items starts without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from duly.telemetry.depths import NAMES, OTHERS

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily


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

    def family(self, metric: str, doc: str, label: str = "task") -> HistogramMetricFamily:
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
        for name, counts in totals.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric([name], buckets, sums[name])
        return family


def counter(name: str, doc: str, labels: list[str], counts: Counter[Any]) -> CounterMetricFamily:
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
