"""Counts what happens in this process, and logs what people should know.

While items are claimed and settled, numbers are only added up; a scrape turns them into metric families.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from duly.core.model import Change, Item, Share
from duly.core.policy.lateness import Holds, lateness
from duly.core.policy.outage import Source
from duly.core.policy.retry import windows_of
from duly.core.settings import Settings
from duly.core.shown import Measure, Measured
from duly.store.statements import WAITS
from duly.tasks.task import Task
from duly.telemetry.families import CounterDeltas, Metrics, counter, gauge
from duly.telemetry.levels import families_of, family_of
from duly.telemetry.logs import iso

log = logging.getLogger("duly.item")

LATENESS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 3_600.0, 21_600.0, 86_400.0)
# Exceptions that are kept until the ends of their tries are written; those of tries that were stopped are left over.
CAUGHT = 4_000
DURATION = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)
INGEST = (0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
PAGE = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
JOBS = 1_000  # how many jobs are counted one by one between two looks


class TryFailed(Exception):
    """Replaces, in log lines, an exception of which only the text is left, such as one of another process."""


def _has_words(error: BaseException | None) -> bool:
    """Whether an exception has a text that any log can take: it exists, and it is valid Unicode."""
    try:
        str(error).encode()
    except Exception:
        return False
    return error is not None


class Counts(Metrics):
    """Counts of claims, attempts and their ends, by task. As names have no end, a metric shows a bounded number."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], settings: Settings) -> None:
        super().__init__()
        self._tasks = tasks  # the app's own mapping, in which tasks may be added later
        self._settings = settings
        self._claims = self.counter("duly_claims", "Claims by result: full, short or empty.", "result")
        self._claimed = self.counter("duly_claimed_items", "Items started (processing rate).", "task")
        self._ended = self.counter("duly_attempts", "Ended attempts by outcome.", "task", "outcome")
        self._finished = self.counter("duly_finished_items", "Items that ended.", "task", "state")
        self._retried = self.counter("duly_retries", "Retries scheduled (retry rate).", "task")
        self._refused = self.counter("duly_refused_results", "Late results of stale attempts.", "task")
        self._limited = self.counter("duly_limited_claims", "Claims without items because of a limit.", "queue")
        contended = "Claims whose due items other workers had already taken."
        self.add(lambda: counter("duly_contended_claims", contended, [], Counter({(): self._claims["empty"]})))
        doc = "How long after its due time an item was started."
        self._lateness = self.histogram("duly_lateness_seconds", doc, LATENESS)
        self._duration = self.histogram("duly_run_seconds", "How long handlers ran.", DURATION)
        self._late = self.counter("duly_late_items", "Items started later than alert_late_seconds.", "task")
        self._steps = self.histogram("duly_step_seconds", "How long claims and settles took.", DURATION, "step")
        self._told: dict[str, float] = {"clock": time.monotonic()}
        # Exceptions of tries that are not settled yet, by item and fence.
        self._caught: dict[tuple[int, int], BaseException] = {}
        self._held_until: Callable[[Source], datetime | None] = lambda _: None
        self._since = CounterDeltas()
        self._job_rows: Counter[tuple[int, str]] = Counter()  # that have ended, by job and task, since `ended_lately`
        self._count_jobs()

    def _count_jobs(self) -> None:
        """Declare the metrics about jobs: files that were read, pages of rows that were looked up, rows that ended."""
        self._rows_ended = self.counter("duly_job_rows", "Rows of jobs that ended, by how.", "task", "status")
        doc = "How long reading a file took, by type of job."
        self._reading = self.histogram("duly_ingest_seconds", doc, INGEST, "type")
        self._read = self.counter("duly_ingested_rows", "Rows that were read from files.", "type")
        self._bad = self.counter("duly_unreadable_rows", "Rows of files that could not be read.", "type")
        self._writing: dict[str, float] = {}
        write = "Recent average duration of a write of rows."
        self.add(lambda: gauge("duly_ingest_write_seconds", write, ["type"], self._writing))
        self._pages = self.histogram("duly_page_seconds", "How long looking up a page of rows took.", PAGE, "list")
        self._slow = self.counter("duly_slow_pages", "Pages of rows that took longer than 250 ms.", "list")
        waits = "Number of waits for a database connection."
        self.add(lambda: counter("duly_pool_waits", waits, [], Counter({(): WAITS.count})))
        seconds = "Total duration of waits for a database connection, in seconds."
        self.add(lambda: counter("duly_pool_wait_seconds", seconds, [], Counter({(): WAITS.seconds})))

    def outages(self, held_until: Callable[[Source], datetime | None]) -> None:
        """Use a function that returns until when items had to wait for a source that was down: they are not late."""
        self._held_until = held_until

    def claimed(self, shares: Sequence[Share], items: list[Item]) -> None:
        asked = sum(share.limit for share in shares)
        self._claims["full" if len(items) == asked else "short" if items else "empty"] += 1
        if not items:
            log.debug("already being processed elsewhere: %s", ", ".join(share.line.queue for share in shares))
        self._claimed.update(item.task for item in items)
        late = self._settings.late_seconds
        latenesses = [((item.started_at or item.due_at) - item.due_at).total_seconds() for item in items]
        self._lateness.observe_all(zip((item.task for item in items), latenesses, strict=True))
        grace = self._settings.alert_late_seconds
        if latenesses and max(latenesses) > min(grace, late):
            for item in items:
                by = lateness(item.lane, item.due_at, item.started_at or item.due_at, self._holds_of(item.task), late)
                if item.lane == "main" and by > grace:
                    self._late[item.task] += 1
                if by > late:
                    self._log_late(item, by)

    def limited(self, share: Share) -> None:
        self._limited[family_of(share.line.queue, families_of(self._tasks))] += 1

    def _holds_of(self, task: str) -> Holds:
        known = self._tasks.get(task)
        if known is None:
            return Holds()
        until = None if known.source is None else self._held_until(known.source)
        return Holds(tuple(limit.meter() for limit in known.limits), windows_of(known.rules.retry), until=until)

    def _log_late(self, item: Item, late_by: float) -> None:
        is_retry = item.lane == "retry"
        log.warning(
            "Late retry" if is_retry else "Late event execution (recovery)",
            extra={
                "eventId": item.id,
                "task": item.task,
                "targetTime": iso(item.due_at),
                "actualTime": iso(item.started_at or item.due_at),
                "latenessMinutes": int(late_by // 60),
                "latenessHours": f"{late_by / 3600:.1f}",
                "reason": "A retry started long after its time" if is_retry else "Recovery from downtime",
            },
        )

    def caught(self, item: Item, error: BaseException) -> None:
        """Keep the exception that ended this try, for its log line; called from any thread."""
        if len(self._caught) >= CAUGHT:
            self._caught.clear()
        self._caught[item.id, item.fence] = error

    def settled(self, changes: Sequence[Change], refused: Sequence[int]) -> None:
        causes: dict[int, BaseException | None] = {}
        if self._caught:
            causes = {change.id: self._caught.pop((change.id, change.fence), None) for change in changes}
        if refused:
            stale = set(refused)
            self._refused.update(change.task for change in changes if change.id in stale)
            for change in changes:
                if change.id in stale:
                    log.warning("%s %s: a late result was rejected", self._label(change.task), change.id)
            changes = [change for change in changes if change.id not in stale]
        self._ended.update((change.task, change.outcome or "none") for change in changes)
        self._finished.update((change.task, change.state) for change in changes if change.finished_at is not None)
        self.count_rows(changes)
        for change in changes:
            if change.tried is not None:
                self._log_failure(change, causes.get(change.id))

    def took(self, step: str, seconds: float) -> None:
        self._steps.observe_all([(step, seconds)])

    def summary(self) -> dict[str, Any] | None:
        """What happened since the last call, as fields of a log line; None when nothing did.

        `failed` are failed tries, of which `willRetry` are tried again; `durationMs` is how long handlers took in all,
        and `eventsPerSecond` counts what was done by the time that has passed.
        """
        total = {
            "processed": sum(count for (_, state), count in self._finished.items() if state == "done"),
            "failed": sum(count for (_, state), count in self._finished.items() if state == "failed"),
            "late": sum(self._late.values()),
            "claimed": sum(self._claimed.values()),
            "retried": sum(self._retried.values()),
            "lateness": sum(self._lateness.sums.values()),
            "ran": sum(self._duration.sums.values()),
            "clock": time.monotonic(),
        }
        new = {name: value - self._told.get(name, 0) for name, value in total.items()}
        self._told = total
        if not new["processed"] and not new["failed"] and not new["retried"]:
            return None
        return {
            "processed": new["processed"],
            "failed": new["failed"] + new["retried"],
            "willRetry": new["retried"],
            "eventsLate": new["late"],
            "averageLatenessMinutes": round(new["lateness"] / (new["claimed"] or 1) / 60, 2),
            "recoveryMode": new["late"] > 0,
            "durationMs": round(new["ran"] * 1000),
            "eventsPerSecond": round(new["processed"] / max(new["clock"], 0.001), 2),
        }

    def lately(self) -> list[Measured]:
        """What happened to each task since this was last asked."""
        finished = list(self._finished.items())
        return self._since(
            {
                "done": {task: (count, 0.0) for (task, state), count in finished if state == "done"},
                "failed": {task: (count, 0.0) for (task, state), count in finished if state == "failed"},
                "retried": {task: (count, 0.0) for task, count in list(self._retried.items())},
                "lateness": self._lateness.totals(),
                "run": self._duration.totals(),
            },
            {"lateness": self._lateness.take_mosts(), "run": self._duration.take_mosts()},
        )

    def ended_lately(self) -> Counter[tuple[int, str]]:
        """How many rows of each job, and of which task, have ended since the last call."""
        ended, self._job_rows = self._job_rows, Counter()
        return ended

    def count_rows(self, changes: Sequence[Change]) -> None:
        """Count the rows of jobs among these changes that have ended by them."""
        rows = [(change.job_id, change) for change in changes if change.job_id is not None and change.finished_at]
        self._rows_ended.update((change.task, str(change.status)) for _, change in rows)
        if len(self._job_rows) < JOBS:
            self._job_rows.update((job_id, change.task) for job_id, change in rows)

    def measured(self, what: Measure, name: str, value: float) -> None:
        """Record a measurement of verbs or of reading files: seconds, or a number of rows."""
        match what:
            case "file":
                self._reading.observe_all([(name, value)])
            case "rows":
                self._read[name] += int(value)
            case "bad rows":
                self._bad[name] += int(value)
            case "write":
                self._writing[name] = value
            case "page":
                self._pages.observe_all([(name, value)])
            case "slow page":
                self._slow[name] += 1

    def ran(self, durations: list[tuple[str, float]]) -> None:
        """How long handlers of these tasks took, in seconds."""
        self._duration.observe_all(durations)

    def _log_failure(self, change: Change, cause: BaseException | None) -> None:
        """Log a failed try with its exception, or with the text of it if that is all that there is."""
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
        shown_error = cause if _has_words(cause) else TryFailed(change.error or change.tried.outcome)
        if change.outcome == "gave_up":  # the handler has said why, so there is nothing to trace
            log.error("%s %s permanently failed: %s", label, change.id, fields["error"], extra=fields)
        elif change.state == "failed":
            log.error("%s %s permanently failed", label, change.id, extra=fields, exc_info=shown_error)
        else:
            self._retried[change.task] += 1
            log.warning(
                "%s %s failed, scheduling retry", label, change.id,
                extra={**fields, "nextRetryAt": iso(change.due_at)}, exc_info=shown_error,
            )  # fmt: skip

    def _label(self, task: str) -> str:
        known = self._tasks.get(task)
        return str(known.label).capitalize() if known and known.is_labelled else task
