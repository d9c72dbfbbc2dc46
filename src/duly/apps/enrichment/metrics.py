"""The enrichment app's metrics: how look-ups end, and how long they take."""

from __future__ import annotations

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector

SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """What the rounds count. The plug-in registers all of it on the app."""

    def __init__(self) -> None:
        self._lookups = Counter(
            "duly_lookups", "Questions to the provider, by how they ended.", ["variant", "status"], registry=None
        )
        self._seconds = Histogram("duly_lookup_seconds", "How long an answer took.", buckets=SECONDS, registry=None)

    def count(self, variant: str, status: str, milliseconds: int) -> None:
        self._lookups.labels(variant, status).inc()
        self._seconds.observe(milliseconds / 1000)

    def collectors(self) -> tuple[Collector, ...]:
        """All of them, for a registry."""
        return self._lookups, self._seconds
