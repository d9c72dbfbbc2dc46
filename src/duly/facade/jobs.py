"""What `app.job` returns: a job to look at, wait for, pause, resume and cancel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from duly.core.aforms import in_thread, streamed
from duly.core.errors import DoesNotExist, InputError
from duly.core.model import Job, NewItem, Status
from duly.core.results import JobCheck, JobResult, Kickoff, R_co
from duly.facade.internals import Internals
from duly.tasks.checks import checked_timeout
from duly.tasks.puttable import ItemRow, Puttable, check_rows
from duly.verbs import LOCAL
from duly.verbs.job_rows import STATUSES

# Seconds after which a waiting call looks in any case.
LONGEST = 1.0
# Rows with an error of an earlier try, which is over.
HAVE_NO_ERROR: tuple[Status, ...] = ("DONE", "PENDING", "PROCESSING")


class RunningJob(Generic[R_co]):
    """A job of this app. `R_co` is what the handler of its rows returns."""

    def __init__(self, internals: Internals, job_id: int, is_put: bool = True) -> None:
        """`is_put`: it was committed, so if it is not found, it is gone."""
        self._internals = internals
        self._jobs = internals.verbs.jobs
        self._endings = internals.endings
        self._is_put = is_put
        self.id = job_id

    def counts(self) -> Job:
        """How many rows there are, and how many of them have ended how."""
        return self._jobs.get(LOCAL, self.id)

    def results(self, *statuses: Status) -> Iterator[JobResult[R_co]]:
        """Its rows with their results, in their order, read a page at a time; only those with these statuses, if any.

        A row that has not ended is PENDING or PROCESSING and has no result: call `wait` before.
        """
        if unknown := sorted(set(statuses) - set(STATUSES)):
            raise InputError("statuses", f"must be some of {', '.join(STATUSES)}, got {unknown[0]!r:.80}")
        return self._results(self.counts().task, statuses or STATUSES)

    def _results(self, name: str, statuses: Sequence[Status]) -> Iterator[JobResult[R_co]]:
        task = self._internals.tasks.get(name)
        for row in self._internals.verbs.job_rows.each(LOCAL, self.id):
            if row.status in statuses:
                result = row.result if task is None else task.read_result(row.result)
                error = None if row.status in HAVE_NO_ERROR else row.last_error
                yield JobResult(row.row_no, row.status, row.args, result, error)

    def _found(self) -> Job | None:
        """The job; None if it was put on the caller's own connection, and has not been committed yet."""
        try:
            job = self.counts()
        except DoesNotExist:
            if self._is_put:
                raise
            return None
        self._is_put = True
        return job

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until all rows have ended; TimeoutError when that takes longer.

        A job that was put on your own connection exists once you commit: until then it is waited for, and after a
        rollback until the timeout.
        """
        give_up = _deadline(timeout)
        with self._endings.changes() as changed:
            while (job := self._found()) is None or not job.is_over:
                if time.monotonic() >= give_up:
                    raise self._too_late(job)
                changed.wait(min(give_up - time.monotonic(), LONGEST))
                changed.clear()
        return job

    async def await_(self, timeout: float | None = None) -> Job:
        """`wait` for async callers."""
        give_up = _deadline(timeout)
        with self._endings.achanges() as changed:
            while (job := await asyncio.to_thread(self._found)) is None or not job.is_over:
                if time.monotonic() >= give_up:
                    raise self._too_late(job)
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(give_up - time.monotonic(), LONGEST))
                changed.clear()
        return job

    def _too_late(self, job: Job | None) -> TimeoutError:
        if job is None:
            return TimeoutError(f"job {self.id} does not exist yet: its transaction has not committed")
        return TimeoutError(f"job {self.id}: {job.ended} of {job.total} rows have ended")

    def kickoff(self, seconds: float = 5.0) -> Kickoff:
        """Process its rows in this process, for this many seconds or until none is left."""
        return self._internals.kickoffs.run(LOCAL, self.id, seconds)

    def pause(self) -> None:
        """Start no more of its rows until it is resumed; running rows continue."""
        self._jobs.pause(LOCAL, self.id)

    def resume(self) -> None:
        """Start its rows again after a pause."""
        self._jobs.resume(LOCAL, self.id)

    def cancel(self, reason: str = "") -> None:
        """Start no more of its rows, and cancel all that have not ended; a worker does that."""
        self._jobs.cancel(LOCAL, self.id, reason)

    def reprocess(self, *, is_reset: bool = False) -> int:
        """Have rows that failed, or for which nothing was found, tried once more; how many that are, at most."""
        return self._jobs.reprocess(LOCAL, self.id, is_reset=is_reset)

    def check(self, *, fix: bool = False) -> JobCheck:
        """Compare its counters with its rows; with `fix`, make them true."""
        return self._internals.verbs.job_checks.check(LOCAL, self.id, fix=fix)

    def remove(self) -> None:
        """Forget it with its rows and its file; a worker does that."""
        self._jobs.remove(LOCAL, self.id)

    acounts = in_thread(counts)
    aresults = streamed(results)
    akickoff = in_thread(kickoff)
    apause = in_thread(pause)
    aresume = in_thread(resume)
    acancel = in_thread(cancel)
    areprocess = in_thread(reprocess)
    acheck = in_thread(check)
    aremove = in_thread(remove)


def placed(
    internals: Internals,
    task: Puttable[..., Any] | str,
    rows: Iterable[ItemRow],
    then: Puttable[..., Any] | NewItem | str | None,
    key: str | None,
    owner: str | None,
    connection: Any,
) -> RunningJob[Any]:
    """Put a job, on the caller's own connection if one is given."""
    chosen, sequel = _chosen(internals, task, rows, then)
    if (own := _one(connection, chosen.connection)) is not None:
        new = internals.verbs.jobs.work(LOCAL, chosen, rows, key=key, then=sequel, owner=owner)
        return RunningJob(internals, internals.borrowing.fan_out(own, new).id, is_put=False)
    jobs = internals.verbs.jobs
    job = jobs.open(LOCAL, chosen.task, key=key, then=sequel, owner=owner)
    if not job.is_sealed:
        try:
            jobs.fill(job, chosen, rows)
        except Exception:
            if key is None:  # no later call can continue this job
                jobs.remove(LOCAL, job.id)
            raise
    return RunningJob(internals, job.id)


