"""A kickoff: processes rows of one job for a while in the process of the caller, as a worker would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from duly.core.errors import InputError, WrongState
from duly.core.model import Job, Line
from duly.core.results import Kickoff
from duly.engine.equipment import Equipment
from duly.engine.worker import Worker
from duly.facade.endings import Endings
from duly.tasks.checks import is_number
from duly.verbs.context import Principal
from duly.verbs.jobs import Jobs

# The longest slice, and seconds that handlers have to end after it: together they fit into a request.
LONGEST = 20.0
TO_END = 5.0


class Kickoffs:
    def __init__(self, jobs: Jobs, endings: Endings, equip: Callable[[Job], Equipment]) -> None:
        self._jobs = jobs
        self._endings = endings
        self._equip = equip
        self._turn = threading.Lock()

    def run(self, who: Principal, job_id: int, seconds: float) -> Kickoff:
        """Process rows of this job for this many seconds, or until none is left. One kickoff at a time per process."""
        if not (is_number(seconds) and 0 < seconds <= LONGEST):
            raise InputError("durationMs", f"must be more than 0 and at most {LONGEST * 1000:,.0f}")
        begun = time.monotonic()
        job = self._jobs.kickoff(who, job_id)
        equipment = self._equip(job)
        if not self._turn.acquire(blocking=False):
            raise WrongState("a kickoff is under way in this process; wait for it, or start a worker")
        try:
            # It waits for its handlers as long as they may take.
            patient = replace(equipment.settings, drain_seconds=equipment.tasks[job.task].deadline)
            only = Line(job.rows_queue, job.task, job.owner or "")
            worker = Worker(replace(equipment, settings=patient, only=only))
        except BaseException:
            self._turn.release()
            raise
        # Handlers that have begun keep their leases until they end, for a thread cannot be stopped; the next kickoff
        # waits for that.
        ending = threading.Thread(target=self._end, args=(worker,), name="duly-kickoff", daemon=True)
        try:
            if job.finished_at is None:
                worker.start()
                self._work(who, job, begun + seconds)
        finally:
            ending.start()
        ending.join(TO_END)
        ended = dict(worker.ended)
        tried_again = ended.pop("PENDING", 0)
        return Kickoff(self._jobs.show(who, job_id), time.monotonic() - begun, sum(ended.values()), ended, tried_again)

    def _work(self, who: Principal, job: Job, until: float) -> None:
        with self._endings.changes() as changed:
            while (left := until - time.monotonic()) > 0 and not self._jobs.get(who, job.id).is_over:
                changed.wait(min(left, 0.5))
                changed.clear()

    def _end(self, worker: Worker) -> None:
        try:
            worker.stop()
            worker.drain()
        finally:
            self._turn.release()
