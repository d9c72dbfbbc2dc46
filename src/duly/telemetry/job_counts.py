"""Counts about jobs in this process: files that were read, pages of rows that were looked up, rows that ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.core.model import Change
from duly.core.shown import Measure
from duly.store.waits import WAITS
from duly.telemetry.families import Metrics, counter, gauge

INGEST = (0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
PAGE = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
JOBS = 1_000  # how many jobs are counted one by one between two looks


class JobCounts(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self._lately: Counter[tuple[int, str]] = Counter()
        self._ended = self.counter("duly_job_rows", "Rows of jobs that ended, by how.", "task", "status")
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

    def settled(self, changes: Sequence[Change]) -> None:
        """Count the rows of jobs among these changes that have ended by them."""
        rows = [(change.job_id, change) for change in changes if change.job_id is not None and change.finished_at]
        self._ended.update((change.task, str(change.status)) for _, change in rows)
        if len(self._lately) < JOBS:
            self._lately.update((job_id, change.task) for job_id, change in rows)

    def lately(self) -> Counter[tuple[int, str]]:
        """How many rows of each job, and of which task, have ended since the last call."""
        lately, self._lately = self._lately, Counter()
        return lately

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
