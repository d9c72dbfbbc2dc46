"""Jobs and their rows: listed, paused, resumed, cancelled, tried again and removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from duly.core.errors import InputError
from duly.core.model import Status
from duly.core.shown import JobItem
from duly.verbs import Principal
from duly.verbs.job_rows import START, STATUSES, Place
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.schemas import After, Id, Page, PageSize
from duly.web.schemas.jobs import CancelIn, JobItemOut, JobOut, JobType, PendingItemOut, ReprocessIn, ReprocessOut

router = APIRouter(tags=["jobs"])

Statuses = Annotated[
    str | None, Query(max_length=200, description=f"Some of {', '.join(STATUSES)}, by commas; default: all.")
]


@router.get("/api/jobs", response_model=Page[JobOut])
def list_jobs(
    desk: At,
    principal: Reader,
    user_id: UserId = None,
    job_type: JobType = None,
    page_size: PageSize = 50,
    after: After = None,
) -> Any:
    """Jobs, the newest first."""
    owner = owner_for(principal, user_id)
    bound = ["jobs", owner, job_type]
    rows = desk.app.verbs.jobs.page(principal, owner, job_type, desk.cursors.read(after, bound), page_size + 1)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: row)


@router.get("/api/jobs/{job_id}", response_model=JobOut)
def show_job(job_id: Id, desk: At, principal: Reader) -> Any:
    """How far it is."""
    return desk.app.verbs.jobs.show(principal, job_id)


@router.get("/api/jobs/{job_id}/items", response_model=Page[JobItemOut])
def list_job_items(
    job_id: Id,
    desk: At,
    principal: Reader,
    status: Annotated[Status | None, Query()] = None,
    statuses: Statuses = None,
    page: Annotated[int | None, Query(ge=1, le=10_000_000, description="By row number; for all rows.")] = None,
    page_size: PageSize = 100,
    after: After = None,
    sort: Annotated[Literal["row", "updatedAt"] | None, Query(description="Default: row, where all are asked.")] = None,
) -> Any:
    """Rows of a job: all in the order of the file, or those of some statuses by when they changed last."""
    rows = desk.app.verbs.job_rows
    chosen = _statuses(statuses, status)
    if (sort or ("updatedAt" if chosen else "row")) == "updatedAt":
        if page is not None:
            raise InputError("page", "is for all rows in the order of the file; go on with `after` here")
        bound = ["job items", job_id, chosen]
        place = _place(desk.cursors.read(after, bound))
        found = rows.page(principal, job_id, chosen or STATUSES, place, page_size + 1)
        return desk.page(found, page_size, lambda row: [row.changed_at.isoformat(), row.id], bound, _shown(desk))
    if chosen:
        raise InputError("sort", "by row shows all rows; leave the statuses out")
    bound = ["job rows", job_id]
    first = (page - 1) * page_size if page is not None else desk.cursors.read(after, bound) or 0
    found = rows.by_number(principal, job_id, first, page_size + 1)
    return desk.page(found, page_size, lambda row: row.row_no, bound, _shown(desk))


@router.get("/api/pending", response_model=Page[PendingItemOut])
def list_pending(
    desk: At,
    principal: Reader,
    statuses: Statuses = None,
    user_id: UserId = None,
    job_type: JobType = None,
    page_size: PageSize = 100,
    after: After = None,
) -> Any:
    """Rows of all jobs that wait or are worked on, those that changed longest ago first. It has to be turned on."""
    if not desk.app.verbs.ground.job_settings.pending_enabled:
        raise Problem(404, "the list of pending rows is turned off; the setting pending_enabled turns it on")
    owner = owner_for(principal, user_id)
    chosen = _statuses(statuses) or ("PENDING", "PROCESSING")
    if "DONE" in chosen:
        raise InputError("statuses", "what is DONE is not pending; look into its job")
    bound = ["pending", owner, chosen, job_type]
    place = _place(desk.cursors.read(after, bound))
    found = desk.app.verbs.job_rows.pending(principal, owner, chosen, job_type, place, page_size + 1)
    return desk.page(found, page_size, lambda row: [row.changed_at.isoformat(), row.id], bound, _shown(desk))


@router.post("/api/jobs/{job_id}/pause", response_model=JobOut)
def pause_job(
    job_id: Id, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Start no more of its rows until it is resumed; what runs goes on."""
    return _acted(desk, principal, idempotency_key, request, desk.app.verbs.jobs.pause, job_id)


