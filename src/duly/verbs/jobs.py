"""Jobs: groups of items with a queue of their own, whose rows are counted; open, fill, follow, pause, cancel, remove.

What is done to all rows of a job is durable work: an item of the task `duly.jobs` walks through them, see
`duly.verbs.job_rows`. So is reading the file of a job, which an item of `duly.ingest` does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from duly.core import codec
from duly.core.decide import decide
from duly.core.errors import ConstraintViolated, DoesNotExist, InputError, KeyConflict, WrongState
from duly.core.filters import checked_id
from duly.core.model import Job, NewFile, NewItem, NewJob, NewRow, Revived, Status, StoredFile
from duly.core.shown import JobRow, QueueState
from duly.store.borrow import NewWork, put_borrowed
from duly.tasks.checks import checked_key
from duly.tasks.puttable import ItemRow, Puttable
from duly.tasks.task import Task
from duly.verbs.context import Principal, VerbGroup, local, selected
from duly.verbs.read import ids_text

log = logging.getLogger("duly.jobs")

INGEST = "duly.ingest"
TASK = "duly.jobs"
# Removes expired jobs and files. There is one item of it in a database, from the first job on.
TIDY = "duly.tidy"
TIDY_EVERY = 3600.0  # seconds
RETENTION = local("retention")  # who removes it, in the audit log
# Rows that are written in one transaction.
PORTION = 5_000
# The outcome of a row that could not be read.
UNREADABLE = "unreadable"
# Rows that can be reprocessed.
REPROCESSED: tuple[Status, ...] = ("ERROR", "NOT_FOUND")

# The speed of a job is measured by rows that ended recently: at most LATEST of each status, for SPEEDS jobs of a page.
LATELY = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
LATEST = 100
SPEEDS = 100

Action = Literal["cancel", "reprocess", "remove"]


class Jobs(VerbGroup):
    # -- in

    def open(
        self,
        who: Principal,
        task: Task[..., Any],
        *,
        key: str | None = None,
        then: NewItem | None = None,
        owner: str | None = None,
    ) -> Job:
        """A new job, to which rows may be added until it is sealed; or the one that has this key already."""
        new = _opened_as(task, key, then, owner)
        with self._store.transaction() as connection:
            job = self._opened(new, connection, self._now())
            if job.total == 0 and not job.is_sealed:
                self._note(who, "job.opened", job.id, {"task": job.task}, connection)
        return job

    def create(
        self,
        who: Principal,
        task: Task[..., Any],
        file: NewFile | None,
        *,
        job_type: str,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        ip_address: str | None = None,
        among: Sequence[str] = (),
        owner: str | None = None,
        connection: Any = None,
    ) -> Job:
        """A job of the rows of a file that is kept already: the file, the job and who reads it commit together.

        Without a file, the options name the `source` that it is fetched from. If a job has this key already, that job
        is returned, and the new file is not used. Jobs `among` these tasks with the same key must have the same type
        and content: otherwise InputError, or WrongState if such a job was removed. Only local code may choose the owner
        (`owner`); everybody else creates jobs of their own.
        """
        owner = who.owner or owner
        new = _new_job(task, options, key=key, owner=owner, job_type=job_type, ip_address=ip_address)
        store = self._store
        with self._context.joining(connection) as connection:
            store.write("lock_owner", {"owner": owner}, connection)
            file_id = None if file is None else self._peers.files.add(file, connection)
            now = self._now()
            job = self._opened(replace(new, file_id=file_id), connection, now)
            if key is not None and among:
                content = str((options or {}).get("source")) if file is None else file.sha256
                self._refuse_others(new, content, among, connection)
            if job.created_at != now or job.file_id != file_id:
                if file_id is not None:
                    store.write("remove_file", {"id": file_id}, connection)
                return job
            self._refuse_too_many(owner, connection)
            reading = self._context.task_named(INGEST).options(key=f"job-{job.id}").new(job_id=job.id)
            put_borrowed(connection, reading)
            details = {"task": job.task} if file is None else {"task": job.task, "file": file.name, "size": file.size}
            self._note(who, "job.created", job.id, details, connection)
        return job

    def _refuse_others(self, new: NewJob, content: str, among: Sequence[str], connection: Any) -> None:
        """A key identifies one request: the jobs that have it must match this request."""
        asked = {"owner": new.owner, "key": new.key, "tasks": codec.text(sorted(set(among)))}
        for job in self._read.all(Job, "jobs_under_key", asked, connection):
            if job.job_type != new.job_type or self._content(job, connection) != content:
                raise InputError("key", "was already used for another request")

    def _content(self, job: Job, connection: Any) -> str | None:
        """The identity of the file of a job: its address, or its content."""
        source: str | None = codec.decode(job.options).get("source")
        file = self._read.one(StoredFile, "file", {"id": job.file_id}, connection) if source is None else None
        return source if file is None else file.sha256

    def _opened(self, new: NewJob, connection: Any, now: datetime) -> Job:
        # JSON goes in as text.
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in asdict(new).items()}
        (row,) = self._store.write("open_job", {**given, "now": now}, connection)
        put_borrowed(connection, self._tidy())
        return Job(*row)

    def _tidy(self) -> NewItem:
        return self._context.task_named(TIDY).options(key=TIDY, delay=TIDY_EVERY).new()

    def _refuse_too_many(self, owner: str | None, connection: Any) -> None:
        """Check the limits of this owner. The new job counts: repeating the request for an existing job never fails."""
        most = self._context.job_settings
        jobs, rows = self._store.read("jobs_of", {"owner": owner}, connection)[0]
        if jobs > most.owner_most_jobs:
            raise WrongState(f"{jobs - 1:,} jobs are not finished, which is the limit; wait for one, or remove one")
        if rows >= most.owner_most_rows:
            raise WrongState(f"{rows:,} rows of jobs have not ended, which is the limit; wait, or cancel a job")

    def fill(self, job: Job, task: Puttable[..., Any], rows: Iterable[ItemRow]) -> Job:
        """Add these rows and seal the job. Whatever of them it has already, from an earlier attempt, is passed over."""
        number = job.total
        items = task.items(islice(rows, number, None), owner=job.owner, first=number)
        made = (row_of(job, place, new) for place, new in enumerate(items, number + 1))
        while portion := list(islice(made, PORTION)):
            try:
                is_loaded = self._store.load_rows(job.id, number + 1, portion)
            except ConstraintViolated:
                problem = f"two rows, or a row and a live item of {task.task.name}, have the same key"
                raise KeyConflict(f"rows {number + 1:,} to {number + len(portion):,}: {problem}", 0) from None
            if not is_loaded:
                raise WrongState(f"job {job.id} is being filled by another process, or accepts no more rows")
            number += len(portion)
        return self._store.seal_job(job.id, self._now())

    def work(
        self,
        who: Principal,
        task: Puttable[..., Any],
        rows: Iterable[ItemRow],
        *,
        key: str | None = None,
        then: NewItem | None = None,
        owner: str | None = None,
    ) -> NewWork:
        """A new job with its rows, to be put as a whole inside a caller's transaction."""

        def rows_of(job: Job) -> Iterator[NewRow]:
            items = task.items(islice(rows, job.total, None), owner=job.owner, first=job.total)
            return (row_of(job, place, new) for place, new in enumerate(items, job.total + 1))

        now = self._now()
        new = _opened_as(task.task, key, then, owner)
        details = codec.text({"task": new.task})
        return NewWork(
            job=new,
            note={"now": now, "actor": who.user_id, "action": "job.opened", "details": details},
            tidy=self._tidy(),
            now=now,
            rows=rows_of,
        )

    # -- looks

    def get(self, who: Principal, job_id: int, connection: Any = None) -> Job:
        """The job, if the principal may reach it; another's job is reported as missing."""
        given = {"id": checked_id(job_id, "job_id"), "owner": who.reach}
        return self._read.found(f"job {job_id}", Job, "job", given, connection)

    def find(self, who: Principal, key: str, *, tasks: Sequence[str] | None = None, owner: str | None = None) -> Job:
        """The job that has this key, of one of these tasks; of the tasks that are registered here, if none is named."""
        names = sorted(self._context.tasks()) if tasks is None else list(tasks)
        given = {"key": checked_key(key), "tasks": codec.text(names), "owner": who.among(owner)}
        jobs = self._read.all(Job, "jobs_under_key", given)
        if not jobs:
            raise DoesNotExist(f"there is no job with the key {key!r}")
        if len(jobs) > 1:
            several = ", ".join(sorted(job.task for job in jobs))
            raise InputError("task", f"must be given: jobs of several tasks have the key {key!r}: {several}")
        return jobs[0]

    def show(self, who: Principal, job_id: int, connection: Any = None) -> JobRow:
        """The job with its progress."""
        return self._shown([self.get(who, job_id, connection)], connection)[0]

    def page(
        self,
        who: Principal,
        owner: str | None = None,
        job_type: str | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[JobRow]:
        """Jobs, the newest first; `before` is the last id of the page before."""
        given = {"owner": who.among(owner), "job_type": job_type, "before": before, "most": most}
        return self._shown(self._read.all(Job, "jobs", given))

    def _shown(self, jobs: Sequence[Job], connection: Any = None) -> list[JobRow]:
        store = self._store
        left = [job for job in jobs if job.finished_at is None]
        unpaused = store.open_queues((job.rows_queue for job in left), connection)
        ids = codec.text([job.id for job in left])
        at_work = {row[0] for row in store.read("jobs_at_work", {"ids": ids}, connection)} if left else set()
        files = [job.file_id for job in jobs if job.file_id is not None]
        names = dict(store.read("file_names", {"ids": codec.text(files)}, connection)) if files else {}
        speeds = self._speeds([job for job in left if job.ended][:SPEEDS], connection)
        now = self._now()
        return [
            _shown(job, job.rows_queue in unpaused, job.id in at_work, names.get(job.file_id), speeds.get(job.id), now)
            for job in jobs
        ]

    def _speeds(self, jobs: Sequence[Job], connection: Any) -> dict[int, float]:
        """How many rows of each of these jobs end in a second, by those that ended last."""
        if not jobs:
            return {}
        now = self._now()
        given = {"ids": codec.text([job.id for job in jobs]), "since": now - LATELY, "most": LATEST}
        ages = {job.id: min(max(now - job.created_at, SECOND), LATELY) for job in jobs}
        speeds: dict[int, float] = dict.fromkeys(ages, 0.0)
        for job_id, rows, oldest in self._store.read("job_speeds", given, connection):
            span = ages[job_id] if rows < LATEST else max(now - oldest, SECOND)
            speeds[job_id] += rows / span.total_seconds()
        return speeds

    # -- care

    @contextmanager
    def _changing(
        self, who: Principal, job: Job, action: str, details: Mapping[str, Any], connection: Any
    ) -> Iterator[Any]:
        """A transaction that changes a job. It ends with the line of the audit log."""
        with self._context.joining(connection) as connection:
            yield connection
            self._note(who, action, job.id, details, connection)
        self._context.depths.forget()

    def pause(self, who: Principal, job_id: int, connection: Any = None) -> JobRow:
        """Start no more of its rows until it is resumed; running rows continue."""
        job = self.get(who, job_id, connection)
        with self._changing(who, job, "job.paused", {}, connection) as own:
            self._store.pause(job.rows_queue, self._now(), own)
        return self.show(who, job_id, connection)

    def resume(self, who: Principal, job_id: int, connection: Any = None) -> JobRow:
        """Go on with a paused job."""
        job = self.get(who, job_id, connection)
        with self._changing(who, job, "job.resumed", {}, connection) as own:
            self._store.resume(job.rows_queue, own)
        return self.show(who, job_id, connection)

    def cancel(self, who: Principal, job_id: int, reason: str = "", connection: Any = None) -> JobRow:
        """Accept and start no more rows, and cancel all that have not ended, as durable work."""
        job = self.get(who, job_id, connection)
        if job.finished_at is not None:
            raise WrongState(f"job {job_id} is over")
        with self._changing(who, job, "job.cancelled", {"reason": reason}, connection) as own:
            self._store.write("job_is_cancelled", {"id": job_id}, own)  # first, because sealing may end it
            self._store.seal_job(job_id, self._now(), own)
            self._order("cancel", job, own, is_paused=True, reason=reason)
        return self.show(who, job_id, connection)

    def kickoff(self, who: Principal, job_id: int) -> Job:
        """Someone has rows of this job worked off for a while, in this process: it must not be paused."""
        job = self.get(who, job_id)
        if job.finished_at is None and not self._store.open_queues([job.rows_queue]):
            raise WrongState(f"job {job_id} is paused; resume it first")
        self._audit.note(who, "job.kickoff", f"job:{job_id}", {})
        return job

    def remove(self, who: Principal, job_id: int, connection: Any = None) -> None:
        """Remove it with its rows and its file, as durable work. It is not found from now on."""
        self._remove(who, self.get(who, job_id, connection), "hide_job", {"id": job_id}, connection)

    def expire(self, before: datetime, most: int = PORTION) -> int:
        """Remove jobs that have been over since before then; how many."""
        count = 0
        for (job_id,) in self._store.read("old_jobs", {"before": before, "most": most}):
            with suppress(DoesNotExist):  # of this age, or at all
                job = self._read.found(f"job {job_id}", Job, "any_job", {"id": job_id})
                self._remove(RETENTION, job, "hide_old_job", {"id": job_id, "before": before}, None)
                count += 1
        return count

    def _remove(self, who: Principal, job: Job, section: str, given: Mapping[str, Any], connection: Any) -> None:
        """Hide the job by this section, and have its rows removed."""
        with self._changing(who, job, "job.removed", {"task": job.task, "rows": job.total}, connection) as own:
            if not self._store.write(section, given, own):
                raise DoesNotExist(f"there is no job {job.id}")
            self._order("remove", job, own, is_paused=True)

    def reprocess(
        self,
        who: Principal,
        job_id: int,
        *,
        ids: Sequence[int] | None = None,
        statuses: Sequence[Status] = REPROCESSED,
        is_reset: bool = False,
        connection: Any = None,
    ) -> int:
        """Have rows tried once more, with all their tries, and the job go on if it was paused.

        With `ids`, these rows, at once. Else all rows of these statuses, as durable work, but for those that had as
        many rounds as the settings allow; `is_reset` forgives them that. Rows that could not be read are never tried:
        they have to be mended and sent again. Returns how many rows are meant, at most.
        """
        if unknown := set(statuses) - {"ERROR", "NOT_FOUND", "SKIPPED"}:
            names = ", ".join(sorted(unknown))
            raise InputError(
                "statuses", f"only rows with status ERROR, NOT_FOUND or SKIPPED can be reprocessed, got {names}"
            )
        job = self.get(who, job_id, connection)
        with self._context.joining(connection) as connection:
            if ids is None:
                self._order("reprocess", job, connection, statuses=list(statuses), is_reset=is_reset)
                counts = {"ERROR": job.failed, "NOT_FOUND": job.not_found, "SKIPPED": job.skipped}
                count = sum(counts[each] for each in set(statuses))
                details = {"statuses": statuses, "reset": is_reset}
                self._note(who, "job.reprocessed", job_id, details, connection)
            else:
                count = self._revive(who, job, ids, connection)
            # Last, as in `cancel` and `remove`: another order of locks could deadlock.
            self._store.resume(job.rows_queue, connection)
        self._context.depths.forget()
        return count

    def _revive(self, who: Principal, job: Job, ids: Sequence[int], connection: Any) -> int:
        if not ids:
            return 0
        asked = {"job_id": job.id, "ids": ids_text(selected(ids, "itemIds"))}
        found = dict(self._store.read("job_rows_named", asked, connection))
        if missing := sorted(set(ids) - found.keys()):
            raise DoesNotExist(f"job {job.id} has no row with the id {missing[0]}")
        if unread := sorted(each for each, outcome in found.items() if outcome == UNREADABLE):
            raise WrongState(f"item {unread[0]} could not be read; correct the row and upload it again")
        details = {"job": job.id}
        return len(self._peers.items.retry(who, *ids, action="job.reprocessed", details=details, connection=connection))

    def mend(
        self, who: Principal, job_id: int, rows: Mapping[int, tuple[bytes, bytes]], connection: Any = None
    ) -> list[int]:
        """Have rows in error tried with other arguments: by their numbers, the arguments and the row as it came.

        Rows that are not in error are left alone. Returns the numbers of those that are tried.
        """
        job, store, now = self.get(who, job_id, connection), self._store, self._now()
        with self._context.joining(connection) as connection:
            numbers = {item_id: number for item_id, number, _ in self._in_error(job_id, list(rows), connection)}
            items = [item for item in store.fetch(list(numbers)) if item.status == "ERROR"]
            for item in items:
                args, raw = rows[numbers[item.id]]
                store.write("mend_row", {"id": item.id, "args": args.decode(), "input": raw.decode()}, connection)
            rules = self._context.rules_of(job.task)
            # A corrected row can be tried, also if it could not be read before.
            readable = [replace(item, attempt=max(item.attempt, 1)) for item in items]
            changes = [decide(item, Revived(now), now, rules) for item in readable]
            stale = set(self._context.observed().settle(changes, (), connection))
            mended = sorted(numbers[item.id] for item in items if item.id not in stale)
            if mended:
                store.resume(job.rows_queue, connection)
                self._note(who, "job.mended", job_id, {"rows": len(mended)}, connection)
        return mended

    def inputs_in_error(self, who: Principal, job_id: int, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Those of these rows that are in error as they came, by their numbers, with nothing masked."""
        self.get(who, job_id)
        return {number: codec.decode(came) for _, number, came in self._in_error(job_id, numbers, None)}

    def _in_error(self, job_id: int, numbers: Sequence[int], connection: Any) -> Sequence[Any]:
        asked = {"job_id": job_id, "numbers": ids_text(numbers)}
        return self._store.read("failed_rows", asked, connection)

    def _note(self, who: Principal, action: str, job_id: int, details: Mapping[str, Any], connection: Any) -> None:
        """The line of the audit log, and that of the process."""
        self._audit.note(who, action, f"job:{job_id}", details, connection)
        fields = {"event": action, "jobId": job_id, "actor": who.user_id}
        log.info("job %d: %s by %s", job_id, action.removeprefix("job."), who.user_id, extra=fields)

    def _order(self, action: Action, job: Job, connection: Any, *, is_paused: bool = False, **options: Any) -> None:
        """Have all rows of a job acted on, as durable work. With `is_paused`, none of them starts meanwhile."""
        if is_paused:
            self._store.pause(job.rows_queue, self._now(), connection)
        given = {**options, "until": self._now().isoformat()}
        new = self._context.task_named(TASK).new(job_id=job.id, action=action, options=given)
        put_borrowed(connection, new)


def _new_job(
    task: Task[..., Any],
    options: Mapping[str, Any] | None,
    key: str | None,
    owner: str | None,
    then_item: bytes | None = None,
    job_type: str | None = None,
    ip_address: str | None = None,
) -> NewJob:
    # A limit per argument value works by queues, and the rows of a job have their own queue.
    if limit := next((limit for limit in task.limits if limit.by), None):
        raise InputError("task", f"{task.name} has the limit {limit.name} per {limit.by}, which jobs do not support")
    kept = codec.encode(dict(options or {}))
    return NewJob(task.name, task.queue, key, owner, then_item, kept, job_type, None, ip_address)


def _opened_as(task: Task[..., Any], key: str | None, then: NewItem | None, owner: str | None) -> NewJob:
    """What opening a job of a program writes."""
    return _new_job(
        task,
        {},
        key=None if key is None else checked_key(key),
        owner=None if owner is None else checked_key(owner, "owner"),
        then_item=None if then is None else msgspec.json.encode(then),
    )


def row_of(job: Job, number: int, new: NewItem, **more: Any) -> NewRow:
    """A row of this job, made of a new item."""
    fields = asdict(replace(new, queue=job.rows_queue, owner=job.owner))
    return NewRow(**fields, job_id=job.id, row_no=number, **more)


def _shown(job: Job, is_open: bool, is_at_work: bool, name: str | None, speed: float | None, now: datetime) -> JobRow:
    is_known = job.is_sealed and is_open
    return JobRow(
        id=job.id, task=job.task, job_type=job.job_type, queue_state=_queue_state(job, is_open, is_at_work),
        total_items=job.total, processed_items=job.ended, failed_items=job.failed, done_items=job.done,
        not_found_items=job.not_found, skipped_items=job.skipped, duplicate_items=job.duplicates,
        is_complete=job.is_sealed, attempts=job.attempts, last_error=job.last_error, last_heartbeat=job.changed_at,
        user_id=job.owner, ip_address=job.ip_address, file_id=job.file_id, created_at=job.created_at,
        finished_at=job.finished_at, name=name, per_minute=None if speed is None else round(60 * speed, 1),
        forecast_at=now + timedelta(seconds=(job.total - job.ended) / speed) if is_known and speed else None,
        paused=job.finished_at is None and not is_open, cancelled=job.is_cancelled,
    )  # fmt: skip


def _queue_state(job: Job, is_open: bool, is_at_work: bool) -> QueueState:
    if job.is_given_up:
        return "FAILED"
    if job.finished_at is not None:
        return "DONE"
    if not is_open:
        return "PAUSED"
    return "RUNNING" if is_at_work or job.ended else "QUEUED"
