"""What `app.job` returns: a job to look at, wait for, pause, resume and cancel."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from duly.core.model import Job
from duly.core.results import Kickoff
from duly.facade.internals import Internals
from duly.tasks.checks import checked_timeout
from duly.verbs import LOCAL

# Seconds after which a waiting call looks in any case.
LONGEST = 1.0


class RunningJob:
    def __init__(self, internals: Internals, job_id: int) -> None:
        self._internals = internals
        self._jobs = internals.verbs.jobs
        self._endings = internals.endings
        self.id = job_id

    def counts(self) -> Job:
        """How many rows there are, and how many of them have ended how."""
        return self._jobs.get(LOCAL, self.id)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until all rows have ended; TimeoutError when that takes longer."""
        give_up = _deadline(timeout)
        with self._endings.changes() as changed:
            while not (job := self.counts()).is_over:
                if time.monotonic() >= give_up:
                    raise self._too_late(job)
                changed.wait(min(give_up - time.monotonic(), LONGEST))
                changed.clear()
        return job

    async def await_(self, timeout: float | None = None) -> Job:
        """`wait` for async callers."""
        give_up = _deadline(timeout)
        with self._endings.achanges() as changed:
            while not (job := await asyncio.to_thread(self.counts)).is_over:
                if time.monotonic() >= give_up:
                    raise self._too_late(job)
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(give_up - time.monotonic(), LONGEST))
                changed.clear()
        return job

    def _too_late(self, job: Job) -> TimeoutError:
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

    def remove(self) -> None:
        """Forget it with its rows and its file; a worker does that."""
        self._jobs.remove(LOCAL, self.id)


def _deadline(timeout: float | None) -> float:
    seconds = checked_timeout(timeout)
    return float("inf") if seconds is None else time.monotonic() + seconds
