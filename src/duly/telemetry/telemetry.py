"""What the outside sees: metrics, logs and spans, taken at one seam around the store and the caller of handlers.

The hot path only counts into plain dictionaries, a batch at a time; a scrape turns them into metric families, and reads
queue depths from the database, as often as their cost allows. A metric tells so many names at most: users make them up.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from duly.core.errors import DulyError
from duly.core.model import Ask, Change, Grant, Item, Share
from duly.core.patience import Patient, Thrifty
from duly.core.shown import Depth
from duly.store.contract import Store
from duly.telemetry.depths import NAMES, OTHERS, family_of, labels

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - an extra
    trace = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from duly.facade.app import Duly
    from duly.tasks.task import Task

log = logging.getLogger("duly.item")

LATENESS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 3_600.0, 21_600.0, 86_400.0)
DURATION = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)

# Seconds that a scrape waits for the database: less than what a scraper waits for us.
PATIENCE = 5.0
# And for how deep queues are, where the last answer is as good.
DEPTHS_PATIENCE = 2.0


class Histogram:
    """Counts per bucket and task."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: dict[str, float] = defaultdict(float)

    def observe_all(self, values: Iterable[tuple[str, float]]) -> None:
        bounds, counts, sums = self.bounds, self.counts, self.sums
        for task, value in values:
            counts[task][bisect_left(bounds, value)] += 1
            sums[task] += value

    def family(self, metric: str, doc: str, label: str = "task") -> HistogramMetricFamily:
        family = HistogramMetricFamily(metric, doc, labels=[label])
        items = list(self.counts.items())
        names = _names(task for task, _ in items)
        told: dict[str, list[int]] = {}
        sums: dict[str, float] = defaultdict(float)
        for task, counts in items:
            name = names[task]
            told[name] = [sum(both) for both in zip(told.get(name, [0] * len(counts)), counts, strict=True)]
            sums[name] += self.sums[task]
        for name, counts in told.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric([name], buckets, sums[name])
        return family


