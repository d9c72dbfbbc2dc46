"""Jobs and their rows: listed, paused, resumed, cancelled, tried again and removed."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Response

from duly.core.errors import InputError
from duly.core.model import Status
from duly.core.results import Kickoff
from duly.core.shown import JobItem, JobRow, PendingItem, RowCounts
from duly.verbs.job_rows import START, STATUSES, RowPlace
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Once, Pages
from duly.web.problems import Problem
from duly.web.schemas import BIG, Id, Moment, out, page_of
from duly.web.schemas.jobs import (
    CancelIn,
    GridLine,
    InputSummary,
    JobType,
    PendingLine,
    Reprocessed,
    ReprocessIn,
)

router = APIRouter(tags=["jobs"])

Statuses = Annotated[
    str | None, Query(max_length=200, description=f"Some of {', '.join(STATUSES)}, separated by commas; default: all.")
]


@router.get("/api/jobs", response_model=page_of(JobRow))
def list_jobs(
    desk: At,
    principal: Reader,
    pages: Pages,
    user_id: UserId = None,
    job_type: JobType = None,
) -> Any:
    """Jobs, the newest first."""
    owner, jobs = owner_for(principal, user_id), desk.app.verbs.jobs
    return pages.turn(
        ["jobs", owner, job_type], lambda before, most: jobs.page(principal, owner, job_type, before, most)
    )


@router.get("/api/jobs/{job_id}", response_model=out(JobRow))
def show_job(job_id: Id, desk: At, principal: Reader) -> Any:
    """One job with its counts and progress."""
    return desk.app.verbs.jobs.show(principal, job_id)


@router.get("/api/jobs/{job_id}/items", response_model=page_of(GridLine))
def list_job_items(
    job_id: Id,
    desk: At,
    principal: Reader,
    pages: Pages,
    status: Annotated[Status | None, Query()] = None,
    statuses: Statuses = None,
    page: Annotated[int | None, Query(ge=1, le=10_000_000, description="By row number; for all rows.")] = None,
    sort: Annotated[Literal["row", "updatedAt"] | None, Query(description="Default: row, where all are asked.")] = None,
) -> Any:
    """Rows of a job: all in the order of the file, or rows of some statuses by their last change."""
    rows = desk.app.verbs.job_rows
    chosen = _statuses(statuses, status)

    def grid_line(item: JobItem) -> GridLine:
        return GridLine(**_line(item), result=desk.masked(item.result))

    if (sort or ("updatedAt" if chosen else "row")) == "updatedAt":
        if page is not None:
            raise InputError("page", "works only for all rows in the order of the file; use `after` here")
        return pages.turn(
            ["job items", job_id, chosen],
            lambda after, most: rows.page(principal, job_id, chosen or STATUSES, _place(after), most),
            grid_line,
            _stands,
        )
    if chosen:
        raise InputError("sort", "row cannot be combined with statuses; leave one of them out")
    before = None if page is None else (page - 1) * pages.size
    return pages.turn(
        ["job rows", job_id],
        lambda after, most: rows.by_number(principal, job_id, (after or 0) if before is None else before, most),
        grid_line,
        attrgetter("row_no"),
    )


@router.get("/api/jobs/{job_id}/counts", response_model=out(RowCounts))
def count_job_items(job_id: Id, desk: At, principal: Reader) -> Any:
    """How many rows of a job there are, by status."""
    return desk.app.verbs.job_rows.counts_of(principal, job_id)


class _Pending(NamedTuple):
    """Which rows of all jobs to list."""

    job_type: str | None
    job_ids: tuple[int, ...]
    since: datetime | None
    until: datetime | None


async def _pending(
    desk: At,
    job_type: JobType = None,
    job_id: Annotated[
        str | None, Query(alias="jobId", max_length=2_000, description="Only rows of these jobs, separated by commas.")
    ] = None,
    since: Annotated[Moment | None, Query(alias="from", description="When they changed last.")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
) -> _Pending:
    if not desk.app.verbs.context.job_settings.pending_enabled:
        raise Problem(404, "the list of pending rows is off; turn it on with the setting pending_enabled")
    given = [part.strip() for part in (job_id or "").split(",") if part.strip()]
    if strange := next((part for part in given if not part.isdecimal() or not 1 <= int(part) <= BIG), None):
        raise InputError("jobId", f"must be ids of jobs, separated by commas, got {strange!r:.50}")
    if since is not None and until is not None and since >= until:
        raise InputError("to", "must be later than from")
    return _Pending(job_type, tuple(sorted({int(part) for part in given})), since, until)


Meant = Annotated[_Pending, Depends(_pending)]


@router.get("/api/pending", response_model=page_of(PendingLine))
def list_pending(
    desk: At, principal: Reader, pages: Pages, meant: Meant, statuses: Statuses = None, user_id: UserId = None
) -> Any:
    """Rows of all jobs that wait or are being processed, oldest change first. See the setting pending_enabled."""
    owner = owner_for(principal, user_id)
    chosen = _statuses(statuses) or ("PENDING", "PROCESSING")
    if "DONE" in chosen:
        raise InputError("statuses", "DONE rows are not pending; list the rows of their job instead")
    rows = desk.app.verbs.job_rows

    def find(after: Any, most: int) -> list[PendingItem]:
        return rows.pending(
            principal, owner, chosen, meant.job_type, _place(after), most, job_ids=meant.job_ids, since=meant.since,
            until=meant.until,
        )  # fmt: skip

    return pages.turn(["pending", owner, chosen, *meant], find, _pending_line, _stands)


@router.get("/api/pending/counts", response_model=out(RowCounts))
def count_pending(desk: At, principal: Reader, meant: Meant, user_id: UserId = None) -> Any:
    """How many rows of all jobs there are, by status. See the setting pending_enabled."""
    return desk.app.verbs.job_rows.counts(
        principal, owner_for(principal, user_id), meant.job_type, job_ids=meant.job_ids, since=meant.since,
        until=meant.until,
    )  # fmt: skip


@router.post("/api/jobs/{job_id}/pause", response_model=out(JobRow))
def pause_job(job_id: Id, desk: At, principal: Writer, once: Once) -> Response:
    """Start no more rows of a job until it is resumed. Rows that are running continue."""
    return once(principal, None, lambda connection: desk.app.verbs.jobs.pause(principal, job_id, connection=connection))


@router.post("/api/jobs/{job_id}/resume", response_model=out(JobRow))
def resume_job(job_id: Id, desk: At, principal: Writer, once: Once) -> Response:
    """Resume a paused job."""
    return once(
        principal, None, lambda connection: desk.app.verbs.jobs.resume(principal, job_id, connection=connection)
    )


@router.post("/api/jobs/{job_id}/kickoff", response_model=out(Kickoff))
def kick_off_job(
    job_id: Id,
    desk: At,
    principal: Writer,
    duration_ms: Annotated[int, Query(alias="durationMs", ge=100, le=20_000)] = 5_000,
) -> Any:
    """Process rows of a job inside this request, for this long or until none is left."""
    return desk.app.kickoffs.run(principal, job_id, duration_ms / 1_000)


@router.post("/api/jobs/{job_id}/cancel", response_model=out(JobRow))
def cancel_job(job_id: Id, desk: At, principal: Writer, once: Once, body: CancelIn | None = None) -> Response:
    """Cancel a job: no more rows are read or started, and rows that have not ended are cancelled in the background."""

    def act(connection: Any) -> Any:
        reason = body.reason if body else ""
        return desk.app.verbs.jobs.cancel(principal, job_id, reason, connection=connection)

    return once(principal, body, act)


@router.post("/api/jobs/{job_id}/reprocess", response_model=out(Reprocessed))
def reprocess_job(job_id: Id, desk: At, principal: Writer, once: Once, asked: ReprocessIn | None = None) -> Response:
    """Try rows again: the given rows at once, or all rows of some statuses in the background."""
    chosen = asked or ReprocessIn()
    if (chosen.scope == "items") != (chosen.item_ids is not None):
        raise InputError("itemIds", "are required with scope items, and not allowed with scope job")

    def act(connection: Any) -> Any:
        count = desk.app.verbs.jobs.reprocess(
            principal, job_id, ids=chosen.item_ids, statuses=chosen.statuses, is_reset=chosen.reset,
            connection=connection,
        )  # fmt: skip
        return Reprocessed(count)

    return once(principal, asked, act)


@router.delete("/api/jobs/{job_id}", status_code=204)
def remove_job(job_id: Id, desk: At, principal: Writer) -> None:
    """Delete a job with its rows and its file. It is gone at once; the rows are deleted in the background."""
    desk.app.verbs.jobs.remove(principal, job_id)


def _statuses(many: str | None, one: Status | None = None) -> tuple[Status, ...]:
    given = {*filter(None, (many or "").split(",")), *([one] if one else [])}
    if strange := sorted(given - set(STATUSES)):
        raise InputError("statuses", f"{strange[0]!r:.50} is not a status; known: {', '.join(STATUSES)}")
    return tuple(status for status in STATUSES if status in given)


def _place(read: Any) -> RowPlace:
    return START if read is None else (datetime.fromisoformat(read[0]), read[1])


def _stands(item: JobItem) -> list[Any]:
    return [item.changed_at.isoformat(), item.id]


def _line(item: JobItem) -> dict[str, Any]:
    """What every list shows of a row of a job."""
    return {
        "id": item.id, "job_id": item.job_id, "row": item.row_no, "status": item.status, "attempts": item.attempt,
        "last_error": item.last_error, "locked_by": item.claimed_by, "locked_at": item.started_at,
        "updated_at": item.changed_at,
        "input_summary": InputSummary(_short(item.title), _short(item.brand), _short(item.sku)),
    }  # fmt: skip


def _pending_line(item: PendingItem) -> PendingLine:
    return PendingLine(
        **_line(item),
        job_type=item.job_type,
        user_id=item.user_id,
        progress=item.progress,
        total=item.total,
        ended=item.ended,
    )


def _short(text: str | None) -> str | None:
    """At most 120 characters. The database returns one more, so that a cut text can be marked."""
    return text if text is None or len(text) <= 120 else f"{text[:119]}…"
