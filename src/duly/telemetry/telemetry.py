"""Puts metrics, logs and spans of a process together. They are taken around the store and around calls of handlers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from duly.core.model import Ask, Change, Grant, Item, Share
from duly.core.settings import Settings
from duly.core.shown import Depth, Signs
from duly.store.contract import Store
from duly.tasks.task import Task
from duly.telemetry.counts import Counts, log
from duly.telemetry.families import gauge
from duly.telemetry.levels import DatabaseMetrics

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - an extra
    trace = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class Telemetry(Counts):
    """What a process reports about itself.

    `signs` reads from the database whether all is well, and its time; `depths` reads how deep the queues are, and
    `pending` how many rows of jobs have not ended.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        settings: Settings,
        *,
        signs: Callable[[], tuple[Signs, datetime]],
        depths: Callable[[], Sequence[Depth]],
        pending: Callable[[], Mapping[str, int]],
    ) -> None:
        super().__init__(tasks, settings)
        self._database = DatabaseMetrics(
            tasks, settings.alert_late_seconds, settings.late_seconds, signs, depths, pending
        )
        self.depths = self._database.depths
        self._paces: dict[str, tuple[Callable[[], int], Callable[[], float]]] = {}
        self._running_on: list[Callable[[], Mapping[str, int]]] = []

    @cached_property
    def registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def observe(self, store: Store) -> Store:
        """The same store, with its claims and settles counted."""
        return cast(Store, Observed(store, self))

    def speaks_of(self, task: Task[..., Any]) -> bool:
        """Whether each try of this task has its line in the logs."""
        return log.isEnabledFor(logging.INFO if task.is_labelled else logging.DEBUG)

    def running(self, task: Task[..., Any], items: list[Item], traced: bool) -> AbstractContextManager[None]:
        """A context around one call of a handler: it writes the log line, and makes a span if tracing is set up."""
        if self.speaks_of(task):
            level = logging.INFO if task.is_labelled else logging.DEBUG
            for item in items:
                tries = item.max_attempts or task.tries
                log.log(level, "Processing %s %s (attempt %s/%s)", task.label, item.id, item.attempt, tries)
        return _span(task, items) if traced else nullcontext()

    # -- spans of OpenTelemetry, if it is set up in this process; otherwise there are none

    @staticmethod
    def is_tracing() -> bool:
        """Whether OpenTelemetry is configured in this process."""
        return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    @staticmethod
    def follow(name: str, item: Item) -> str | None:
        """Make a span for one item of a batch; returns its traceparent, to be sent along, or None without tracing."""
        if not Telemetry.is_tracing():
            return None
        parent = propagate.extract({"traceparent": item.trace}) if item.trace else None
        carrier: dict[str, str] = {}
        with trace.get_tracer("duly").start_as_current_span(name, context=parent, kind=trace.SpanKind.PRODUCER):
            propagate.inject(carrier)
        return carrier.get("traceparent")

    @staticmethod
    def traceparent() -> str | None:
        """The traceparent of the code that puts an item, so that the item's run can continue its trace."""
        if trace is None or not trace.get_current_span().get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier.get("traceparent")

    # -- paces, and all of it

    def paced(self, provider: str, calls: Callable[[], int], throttled: Callable[[], float]) -> None:
        """Report a pace: how many concurrent calls a provider gets, and the share of recent ones that it rejected."""
        self._paces[provider] = (calls, throttled)

    def running_on(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Report how many handlers of a worker run on after they were stopped, by kind."""
        self._running_on.append(counts)

    def _runaway_families(self) -> Iterable[Metric]:
        totals: Counter[str] = Counter({"async": 0, "thread": 0})
        for counts in self._running_on:
            totals.update(counts())
        doc = "Handlers that run on after they were stopped. Only a restart ends them."
        yield gauge("duly_runaway_handlers", doc, ["kind"], totals)

    def _pace_families(self) -> Iterable[Metric]:
        calls = {name: float(asked()) for name, (asked, _) in self._paces.items()}
        throttled = {name: asked() for name, (_, asked) in self._paces.items()}
        yield gauge("duly_pace_calls", "Calls at a time that a provider gets from this process.", ["provider"], calls)
        doc = "Share of recent calls that a provider refused or could not handle."
        yield gauge("duly_pace_throttle_rate", doc, ["provider"], throttled)

    def collect(self) -> Iterable[Metric]:
        """What prometheus_client asks for at a scrape."""
        yield from self.families()
        yield from self._pace_families()
        yield from self._runaway_families()
        yield from self._database.families()


@dataclass(eq=False, repr=False)
class Observed:
    """A store that counts its claims and settles; all other calls go straight to the store inside."""

    _store: Store
    _counts: Counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        begun = time.monotonic()
        items = self._store.claim(shares, worker, now, lease)
        self._counts.took("claim", time.monotonic() - begun)
        self._counts.claimed(shares, items)
        return items

    def claim_metered(self, asks: Sequence[Ask], *more: Any) -> list[Grant]:
        begun = time.monotonic()
        grants = self._store.claim_metered(asks, *more)
        self._counts.took("claim", time.monotonic() - begun)
        for ask, grant in zip(asks, grants, strict=True):
            if grant.items:
                self._counts.claimed([ask.share], grant.items)
            elif grant.is_refused:
                self._counts.limited(ask.share)
        return grants

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        begun = time.monotonic()
        refused = self._store.settle(changes, closed, connection)
        self._counts.took("settle", time.monotonic() - begun)
        self._counts.settled(changes, refused)
        return refused


@contextmanager
def _span(task: Task[..., Any], items: list[Item]) -> Iterator[None]:
    """A span around one call of a handler. It continues the trace in which the first of its items was put."""
    parent = propagate.extract({"traceparent": items[0].trace}) if items[0].trace else None
    attributes: dict[str, str | int] = {
        "messaging.system": "duly",
        "messaging.destination.name": task.queue,
        "messaging.message.id": items[0].execution_key,
        "duly.item": items[0].id,
        "duly.attempt": items[0].attempt,
        "messaging.batch.message_count": len(items),
    }
    tracer = trace.get_tracer("duly")
    with tracer.start_as_current_span(
        f"run {task.name}", context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
    ):
        yield
