"""Records events of this process for charts: every few seconds, in one statement, only if there are any.

It adds what was counted in memory to rows that all workers share, on a thread of its own: no claim or settle waits for
it, and what it cannot write is dropped. So a crash or an outage loses a few seconds of a chart and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from msgspec.json import encode

from duly.core.clock import EPOCH, begin_of
from duly.core.settings import Settings
from duly.core.shown import HISTORY_LONG, HISTORY_SHORT, HistoryKind, Measured
from duly.engine.gate import PaceGate, PaceSample
from duly.engine.work import Tasks
from duly.store.contract import Store
from duly.telemetry.telemetry import Telemetry

EVERY = timedelta(seconds=HISTORY_SHORT)
FORGET_EVERY = timedelta(minutes=10)
BREATH = timedelta(seconds=1)
PORTION = 5_000  # how many rows are deleted at a time
SUBJECTS = 500  # how many subjects are written at a time
JOBS = 50  # and how many of them may be jobs


class Historian:
    def __init__(
        self, store: Store, telemetry: Telemetry, settings: Settings, tasks: Tasks, gates: Callable[[], list[PaceGate]]
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._keeps = {HISTORY_SHORT: settings.history_seconds, HISTORY_LONG: settings.history_long_seconds}
        self._tasks = tasks
        self._gates = gates
        self._forget_at = EPOCH

    def tick(self, now: datetime) -> datetime:
        self.write(now)
        if now >= self._forget_at:
            self._forget_at = now + (BREATH if self._forget(now) else FORGET_EVERY)
        return min(now + EVERY, self._forget_at)

    def write(self, now: datetime) -> None:
        """Add what happened since the last time."""
        rows = self._measured()
        if rows and any(self._keeps.values()):
            given = {
                "short": HISTORY_SHORT, "short_bucket": self._bucket(now, HISTORY_SHORT),
                "long": HISTORY_LONG, "long_bucket": self._bucket(now, HISTORY_LONG), "rows": encode(rows).decode(),
            }  # fmt: skip
            self._store.write("add_history", given)

    def _bucket(self, now: datetime, step: int) -> datetime | None:
        """The beginning of the step that this time is in; None when steps of this length are not kept."""
        return begin_of(now, step) if self._keeps[step] else None

    def _measured(self) -> list[Measured]:
        by_subject: dict[tuple[HistoryKind, str], list[Measured]] = {}
        for each in self._telemetry.lately():
            by_subject.setdefault((each.kind, each.subject), []).append(each)
        runs = {each.subject: each for rows in by_subject.values() for each in rows if each.measure == "run"}
        paced = {gate.pace.name: lately for gate in self._gates() if (lately := gate.lately()) is not None}
        for name, lately in paced.items():
            by_subject["pace", name] = [
                *_sized("pace", name, lately),
                Measured("pace", name, "latency", lately.calls, lately.seconds, lately.longest),
                Measured("pace", name, "rate", lately.calls),
            ]
        for (job_id, task), ended in self._telemetry.ended_lately().most_common(JOBS):
            subject = str(job_id)
            by_subject["job", subject] = [
                Measured("job", subject, "rate", ended),
                *self._of_job(subject, task, paced, runs.get(task)),
            ]
        kept = list(by_subject.values())[:SUBJECTS]
        return [each for rows in kept for each in rows]

    def _of_job(
        self, job_id: str, task: str, paced: Mapping[str, PaceSample], run: Measured | None
    ) -> Iterator[Measured]:
        """How its rows are worked off: as the pace of its task has it, or else as its task runs.

        The owner of a job may read this. So it has the average duration of a call, and not the number of calls: most of
        them may be for other owners.
        """
        known = self._tasks.get(task)
        if known is not None and known.pace is not None and known.pace.name in paced:
            lately = paced[known.pace.name]
            yield from _sized("job", job_id, lately)
            yield _once("job", job_id, "latency", lately.seconds / lately.calls)
        elif run is not None:
            yield _once("job", job_id, "latency", run.total / run.n)

    def _forget(self, now: datetime) -> bool:
        """Delete what is old; True when there may be more of it."""
        is_more = False
        for step, keep in self._keeps.items():
            given = {"step": step, "before": now - timedelta(seconds=keep), "most": PORTION}
            is_more = len(self._store.write("forget_history", given)) == PORTION or is_more
        return is_more


def _sized(kind: HistoryKind, subject: str, lately: PaceSample) -> Iterator[Measured]:
    yield _once(kind, subject, "width", lately.width)
    yield _once(kind, subject, "batch", lately.batch)


def _once(kind: HistoryKind, subject: str, measure: str, value: float) -> Measured:
    return Measured(kind, subject, measure, 1, value, value)
