"""Whether the counters of a job and the statuses of its rows are true, and how they are made true again.

They are exact as long as all workers count. A worker of an old version, beside new ones, ends rows without writing
their status or counting them, and then a job would not end. What a row's state says is the truth: first its status
follows, portion by portion, then the counters, under the lock of the job.
"""

from __future__ import annotations

from duly.core.errors import DoesNotExist
from duly.core.filters import checked_id
from duly.core.model import Job
from duly.core.results import JobCheck
from duly.store.contract import Store
from duly.store.records import JOB
from duly.verbs.context import Principal, VerbContext, VerbGroup

# Rows that are looked at in one transaction.
STRETCH = 20_000
COUNTERS = ("total", "done", "not_found", "failed", "skipped")


class JobChecks(VerbGroup):
    def check(self, who: Principal, job_id: int, *, fix: bool = False) -> JobCheck:
        """Compare the counters of a job with its rows; with `fix`, make them true."""
        self._peers.jobs.get(who, checked_id(job_id, "job_id"))
        found = checked(self._store, job_id)
        if found is None:
            raise DoesNotExist(f"there is no job {job_id}")
        if found.is_true or not fix:
            return found
        rows = make_true(self._context, job_id)
        details = {"rows": rows, "was": found.counters, "is": found.rows}
        self._audit.note(who, "job.fixed", f"job:{job_id}", details)
        after = checked(self._store, job_id) or found
        return JobCheck(job_id, after.is_true, after.rows, after.counters, after.untrue_rows, fixed=True)


def checked(store: Store, job_id: int) -> JobCheck | None:
    """The counters of this job beside its rows, of one moment; None when there is no such job."""
    found = store.read("count_job_rows", {"id": job_id})
    if not found:
        return None
    job, (*counted, untrue) = Job(*found[0][: len(JOB.fields)]), found[0][len(JOB.fields) :]
    rows = dict(zip(COUNTERS, counted, strict=True))
    counters = {name: getattr(job, name) for name in COUNTERS}
    is_counted = rows == counters and job.is_over == (job.finished_at is not None)
    return JobCheck(job_id, is_counted and not untrue, rows, counters, untrue)


def open_jobs(store: Store, most: int) -> list[tuple[int, int]]:
    """The oldest jobs that are not over, each with how many rows it has; also those that are being removed."""
    return [(job_id, total) for job_id, total in store.read("open_jobs", {"most": most})]


def make_true(context: VerbContext, job_id: int) -> int:
    """Make the statuses of the rows of a job and its counters true; returns how many rows had another status."""
    rows = true_up_rows(context, job_id)
    context.store.recount_job(job_id, context.now())
    return rows


def true_up_rows(context: VerbContext, job_id: int) -> int:
    """Give the rows of a job the status of their state; returns how many had another one."""
    last, count = context.store.read("last_row_no", {"id": job_id})[0][0], 0
    for after in range(0, last, STRETCH):
        given = {"id": job_id, "after": after, "until": after + STRETCH, "now": context.now()}
        count += len(context.store.write("true_up_rows", given))
    return count
