"""Jobs and their rows: listed, paused, resumed, cancelled, tried again and removed."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from duly.core.errors import InputError
from duly.core.model import Status
from duly.core.results import JobCheck, Kickoff
from duly.core.shown import InputSummary, JobItem, JobRow, PendingItem, RowCounts
from duly.core.wire import Doc
from duly.verbs.job_rows import START, STATUSES, RowPlace
from duly.web.auth import Owner, Reader, Writer
from duly.web.desk import App, Pages, Verbs, masked
from duly.web.problems import Problem
from duly.web.routing import Router, Transaction, repeatable
from duly.web.schemas import BIG, Id, Model, Moment, Page, ReasonIn, example, out

router = Router(tags=["jobs"])

JobType = Annotated[str | None, Query(alias="jobType", min_length=1, max_length=50, pattern=r"^[\w.-]+$")]
Statuses = Annotated[
    str | None, Query(max_length=200, description=f"Some of {', '.join(STATUSES)}, separated by commas; default: all.")
]


class JobLine(Struct, frozen=True, kw_only=True):
    """A row of a job, as lists show it: a `JobItem` under the names of the API."""

    id: int
    job_id: int
    row_no: Annotated[int, Doc("Its number in the file, from 1.")] = field(name="row")
    status: Status
    attempt: int = field(name="attempts")
    last_error: str | None
    claimed_by: str | None = field(name="lockedBy")
    started_at: datetime | None = field(name="lockedAt")
    changed_at: datetime = field(name="updatedAt")
    input_summary: InputSummary


class GridLine(JobLine, frozen=True, kw_only=True):
    result: Annotated[Any, Doc("What the grid shows: all that the task returned.")]


class PendingLine(JobLine, frozen=True, kw_only=True):
    job_type: str | None
    user_id: str | None
    progress: Annotated[float, Doc("How much of its job has ended, from 0 to 1.")]
    total: Annotated[int, Doc("Rows of its job.")]
    ended: Annotated[int, Doc("Rows of its job that have ended.")]


class ReprocessIn(Model, **example(scope="job", statuses=["ERROR", "NOT_FOUND"])):
    scope: Literal["job", "items"] = "job"
    item_ids: Annotated[list[int], Field(max_length=1_000)] | None = None
    statuses: Annotated[list[Literal["ERROR", "NOT_FOUND", "SKIPPED"]], Field(min_length=1, max_length=3)] = Field(
        default=["ERROR", "NOT_FOUND"]
    )
    reset: bool = Field(default=False, description="Also rows that were tried again as often as the settings allow.")


class Reprocessed(Struct, frozen=True):
    items: Annotated[int, Doc("Rows that will be tried again, at most.")]


@router.get("/api/jobs")
def list_jobs(verbs: Verbs, principal: Reader, pages: Pages, owner: Owner, job_type: JobType = None) -> Page[JobRow]:
    """Jobs, the newest first."""
    return pages.turn(lambda before, most: verbs.jobs.page(principal, owner, job_type, before, most))


@router.get("/api/jobs/{job_id}")
def show_job(job_id: Id, verbs: Verbs, principal: Reader) -> JobRow:
    """One job with its counts and progress."""
    return verbs.jobs.show(principal, job_id)


@router.get("/api/jobs/{job_id}/items", response_model=out(Page[GridLine]))
def list_job_items(
    job_id: Id,
    verbs: Verbs,
    principal: Reader,
    pages: Pages,
    status: Annotated[Status | None, Query()] = None,
    statuses: Statuses = None,
    page: Annotated[int | None, Query(ge=1, le=10_000_000, description="By row number; for all rows.")] = None,
    sort: Annotated[Literal["row", "updatedAt"] | None, Query(description="Default: row, where all are asked.")] = None,
) -> Page[JobItem]:
    """Rows of a job: all in the order of the file, or rows of some statuses by their last change."""
    chosen = _statuses(statuses, status)

    def shown(item: JobItem) -> JobItem:
        return replace(item, result=masked(verbs, item.result))

    if (sort or ("updatedAt" if chosen else "row")) == "updatedAt":
        if page is not None:
            raise InputError("page", "works only for all rows in the order of the file; use `after` here")
        return pages.turn(
            lambda after, most: verbs.job_rows.page(principal, job_id, chosen or STATUSES, _place(after), most),
            shown,
            _stands,
        )
    if chosen:
        raise InputError("sort", "row cannot be combined with statuses; leave one of them out")
    before = None if page is None else (page - 1) * pages.size
    return pages.turn(
        lambda after, most: verbs.job_rows.by_number(principal, job_id, after or 0 if before is None else before, most),
        shown,
        attrgetter("row_no"),
    )


@router.get("/api/jobs/{job_id}/counts")
def count_job_items(job_id: Id, verbs: Verbs, principal: Reader) -> RowCounts:
    """How many rows of a job there are, by status."""
    return verbs.job_rows.counts_of(principal, job_id)


async def _pending(
    verbs: Verbs,
    owner: Owner,
    job_type: JobType = None,
    job_id: Annotated[
        str | None, Query(alias="jobId", max_length=2_000, description="Only rows of these jobs, separated by commas.")
    ] = None,
    since: Annotated[Moment | None, Query(alias="from", description="When they changed last.")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
) -> dict[str, Any]:
    """The filter for rows of all jobs, as options of verbs."""
    if not verbs.context.job_settings.pending_enabled:
        raise Problem(404, "the list of pending rows is off; turn it on with the setting pending_enabled")
    given = [part.strip() for part in (job_id or "").split(",") if part.strip()]
    if strange := next((part for part in given if not part.isdecimal() or not 1 <= int(part) <= BIG), None):
        raise InputError("jobId", f"must be ids of jobs, separated by commas, got {strange!r:.50}")
    if since is not None and until is not None and since >= until:
        raise InputError("to", "must be later than from")
    ids = tuple(sorted({int(part) for part in given}))
    return {"owner": owner, "job_type": job_type, "job_ids": ids, "since": since, "until": until}


Meant = Annotated[dict[str, Any], Depends(_pending)]


@router.get("/api/pending", response_model=out(Page[PendingLine]))
def list_pending(
    verbs: Verbs, principal: Reader, pages: Pages, meant: Meant, statuses: Statuses = None
) -> Page[PendingItem]:
    """Rows of all jobs that wait or are being processed, oldest change first. See the setting pending_enabled."""
    chosen = _statuses(statuses) or ("PENDING", "PROCESSING")
    if "DONE" in chosen:
        raise InputError("statuses", "DONE rows are not pending; list the rows of their job instead")

    def find(after: Any, most: int) -> list[PendingItem]:
        return verbs.job_rows.pending(principal, statuses=chosen, after=_place(after), most=most, **meant)

    return pages.turn(find, place=_stands)


@router.get("/api/pending/counts")
def count_pending(verbs: Verbs, principal: Reader, meant: Meant) -> RowCounts:
    """How many rows of all jobs there are, by status. See the setting pending_enabled."""
    return verbs.job_rows.counts(principal, **meant)


@router.post("/api/jobs/{job_id}/pause")
def pause_job(job_id: Id, verbs: Verbs, principal: Writer, connection: Transaction) -> JobRow:
    """Start no more rows of a job until it is resumed. Rows that are running continue."""
    return verbs.jobs.pause(principal, job_id, connection=connection)


@router.post("/api/jobs/{job_id}/resume")
def resume_job(job_id: Id, verbs: Verbs, principal: Writer, connection: Transaction) -> JobRow:
    """Resume a paused job."""
    return verbs.jobs.resume(principal, job_id, connection=connection)


@router.post("/api/jobs/{job_id}/kickoff")
@repeatable("it works like a worker that runs for longer; a row is processed once")
def kick_off_job(
    job_id: Id,
    app: App,
    principal: Writer,
    duration_ms: Annotated[int, Query(alias="durationMs", ge=100, le=20_000)] = 5_000,
) -> Kickoff:
    """Process rows of a job inside this request, for this long or until none is left."""
    return app.internals.kickoffs.run(principal, job_id, duration_ms / 1_000)


@router.post("/api/jobs/{job_id}/cancel")
def cancel_job(
    job_id: Id, verbs: Verbs, principal: Writer, connection: Transaction, body: ReasonIn | None = None
) -> JobRow:
    """Cancel a job: no more rows are read or started, and rows that have not ended are cancelled in the background."""
    return verbs.jobs.cancel(principal, job_id, body.reason if body else "", connection=connection)


@router.post("/api/jobs/{job_id}/reprocess")
def reprocess_job(
    job_id: Id, verbs: Verbs, principal: Writer, connection: Transaction, asked: ReprocessIn | None = None
) -> Reprocessed:
    """Try rows again: the given rows at once, or all rows of some statuses in the background."""
    chosen = asked or ReprocessIn()
    if (chosen.scope == "items") != (chosen.item_ids is not None):
        raise InputError("itemIds", "are required with scope items, and not allowed with scope job")
    count = verbs.jobs.reprocess(
        principal, job_id, ids=chosen.item_ids, statuses=chosen.statuses, is_reset=chosen.reset, connection=connection
    )
    return Reprocessed(count)


class CheckIn(Model, **example(fix=True)):
    fix: bool = Field(default=False, description="Make the counters and the statuses of rows true.")


@router.post("/api/jobs/{job_id}/check")
@repeatable("counters that were made true stay as they are")
def check_job(job_id: Id, verbs: Verbs, principal: Writer, asked: CheckIn | None = None) -> JobCheck:
    """Compare the counters of a job with its rows, counted off; or make them true."""
    return verbs.job_checks.check(principal, job_id, fix=(asked or CheckIn()).fix)


@router.delete("/api/jobs/{job_id}", status_code=204)
def remove_job(job_id: Id, verbs: Verbs, principal: Writer) -> None:
    """Delete a job with its rows and its file. It is gone at once; the rows are deleted in the background."""
    verbs.jobs.remove(principal, job_id)


def _statuses(many: str | None, one: Status | None = None) -> tuple[Status, ...]:
    given = {*filter(None, (many or "").split(",")), *([one] if one else [])}
    if strange := sorted(given - set(STATUSES)):
        raise InputError("statuses", f"{strange[0]!r:.50} is not a status; known: {', '.join(STATUSES)}")
    return tuple(status for status in STATUSES if status in given)


def _place(read: Any) -> RowPlace:
    return START if read is None else (datetime.fromisoformat(read[0]), read[1])


def _stands(item: JobItem) -> list[Any]:
    return [item.changed_at.isoformat(), item.id]
