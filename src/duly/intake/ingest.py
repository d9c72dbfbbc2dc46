"""Reads the file of a job and writes its rows, in batches that suit the database. It can be resumed.

After a crash the file is read from the start again, and rows that the job has already are skipped. So duplicates are
detected again, and no row is stored twice, because the store accepts only the next one. A row that cannot be read, or
that its task would reject, becomes a row in error with the reason; it never ends the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from duly.bulk.duplicates import Duplicates
from duly.bulk.files import FileGone
from duly.bulk.mapping import Columns, identity, normalise
from duly.bulk.read import FileRow, Reading, open_rows
from duly.core import codec
from duly.core.errors import DoesNotExist, InputError, StoreError, WrongState
from duly.core.model import GiveUp, Job, NewRow, Snooze
from duly.core.policy.adapt import Batch, BatchBounds, Written
from duly.intake.intake import Intake, file_options_of
from duly.intake.types import JobType
from duly.verbs.job_walks import find_job
from duly.verbs.jobs import UNREADABLE

log = logging.getLogger("duly.jobs")

# Seconds after which a worker that does not know the type of a job looks whether another one took it.
ELSEWHERE = 30.0
# Tries after which a file that is not where files are kept is given up: until then, another machine may have it.
GONE_TRIES = 6


class _Stopped(Exception):
    """The job accepts no more rows: it was cancelled or removed."""


def ingest(intake: Intake, job_id: int, tell: Callable[[int], None], failures: int = 0) -> dict[str, int]:
    """Read the file of this job and seal it; `tell` is called with the number of rows now and then.

    `failures`: how many tries have failed before.
    """
    job = find_job(intake.verbs.context, job_id)
    if job is None or job.is_sealed:
        return {"rows": 0 if job is None else job.total}
    if not intake.knows(job.job_type):
        raise Snooze(ELSEWHERE)
    begun, measured = time.monotonic(), intake.verbs.context.measured
    try:
        rows = Ingest(intake, job, tell).run()
    except _Stopped:
        return {"rows": job.total}
    except (InputError, FileGone, DoesNotExist) as error:
        reason = str(error)
        if isinstance(error, FileGone):
            where = intake.settings.files_url
            reason += f" in files_url ({where}) on this machine; all servers and workers must share that place"
            if failures + 1 < GONE_TRIES:
                raise FileGone(reason) from None
        intake.verbs.files.give_up(job, reason)
        log.warning("job %d: cannot read its file: %s", job.id, reason)
        raise GiveUp(reason) from None
    intake.verbs.context.store.seal_job(job.id, intake.verbs.context.now())
    measured("file", str(job.job_type), time.monotonic() - begun)
    log.info("job %d: finished reading its file, %d rows", job.id, rows)
    return {"rows": rows}


class Ingest:
    def __init__(self, intake: Intake, job: Job, tell: Callable[[int], None]) -> None:
        self._intake = intake
        self._job = job
        self._tell = tell
        self._type: JobType = intake.type_named(str(job.job_type))
        settings = intake.settings
        self._bounds = BatchBounds(
            min_rows=settings.ingest_min_rows, max_rows=settings.ingest_max_rows,
            max_bytes=settings.ingest_max_batch_bytes, p50=settings.db_p50_ms / 1000, p95=settings.db_p95_ms / 1000,
        )  # fmt: skip
        self._batch = Batch.first(self._bounds)
        self._written = job.total
        self._waiting: list[NewRow] = []
        self._sizes: list[int] = []
        self._asked = 0  # rows of the batch that was tried last

    def run(self) -> int:
        """Write down what the job does not have yet; how many rows it has in the end."""
        intake, job = self._intake, self._job
        if job.file_id is None:
            job = self._fetched(codec.decode(job.options)["source"])
        options = codec.decode(job.options)
        file, file_options = intake.verbs.files.of(job), file_options_of(options)
        with intake.files.open(file.place) as handle:
            shape, mapping = intake.look(handle, file.name, self._type, file_options, job.owner)
            found = {"said": file_options, "kind": shape.kind, "columns": shape.columns, "mapping": mapping}
            intake.verbs.files.begin(job, {**options, **found})
            if file_options.mapping is not None:
                intake.remember(self._type, shape, mapping, job.owner)
            log.info("job %d: reading %s, %d bytes, from row %d on", job.id, file.name, file.size, job.total + 1)
            with (
                open_rows(handle, file.name, options=replace(file_options, kind=shape.kind)) as reading,
                Duplicates() as duplicates,
            ):
                self._take(reading, mapping, duplicates)
                intake.verbs.files.tell_duplicates(job, sum(1 for _ in duplicates.found()))
        return self._written

    def _fetched(self, source: str) -> Job:
        try:
            return self._intake.fetch(self._job, source)
        except WrongState:
            self._has_grown(0)  # the file of a removed job is not read
            raise

    def _take(self, rows: Reading, mapping: Columns, duplicates: Duplicates) -> None:
        size, most = 0, self._intake.settings.job_most_rows
        for number, row in enumerate(rows, 1):
            if number > most:
                raise InputError("file", f"must have at most {most:,} rows")
            values, problems = values_of(row, mapping, self._type)
            if self._type.fields is not None and not problems and (same := identity(values, self._type.fields)):
                duplicates.add(number, same)
            if number <= self._job.total:
                continue
            made = self._made(number, row, values, problems)
            self._waiting.append(made)
            self._sizes.append(len(made.args) + len(made.input or b""))
            size += self._sizes[-1]
            if self._batch.is_full(len(self._waiting), size, self._bounds):
                self._write()
                size = sum(self._sizes)
        while self._waiting:
            self._write()

    def _made(self, number: int, row: FileRow, values: dict[str, Any], problems: str) -> NewRow:
        job, task, now = self._job, self._type.task, self._intake.verbs.context.open_clock().stamp()
        raw = codec.encode(row.values if row.text is None else {**row.values, "text": row.text})
        if row.thumbnail is not None:
            values = {**values, "thumbnail": self._kept_thumbnail(number, row.thumbnail)}
        if not problems:
            try:
                return NewRow(
                    task.name, job.rows_queue, task.checked_args(values), now, changed_at=now, rank=task.rank,
                    owner=job.owner, job_id=job.id, row_no=number, input=raw,
                )  # fmt: skip
            except InputError as error:
                problems = str(error)
        return NewRow(
            task.name, job.rows_queue, b"{}", now, changed_at=now, rank=task.rank, owner=job.owner, job_id=job.id,
            row_no=number, input=raw, state="failed", status="ERROR", outcome=UNREADABLE,
            finished_at=self._intake.verbs.context.now(), last_error=f"line {row.line}: {problems}",
        )  # fmt: skip

    def _kept_thumbnail(self, number: int, picture: bytes) -> str:
        key = f"{self._intake.thumbnails(self._job)}/{number}.webp"
        with self._intake.files.writer(key) as writer:
            writer.write(picture)
        return key

    def _write(self) -> None:
        """Write the next batch. A batch that fails is made smaller and retried after a pause, but not forever."""
        while (count := self._try_to_write()) == 0:
            time.sleep(self._batch.pause)
            if self._has_grown(self._asked):  # it was written, and only the answer was lost
                count = self._asked
                break
        self._written += count
        del self._waiting[:count]
        del self._sizes[:count]
        self._tell(self._written)

    def _try_to_write(self) -> int:
        """How many rows were written: none when the database could not."""
        portion = self._waiting[: self._batch.rows]
        self._asked = len(portion)
        begun, waited = time.monotonic(), self._intake.verbs.context.waited()
        failure: StoreError | None = None
        is_taken = False
        try:
            is_taken = self._intake.verbs.context.store.load_rows(self._job.id, self._written + 1, portion)
        except StoreError as error:
            failure = error
        took, waited = time.monotonic() - begun, self._intake.verbs.context.waited() - waited
        seen = Written(
            rows=len(portion), bytes=sum(self._sizes[: len(portion)]), seconds=took - waited, waited=waited,
            has_failed=failure is not None,
        )  # fmt: skip
        self._batch = self._batch.after(seen, self._bounds, f"{self._job.id}-{self._written}")
        if failure is None:
            if not is_taken:
                self._has_grown(0)
                raise WrongState(f"job {self._job.id} is being filled by another process")
            measured, name = self._intake.verbs.context.measured, str(self._job.job_type)
            measured("rows", name, len(portion))
            measured("bad rows", name, sum(row.outcome == UNREADABLE for row in portion))
            measured("write", name, self._batch.latency.get(took))
            return len(portion)
        if self._batch.failures >= self._bounds.after_failure.tries:
            raise failure
        log.warning("job %d: cannot write %d rows: %s", self._job.id, len(portion), failure)
        return 0

    def _has_grown(self, count: int) -> bool:
        """Whether the job has `count` more rows than we know of; raises _Stopped when it accepts no more."""
        job = find_job(self._intake.verbs.context, self._job.id)
        if job is None or job.is_sealed:
            raise _Stopped
        return job.total == self._written + count


def values_of(row: FileRow, mapping: Columns, chosen: JobType) -> tuple[dict[str, Any], str]:
    """What the task of this type of jobs would be called with, and what speaks against it."""
    if row.fault:
        return {}, row.fault
    if chosen.fields is None:
        return row.values, ""
    normal = normalise(row.values, mapping, chosen.fields)
    return dict(normal.values), "; ".join(normal.problems)
