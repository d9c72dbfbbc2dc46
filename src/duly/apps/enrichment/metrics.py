"""The enrichment app's metrics: how look-ups end, how long they take, and how much the provider bears."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from duly.apps.enrichment.pacing import Turnstile

SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """What the rounds count. The plug-in registers all of it on the app."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._lookups = Counter(
            "duly_lookups", "Questions to the provider, by how they ended.", ["variant", "status"], registry=None
        )
        self._seconds = Histogram("duly_lookup_seconds", "How long an answer took.", buckets=SECONDS, registry=None)
        self._throttled = Gauge(
            "duly_lookup_throttle_rate", "The share of recent questions that ended in 429, 5xx or a time-out.",
            registry=None,
        )  # fmt: skip
        self._at_a_time = Gauge("duly_lookups_at_a_time", "How many questions are let in at a time.", registry=None)
        self._throttled.set_function(turnstile.throttle_rate)
        self._at_a_time.set_function(turnstile.at_a_time)

    def count(self, variant: str, status: str, milliseconds: int) -> None:
        self._lookups.labels(variant, status).inc()
        self._seconds.observe(milliseconds / 1000)

    def collectors(self) -> tuple[Collector, ...]:
        """All of them, for a registry."""
        return self._lookups, self._seconds, self._throttled, self._at_a_time