class Telemetry:
    def __init__(self, app: Duly) -> None:
        self._app = app
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._claimed: Counter[str] = Counter()
        self._claims: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._finished: Counter[tuple[str, str]] = Counter()
        self._retried: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._limited: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._steps = Histogram(DURATION)
        self._told: dict[str, float] = {}
        self._lateness = Histogram(LATENESS)
        self._duration = Histogram(DURATION)
        self._ask = Patient(lambda: (app.read.signs(), app.clock.now()), PATIENCE)
        # How deep queues are, for all who look at them again and again: scrapes, dashboards.
        self.depths = Thrifty(lambda: app.read.depths(), DEPTHS_PATIENCE)

    def observe(self, store: Store) -> Store:
        return cast(Store, Observed(store, self))

    # -- around the store

    def claimed(self, shares: Sequence[Share], items: list[Item]) -> None:
        asked = sum(share.limit for share in shares)
        self._claims["full" if len(items) == asked else "short" if items else "empty"] += 1
        if not items:
            log.debug("already being processed elsewhere: %s", ", ".join(share.queue for share in shares))
        self._claimed.update(item.task for item in items)
        late = self._app.settings.late_seconds
        latenesses = [((item.started_at or item.due_at) - item.due_at).total_seconds() for item in items]
        self._lateness.observe_all(zip((item.task for item in items), latenesses, strict=True))
        grace = self._app.settings.alert_late_seconds
        if latenesses and max(latenesses) > grace:
            pairs = zip(items, latenesses, strict=True)
            self._late.update(item.task for item, lateness in pairs if lateness > grace)
        if latenesses and max(latenesses) > late:
            for item, lateness in zip(items, latenesses, strict=True):
                if lateness > late:
                    self._log_late(item, lateness)

    def limited(self, share: Share) -> None:
        self._limited[family_of(share.queue, self._families())] += 1

    def _families(self) -> set[str]:
        """Queues that have one below them for each value of an argument."""
        return {task.queue for task in list(self._app.tasks.values()) if any(limit.by for limit in task.limits)}

    def _log_late(self, item: Item, lateness: float) -> None:
        log.warning(
            "Late event execution (recovery)",
            extra={
                "eventId": item.id,
                "task": item.task,
                "targetTime": _iso(item.due_at),
                "actualTime": _iso(item.due_at + timedelta(seconds=lateness)),
                "latenessMinutes": int(lateness // 60),
                "latenessHours": f"{lateness / 3600:.1f}",
                "reason": "Recovery from downtime",
            },
        )

    def settled(self, changes: Sequence[Change], refused: Sequence[int]) -> None:
        if refused:
            stale = set(refused)
            self._refused.update(change.task for change in changes if change.id in stale)
            for change in changes:
                if change.id in stale:
                    log.warning("%s %s: a late result was refused", self._label(change.task), change.id)
            changes = [change for change in changes if change.id not in stale]
        self._ended.update((change.task, change.outcome or "none") for change in changes)
        self._finished.update((change.task, change.state) for change in changes if change.finished_at is not None)
        for change in changes:
            if change.tried is not None:
                self._log_failure(change)

    def took(self, step: str, seconds: float) -> None:
        self._steps.observe_all([(step, seconds)])

    def summary(self) -> dict[str, Any] | None:
        """What happened since it was last asked, in the words of a scheduler's log; None when nothing did."""
        total = {
            "processed": sum(count for (_, state), count in self._finished.items() if state == "done"),
            "failed": sum(count for (_, state), count in self._finished.items() if state == "failed"),
            "late": sum(self._late.values()),
            "claimed": sum(self._claimed.values()),
            "lateness": sum(self._lateness.sums.values()),
            "seconds": sum(self._steps.sums.values()),
        }
        new = {name: value - self._told.get(name, 0) for name, value in total.items()}
        self._told = total
        if not new["processed"] and not new["failed"]:
            return None
        return {
            "processed": new["processed"],
            "failed": new["failed"],
            "eventsLate": new["late"],
            "averageLatenessMinutes": round(new["lateness"] / (new["claimed"] or 1) / 60, 2),
            "recoveryMode": new["late"] > 0,
            "durationMs": round(new["seconds"] * 1000),
            "eventsPerSecond": round(new["processed"] / new["seconds"], 2) if new["seconds"] else None,
        }

    def _log_failure(self, change: Change) -> None:
        assert change.tried is not None
        label = self._label(change.task)
        fields = {
            "itemId": change.id,
            "task": change.task,
            "attempts": change.tried.number,
            "error": (change.error or "").partition("\n")[0],
            "errorClass": change.error_class,
            "worker": change.tried.worker,
        }
        if change.state == "failed":
            log.error("%s %s permanently failed", label, change.id, extra=fields)
        else:
            self._retried[change.task] += 1
            log.warning(
                "%s %s failed, scheduling retry", label, change.id, extra={**fields, "nextRetryAt": _iso(change.due_at)}
            )

    def _label(self, task: str) -> str:
        known = self._app.tasks.get(task)
        return (known.label if known else task).capitalize() if known and known.is_labelled else task

    # -- around the caller of handlers

    def speaks_of(self, task: Task[..., Any]) -> bool:
        """Whether each try of this task has its line in the logs."""
        return log.isEnabledFor(logging.INFO if task.is_labelled else logging.DEBUG)

    def running(self, task: Task[..., Any], items: list[Item], traced: bool) -> AbstractContextManager[None]:
        """Around one call of a handler: its log line, and its span when tracing is set up."""
        if self.speaks_of(task):
            level = logging.INFO if task.is_labelled else logging.DEBUG
            for item in items:
                tries = item.max_attempts or task.tries
                log.log(level, "Processing %s %s (attempt %s/%s)", task.label, item.id, item.attempt, tries)
        return self._span(task, items) if traced else nullcontext()

    @contextmanager
    def _span(self, task: Task[..., Any], items: list[Item]) -> Iterator[None]:
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

    def follow(self, name: str, item: Item) -> str | None:
        """A span of its own for one item of a batch: its traceparent, for whoever goes on; None without tracing."""
        if not is_tracing():
            return None
        parent = propagate.extract({"traceparent": item.trace}) if item.trace else None
        carrier: dict[str, str] = {}
        with trace.get_tracer("duly").start_as_current_span(name, context=parent, kind=trace.SpanKind.PRODUCER):
            propagate.inject(carrier)
        return carrier.get("traceparent")

    def ran(self, durations: list[tuple[str, float]]) -> None:
        """How long handlers of these tasks took, in seconds."""
        self._duration.observe_all(durations)

    def traceparent(self) -> str | None:
        """The putter's trace, to be continued by whoever runs the item."""
        if trace is None or not trace.get_current_span().get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier.get("traceparent")

    # -- scrape

    def collect(self) -> Iterable[Metric]:
        """What prometheus_client asks for at a scrape."""
        yield _counter("duly_claims", "Claims by how much of what was asked they got.", ["result"], self._claims)
        yield _counter("duly_claimed_items", "Items started (processing rate).", ["task"], self._claimed)
        yield _counter("duly_attempts", "Ended attempts by outcome.", ["task", "outcome"], self._ended)
        yield _counter("duly_finished_items", "Items that came to an end.", ["task", "state"], self._finished)
        yield _counter("duly_retries", "Retries scheduled (retry rate).", ["task"], self._retried)
        yield _counter("duly_refused_results", "Late results of stale attempts.", ["task"], self._refused)
        yield _counter("duly_limited_claims", "Claims that a limit had no room for.", ["queue"], self._limited)
        contended = Counter({(): self._claims["empty"]})
        yield _counter("duly_contended_claims", "Claims that found the due work taken already.", [], contended)
        yield self._lateness.family("duly_lateness_seconds", "How long after its due time an item was started.")
        yield self._duration.family("duly_run_seconds", "How long handlers ran.")
        yield _counter("duly_late_items", "Items started later than alert_late_seconds.", ["task"], self._late)
        yield self._steps.family("duly_step_seconds", "How long claims and settles took.", "step")
        yield from self._depths()

    def _depths(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("duly_store_up", "1 when the database answered this scrape.")
        try:
            signs, now = self._ask()
        except DulyError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        silence = GaugeMetricFamily("duly_silence_seconds", "Age of the last sign of life of any worker.")
        if signs.seen_at is not None:
            silence.add_metric([], max((now - signs.seen_at).total_seconds(), 0.0))
        standing = GaugeMetricFamily("duly_alert", "1 for each alert that stands.", labels=["alert"])
        for name in signs.alerts:
            standing.add_metric([name], 1)
        broken = GaugeMetricFamily("duly_broken_schedules", "Schedules deactivated after failures in a row.")
        broken.add_metric([], signs.broken)
        yield from (silence, standing, broken)
        try:
            depths = self.depths()
        except DulyError:  # they take longer than this scrape has; the next one has them
            return
        yield from self._queues(depths, now)

    def _queues(self, depths: Sequence[Depth], now: datetime) -> Iterable[Metric]:
        """By the names that queues have here; what has none of its own is added up."""
        names = labels(depths, {task.queue for task in list(self._app.tasks.values())}, self._families())
        counts: Counter[tuple[str, str, str]] = Counter()
        dues: Counter[tuple[str, str]] = Counter()
        ages: dict[str, float] = {}
        closed: dict[str, set[str]] = {name: set() for name in names.values()}
        recovering = GaugeMetricFamily("duly_recovery_mode", "1 while something is due for longer than it may be.")
        oldest = 0.0
        for depth in depths:
            name = names[depth.queue]
            counts[name, depth.lane, depth.state] += depth.items
            if depth.paused:
                closed[name].add(depth.queue)
            if depth.state == "waiting":
                dues[name, depth.lane] += depth.due
                if depth.oldest is not None:
                    age = max((now - depth.oldest).total_seconds(), 0.0)
                    ages[name] = max(age, ages.get(name, 0.0))
                    oldest = max(age if depth.due else 0.0, oldest)
        recovering.add_metric([], float(oldest > self._app.settings.alert_late_seconds))
        yield recovering
        yield _gauge("duly_queue_items", "Items in the queue.", ["queue", "lane", "state"], counts)
        yield _gauge("duly_queue_due_items", "Waiting items that are due.", ["queue", "lane"], dues)
        yield _gauge("duly_queue_oldest_due_seconds", "Age of the oldest due item.", ["queue"], ages)
        paused = {name: len(queues) for name, queues in closed.items()}
        yield _gauge("duly_queue_paused", "1 when the queue is paused; of several, how many are.", ["queue"], paused)


class Observed:
    """A store that tells telemetry what passed through it; everything else goes straight on."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        begun = time.monotonic()
        items = self._store.claim(shares, worker, now, lease)
        self._telemetry.took("claim", time.monotonic() - begun)
        self._telemetry.claimed(shares, items)
        return items

    def claim_metered(self, asks: Sequence[Ask], *more: Any) -> list[Grant]:
        begun = time.monotonic()
        grants = self._store.claim_metered(asks, *more)
        self._telemetry.took("claim", time.monotonic() - begun)
        for ask, grant in zip(asks, grants, strict=True):
            if grant.items:
                self._telemetry.claimed([ask.share], grant.items)
            elif grant.is_refused:
                self._telemetry.limited(ask.share)
        return grants

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        begun = time.monotonic()
        refused = self._store.settle(changes, closed, connection)
        self._telemetry.took("settle", time.monotonic() - begun)
        self._telemetry.settled(changes, refused)
        return refused


def is_tracing() -> bool:
    """Whether someone set up OpenTelemetry in this process."""
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _counter(name: str, doc: str, labels: list[str], counts: Counter[Any]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, doc, labels=labels)
    given = {key if isinstance(key, tuple) else (key,): count for key, count in list(counts.items())}
    names = _names(key[0] for key in given if key)
    told: Counter[tuple[str, ...]] = Counter()
    for key, count in given.items():
        told[(names[key[0]], *key[1:]) if key else key] += count
    for key, count in told.items():
        family.add_metric(list(key), count)
    return family


def _gauge(name: str, doc: str, labels: list[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family


def _names(seen: Iterable[str]) -> dict[str, str]:
    """The name under which each is told. The first ones keep their own, so that no count ever goes down."""
    return {name: name if place < NAMES else OTHERS for place, name in enumerate(dict.fromkeys(seen))}


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


# -- logs

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per line; what a call gave as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _iso(datetime.fromtimestamp(0, UTC) + timedelta(seconds=record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def set_up_logs(level: str, form: str) -> None:
    """Logs of a duly process, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S") if is_text else JsonLines()
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
