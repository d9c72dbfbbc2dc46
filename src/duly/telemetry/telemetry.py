"""Puts metrics, logs and spans of a process together. They are taken around the store and around calls of handlers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from duly.core.model import Ask, Change, Grant, Item, Share
from duly.core.settings import Settings
from duly.core.shown import Depth, Signs
from duly.store.contract import Store
from duly.tasks.task import Task
from duly.telemetry import spans
from duly.telemetry.counts import Counts, log
from duly.telemetry.families import gauge
from duly.telemetry.levels import DatabaseMetrics

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

    @cached_property
    def registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry

    is_tracing = staticmethod(spans.is_tracing)
    follow = staticmethod(spans.follow)
    traceparent = staticmethod(spans.traceparent)

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
        return spans.span(task, items) if traced else nullcontext()

    def paced(self, provider: str, calls: Callable[[], int], throttled: Callable[[], float]) -> None:
        """Report a pace: how many concurrent calls a provider gets, and the share of recent ones that it rejected."""
        self._paces[provider] = (calls, throttled)

    def _pace_families(self) -> Iterable[Metric]:
        calls = {name: float(asked()) for name, (asked, _) in self._paces.items()}
        throttled = {name: asked() for name, (_, asked) in self._paces.items()}
        yield gauge("duly_pace_calls", "Calls at a time that a provider gets from this process.", ["provider"], calls)
        doc = "Share of recent calls that a provider refused or could not handle."
        yield gauge("duly_pace_throttle_rate", doc, ["provider"], throttled)

    def collect(self) -> Iterable[Metric]:
        """What prometheus_client asks for at a scrape."""
        yield from self.families()
        yield from self.jobs.families()
        yield from self._pace_families()
        yield from self._database.families()


class Observed:
    """A store that counts its claims and settles; all other calls go straight to the store inside."""

    def __init__(self, store: Store, counts: Counts) -> None:
        self._store = store
        self._counts = counts

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
