"""Jobs: groups of items with a queue of their own, whose rows are counted; open, fill, follow, pause, cancel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from duly.core import codec
from duly.core.errors import ItemNotFound, WrongState
from duly.core.model import Job, NewItem, NewJob, NewRow
from duly.tasks.task import Task
from duly.verbs.audit import Audit
from duly.verbs.ground import Ground
from duly.verbs.queues import Queues
from duly.verbs.who import Principal

# Rows that are written in one transaction.
PORTION = 5_000


class Jobs:
    def __init__(self, ground: Ground, audit: Audit, queues: Queues) -> None:
        self._ground = ground
        self._audit = audit
        self._queues = queues

    # -- in

    def open(
        self,
        who: Principal,
        task: Task[..., Any],
        *,
        key: str | None = None,
        then: NewItem | None = None,
        options: Mapping[str, Any] | None = None,
        whose: str | None = None,
        connection: Any = None,
    ) -> Job:
        """A new job, to which rows may be added until it is sealed; or the one that has this key already."""
        new = NewJob(
            task=task.name,
            queue=task.queue,
            key=key,
            owner=whose,
            then_item=None if then is None else msgspec.json.encode(then),
            options=codec.encode(dict(options or {})),
        )
        given = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in msgspec.structs.asdict(new).items()
        }
        given["now"] = self._ground.now()
        with self._ground.joining(connection) as connection:
            (row,) = self._ground.store.run(connection, "open_job", given)
            job = Job(*row)
            if job.total == 0 and not job.is_sealed:
                self._audit.note(who, "job.opened", f"job:{job.id}", {"task": job.task}, connection)
        return job

    def fill(self, job: Job, task: Task[..., Any], rows: Iterable[Mapping[str, Any]]) -> Job:
        """Add these rows and seal the job. Whatever of them it has already, from an earlier attempt, is passed over."""
        number = job.total
        made = self._rows(job, task, islice(rows, job.total, None))
        while portion := list(islice(made, PORTION)):
            if not self._ground.store.load_rows(job.id, number + 1, portion):
                raise WrongState(f"job {job.id} is filled by someone else at the same time, or takes no more rows")
            number += len(portion)
        return self._ground.store.seal_job(job.id, self._ground.now())

    def _rows(self, job: Job, task: Task[..., Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[NewRow]:
        for place, row in enumerate(rows, job.total + 1):
            new = task.new(dict(row), owner=job.owner)
            yield row_of(job, place, new)

    # -- looks

    def get(self, who: Principal, job_id: int, connection: Any = None) -> Job:
        rows = self._ground.store.read("job", {"id": job_id, "owner": who.reach}, connection)
        if not rows:
            raise ItemNotFound(f"there is no job {job_id}")
        return Job(*rows[0])

    def page(self, who: Principal, whose: str | None, before: int | None, most: int) -> Sequence[Job]:
        """Jobs, the newest first."""
        given = {"owner": who.among(whose), "before": before, "most": most}
        return [Job(*row) for row in self._ground.store.read("jobs", given)]

    # -- care

    def pause(self, who: Principal, job_id: int, connection: Any = None) -> None:
        self._queues.pause(who, queue_of(self.get(who, job_id)), connection)

    def resume(self, who: Principal, job_id: int, connection: Any = None) -> None:
        self._queues.resume(who, queue_of(self.get(who, job_id)), connection)


def queue_of(job: Job) -> str:
    """The queue of a job's rows, below that of its task: pausing that one holds for its jobs too."""
    return f"{job.queue}/job-{job.id}"


def row_of(job: Job, number: int, new: NewItem) -> NewRow:
    fields = msgspec.structs.asdict(replace(new, queue=queue_of(job), owner=job.owner))
    return NewRow(**fields, job_id=job.id, row_no=number)