@router.post("/api/jobs/{job_id}/resume", response_model=JobOut)
def resume_job(
    job_id: Id, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Go on with a paused job."""
    return _acted(desk, principal, idempotency_key, request, desk.app.verbs.jobs.resume, job_id)


@router.post("/api/jobs/{job_id}/cancel", response_model=JobOut)
def cancel_job(
    job_id: Id, request: Request, desk: At, principal: Writer, said: CancelIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Take and start no more rows, and cancel all that have not ended, as durable work."""

    def act(connection: Any) -> tuple[int, Any]:
        reason = said.reason if said else ""
        cancelled = desk.app.verbs.jobs.cancel(principal, job_id, reason, connection=connection)
        return 200, JobOut.model_validate(cancelled)

    return desk.once(principal, idempotency_key, request, said, act)


@router.post("/api/jobs/{job_id}/reprocess", response_model=ReprocessOut)
def reprocess_job(
    job_id: Id, request: Request, desk: At, principal: Writer, asked: ReprocessIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Have rows tried once more: those that are named at once, or all of some statuses as durable work."""
    chosen = asked or ReprocessIn()
    if (chosen.scope == "items") != (chosen.item_ids is not None):
        raise InputError("itemIds", "go with the scope items, and the scope items with them")

    def act(connection: Any) -> tuple[int, Any]:
        count = desk.app.verbs.jobs.reprocess(
            principal, job_id, ids=chosen.item_ids, statuses=chosen.statuses, is_reset=chosen.reset,
            connection=connection,
        )  # fmt: skip
        return 200, {"items": count}

    return desk.once(principal, idempotency_key, request, asked, act)


@router.delete("/api/jobs/{job_id}", status_code=204)
def remove_job(job_id: Id, desk: At, principal: Writer) -> None:
    """Forget it with its rows and its file, as durable work; it is found no more from now on."""
    desk.app.verbs.jobs.remove(principal, job_id)


def _statuses(many: str | None, one: Status | None = None) -> tuple[Status, ...]:
    said = {*filter(None, (many or "").split(",")), *([one] if one else [])}
    if strange := sorted(said - set(STATUSES)):
        raise InputError("statuses", f"{strange[0]!r:.50} is none of {', '.join(STATUSES)}")
    return tuple(status for status in STATUSES if status in said)


def _place(read: Any) -> Place:
    return START if read is None else (datetime.fromisoformat(read[0]), read[1])


def _shown(desk: Desk) -> Callable[[JobItem], dict[str, Any]]:
    def show(item: JobItem) -> dict[str, Any]:
        return {
            "id": item.id, "job_id": item.job_id, "row": item.row_no, "status": item.status, "attempts": item.attempt,
            "last_error": item.last_error, "locked_by": item.claimed_by, "locked_at": item.started_at,
            "updated_at": item.changed_at, "result": desk.masked(item.result),
            "input_summary": {name: _short(getattr(item, name)) for name in ("title", "brand", "sku")},
        }  # fmt: skip

    return show


def _short(text: str | None) -> str | None:
    """The database gives one character more than is shown, so that it is seen where something is missing."""
    return text if text is None or len(text) <= 120 else f"{text[:119]}…"


def _acted(
    desk: Desk, principal: Principal, key: str | None, request: Request, verb: Callable[..., Any], job_id: int
) -> Response:
    def act(connection: Any) -> tuple[int, Any]:
        return 200, JobOut.model_validate(verb(principal, job_id, connection=connection))

    return desk.once(principal, key, request, None, act)
