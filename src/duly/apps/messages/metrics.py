"""The metrics of the retry service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from duly.apps.messages.rows import QUEUE
from duly.core.errors import DulyError
from duly.core.shown import Depth

DRIFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)


class Metrics:
    """What the parts of the service count. The plug-in registers all of it on the app."""

    def __init__(self, depths: Callable[[], Sequence[Depth]]) -> None:
        self.scheduled = Counter("retries_scheduled", "Retries that were scheduled.", ["queue"], registry=None)
        self.executed = Counter(
            "retries_executed", "Messages published again, or not: success, failed.", ["queue", "status"], registry=None
        )
        self.exhausted = Counter(
            "retries_exhausted", "Messages moved to manual review after max retries.", ["queue"], registry=None
        )
        self.drift = Histogram(
            "retry_drift_seconds", "From the scheduled time to the broker's confirm.", buckets=DRIFT, registry=None
        )
        self.invalid = Counter("retry_invalid_messages", "Messages that nobody can retry.", registry=None)
        self.repeated = Counter("retry_repeated_messages", "Deliveries of what was known.", registry=None)
        self.depth = _Waiting(depths)


class _Waiting(Collector):
    """The gauge of waiting messages."""

    def __init__(self, depths: Callable[[], Sequence[Depth]]) -> None:
        self._depths = depths

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("retry_queue_depth", "Pending retry tasks.")
        try:
            depths = self._depths()
        except DulyError:
            return
        waiting = sum(
            each.items for each in depths if each.state == "waiting" and each.queue.partition("/")[0] == QUEUE
        )
        depth.add_metric([], waiting)
        yield depth

    def describe(self) -> Iterable[Metric]:
        return ()
