"""History: recent events, step by step, as workers have recorded them for charts."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from duly.core.clock import begin_of
from duly.core.errors import InputError, NotAllowed
from duly.core.shown import HISTORY_LONG, HISTORY_SHORT, Chart, HistoryKind, HistoryRow, Series
from duly.verbs.context import Principal, VerbGroup

COUNTED = ("done", "failed", "retried", "rate")  # measures that only count
MEASURES = (*COUNTED, "lateness", "run", "width", "batch", "latency")
MINUTES = range(1, 14 * 24 * 60 + 1)
MOST = 50_000  # how many points one answer has
# The time that counts as recent.
LATELY = timedelta(minutes=5)


class TaskActivity(NamedTuple):
    """The recent history of a task."""

    per_minute: float  # items that were done
    starts: int
    late: float  # seconds that these starts were late, together


class History(VerbGroup):
    def look(
        self,
        who: Principal,
        *,
        minutes: int = 60,
        task: str | None = None,
        measure: str | None = None,
        job_id: int | None = None,
    ) -> Chart:
        """What happened in the last minutes: of all tasks and paces or of one task, for admins, or of one's own job."""
        if not isinstance(minutes, int) or minutes not in MINUTES:
            raise InputError("minutes", f"must be from {MINUTES[0]} to {MINUTES[-1]}")
        if measure is not None and measure not in MEASURES:
            raise InputError("measure", f"must be one of {', '.join(MEASURES)}")
        if job_id is not None and task is not None:
            raise InputError("job", "give a task or a job, not both")
        if job_id is not None:
            self._peers.jobs.get(who, job_id)
        elif not who.is_admin:
            raise NotAllowed("only admins may see the history of tasks; the owner of a job may see its history")
        is_short = minutes * 60 <= self._context.settings.history_seconds
        step = HISTORY_SHORT if is_short else HISTORY_LONG
        until = self._now()
        since = begin_of(until - timedelta(minutes=minutes), step)
        given = {"step": step, "since": since, "measure": measure, "most": MOST + 1}
        if job_id is None and task is None:
            rows = self._read.all(HistoryRow, "history", given)
        else:
            kind, subject = ("task", task) if job_id is None else ("job", str(job_id))
            rows = self._read.all(HistoryRow, "history_of", {**given, "kind": kind, "subject": subject})
        found = _series(rows[:MOST][::-1])
        return Chart(since, until, step, found, len(rows) > MOST)

    def lately(self) -> dict[str, TaskActivity]:
        """What happened to each task in the last minutes."""
        step = HISTORY_SHORT if self._context.settings.history_seconds >= LATELY.total_seconds() else HISTORY_LONG
        now = self._now()
        since = begin_of(now - LATELY, step)
        minutes = (now - since).total_seconds() / 60
        found: dict[str, dict[str, tuple[int, float]]] = {}
        for task, measure, n, total in self._store.read("lately", {"step": step, "since": since}):
            found.setdefault(task, {})[measure] = (int(n), float(total))
        nothing = (0, 0.0)
        return {
            task: TaskActivity(by_measure.get("done", nothing)[0] / minutes, *by_measure.get("lateness", nothing))
            for task, by_measure in found.items()
        }


def _series(rows: list[HistoryRow]) -> list[Series]:
    """One series for each measure of each subject; the rows are in the order of time."""
    found: dict[tuple[HistoryKind, str, str], Series] = {}
    for row in rows:
        key = (row.kind, row.subject, row.measure)
        series = found.setdefault(key, Series(*key, [], row.subject if row.kind == "task" else None))
        mean, most = (None, None) if row.measure in COUNTED else (row.total / row.n, row.most)
        series.points.append((int(row.bucket.timestamp()), row.n, mean, most))
    return [found[key] for key in sorted(found)]