async def aplaced(
    internals: Internals,
    task: Puttable[..., Any] | str,
    rows: Iterable[ItemRow],
    then: Puttable[..., Any] | NewItem | str | None,
    key: str | None,
    owner: str | None,
    connection: Any,
) -> RunningJob[Any]:
    """The same for async callers."""
    chosen, sequel = _chosen(internals, task, rows, then)
    if (own := _one(connection, chosen.connection)) is None:
        return await asyncio.to_thread(placed, internals, chosen, rows, sequel, key, owner, None)
    work = partial(internals.verbs.jobs.work, LOCAL, chosen, rows, key=key, then=sequel, owner=owner)
    new = await asyncio.to_thread(work)  # it reads the clock of the database
    return RunningJob(internals, (await internals.borrowing.afan_out(own, new)).id, is_put=False)


def _chosen(
    internals: Internals,
    task: Puttable[..., Any] | str,
    rows: Iterable[ItemRow],
    then: Puttable[..., Any] | NewItem | str | None,
) -> tuple[Puttable[..., Any], NewItem | None]:
    """The task of a job, and the item that follows its last row."""
    check_rows(rows)
    chosen = internals.task_named(task) if isinstance(task, str) else task
    if isinstance(then, str):
        then = internals.task_named(then)
    if isinstance(then, Puttable):
        told: dict[str, Any] = {"job": {}} if then.task.takes("job") else {}
        then = then.new(**told, **({"cancelled": False} if then.task.has("cancelled") else {}))
    if then is not None and not isinstance(then, NewItem):
        raise InputError("then", f"must be a task, its name, or an item from task.new, got {type(then).__name__}")
    return chosen, then


def _one(connection: Any, option: Any) -> Any:
    """The caller's own connection, which may be given in either way."""
    if connection is not None and option is not None and connection is not option:
        raise InputError("connection", "is given twice: to the job, and as an option of its task")
    return option if connection is None else connection


def _deadline(timeout: float | None) -> float:
    seconds = checked_timeout(timeout)
    return float("inf") if seconds is None else time.monotonic() + seconds
