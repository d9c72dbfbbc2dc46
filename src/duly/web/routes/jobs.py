"""Jobs: files come in, their rows are listed, paused, tried again, exported and removed."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, BinaryIO, Literal, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from duly.core import codec
from duly.core.errors import InputError
from duly.core.model import Status
from duly.core.shown import JobItem
from duly.intake.exports import MEDIA
from duly.intake.intake import Said, kept_by
from duly.intake.mending import mend
from duly.verbs import Principal
from duly.verbs.job_rows import START, STATUSES, Place
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.schemas import After, Id, Page, PageSize
from duly.web.schemas.jobs import (
    CancelIn,
    JobIn,
    JobItemOut,
    JobMade,
    JobOut,
    MendedOut,
    PendingItemOut,
    PreviewOut,
    ReprocessIn,
    ReprocessOut,
    SaidIn,
)
from duly.web.uploads import UPLOADED, Form, Sink, receive

router = APIRouter(tags=["jobs"])

# What a body of JSON may have, which is small: files come as forms.
JSON_MOST = 64 * 1024

_FIELDS: dict[str, Any] = {
    "file": {"type": "string", "format": "binary"},
    **SaidIn.model_json_schema()["properties"],
    "mapping": {"type": "string", "description": "The column of each field, as a JSON object."},
}
_FORM = {"schema": {"type": "object", "required": ["file"], "properties": _FIELDS}}
_CREATED = {"requestBody": {"required": True, "content": {
    UPLOADED: _FORM, "application/json": {"schema": {"$ref": "#/components/schemas/JobIn"}},
}}}  # fmt: skip
_SEEN = {"requestBody": {"required": True, "content": {UPLOADED: _FORM}}}
_FILE = {"schema": {"type": "object", "required": ["file"], "properties": {"file": _FIELDS["file"]}}}
_SENT = {"requestBody": {"required": True, "content": {UPLOADED: _FILE}}}

_FILES: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {}, MEDIA["xlsx"]: {}}}}

Format = Annotated[Literal["xlsx", "csv"], Query()]
JobType = Annotated[str | None, Query(alias="jobType", min_length=1, max_length=50, pattern=r"^[\w.-]+$")]
Statuses = Annotated[
    str | None, Query(max_length=200, description=f"Some of {', '.join(STATUSES)}, by commas; default: all.")
]


@router.post("/api/jobs", status_code=201, response_model=JobMade, openapi_extra=_CREATED)
async def create_job(
    request: Request, desk: At, principal: Writer, job_type: JobType = None, idempotency_key: IdempotencyKey = None
) -> Any:
    """A job of the rows of a file: sent as the field `file` of a form, or named by its address.

    The file is kept as it comes, and read by a worker; this answers as soon as it is kept. The same Idempotency-Key
    again is the same job.
    """
    app = desk.app
    key = None if idempotency_key is None else f"upload:{idempotency_key}"  # as nobody's code calls its jobs
    origin = {"key": key, "ip_address": request.client.host if request.client else None}
    if not _is_form(request):
        asked = _checked(JobIn, {**_given(job_type), **await _json(request)})
        job = await run_in_threadpool(
            app.intake.order, principal, asked.source, job_type=asked.job_type, said=_said(asked), **origin
        )
        return {"job_id": job.id}
    writer = await run_in_threadpool(app.intake.receive)
    form = await _received(request, writer, writer)
    try:
        said = _checked(SaidIn, {**_given(job_type), **_unpacked(form.fields)})
    except Exception:
        await run_in_threadpool(app.intake.files.delete, kept_by(writer).key)
        raise
    job = await run_in_threadpool(
        app.intake.create, principal, kept_by(writer), form.filename or "", job_type=said.job_type, said=_said(said),
        **origin,
    )  # fmt: skip
    return {"job_id": job.id}


@router.post("/api/jobs/preview", response_model=PreviewOut, openapi_extra=_SEEN)
async def preview_job(request: Request, desk: At, principal: Writer, job_type: JobType = None) -> Any:
    """What would become of the first rows of a file, and which column would be which field. Nothing is kept."""
    async with _spooled(request, desk) as (spool, form):
        said = _checked(SaidIn, {**_given(job_type), **_unpacked(form.fields)})
        return await run_in_threadpool(
            desk.app.intake.preview, principal, spool, form.filename or "", job_type=said.job_type, said=_said(said)
        )


@router.post("/api/jobs/{job_id}/mend", response_model=MendedOut, openapi_extra=_SENT)
async def mend_job(job_id: Id, request: Request, desk: At, principal: Writer) -> Any:
    """Have the rows of a file of mended rejects tried in place of those in error that have the same numbers."""
    await run_in_threadpool(desk.app.verbs.jobs.get, principal, job_id)
    async with _spooled(request, desk) as (spool, form):
        return await run_in_threadpool(mend, desk.app.intake, principal, job_id, spool, form.filename or "")


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


@router.post("/api/jobs/{job_id}/export", response_class=StreamingResponse, responses=_FILES)
def export_job(job_id: Id, desk: At, principal: Reader, format: Format = "xlsx") -> Response:
    """All rows with what came in and went out, as the grid shows them, made from the database while it is sent."""
    return _file(job_id, format, desk.app.exports.whole(principal, job_id, format), "")


@router.get("/api/jobs/{job_id}/export", response_class=StreamingResponse, responses=_FILES)
def download_job(job_id: Id, desk: At, principal: Reader, format: Format = "xlsx") -> Response:
    """The same, for links."""
    return export_job(job_id, desk, principal, format)


@router.get("/api/jobs/{job_id}/rejects", response_class=StreamingResponse, responses=_FILES)
def download_rejects(job_id: Id, desk: At, principal: Reader, format: Format = "xlsx") -> Response:
    """The rows in error with their columns as they came and why, to be mended and sent again."""
    return _file(job_id, format, desk.app.exports.rejects(principal, job_id, format), "-rejects")


# -- what comes in


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == UPLOADED


class _Bounded:
    """A file that takes only so many bytes."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._left = most
        self._most = most

    def write(self, data: bytes, /) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise InputError("file", f"has more than {self._most:,} bytes")
        self._file.write(data)


@asynccontextmanager
async def _spooled(request: Request, desk: Desk) -> AsyncIterator[tuple[BinaryIO, Form]]:
    """The file of a form, for as long as it is looked at; nothing of it is kept."""
    if not _is_form(request):
        raise Problem(415, "send the file as the field `file` of a form")
    with tempfile.TemporaryFile() as spool:
        form = await _received(request, _Bounded(spool, desk.app.intake.settings.upload_max_bytes))
        yield cast(BinaryIO, spool), form


async def _received(request: Request, sink: Sink, held: AbstractContextManager[Any] | None = None) -> Form:
    """The form of this request, whose file went into the sink; too large a file is told as such.

    What is `held` is kept at the end, and given up if anything is wrong with the form.
    """
    try:
        form = await receive(request, sink)
    except BaseException as error:
        if held is not None:  # here and now: whoever was cancelled may not wait for a thread
            held.__exit__(type(error), error, None)
        if isinstance(error, InputError):
            raise Problem(413, str(error), "file", {"Connection": "close"}) from None
        raise
    if held is not None:
        await run_in_threadpool(held.__exit__, None, None, None)
    return form


async def _json(request: Request) -> dict[str, Any]:
    body = await request.body()
    try:
        said = codec.decode(body) if len(body) <= JSON_MOST else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Problem(422, "body: must be a small JSON object with a source, or a form with a file", "body")
    return said


def _given(job_type: str | None) -> dict[str, Any]:
    return {} if job_type is None else {"jobType": job_type}


def _unpacked(fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a form, of which one holds an object."""
    if "mapping" not in fields:
        return dict(fields)
    try:
        return {**fields, "mapping": codec.decode(fields["mapping"])}
    except ValueError:
        raise InputError("mapping", "must be a JSON object: the column of each field") from None


def _checked(model: type[Any], said: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(said)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from None


def _said(asked: SaidIn) -> Said:
    return Said(
        header=asked.header, encoding=asked.encoding, delimiter=asked.delimiter, sheet=asked.sheet,
        mapping=asked.mapping,
    )  # fmt: skip


def _statuses(many: str | None, one: Status | None = None) -> tuple[Status, ...]:
    said = {*filter(None, (many or "").split(",")), *([one] if one else [])}
    if strange := sorted(said - set(STATUSES)):
        raise InputError("statuses", f"{strange[0]!r:.50} is none of {', '.join(STATUSES)}")
    return tuple(status for status in STATUSES if status in said)


def _place(read: Any) -> Place:
    return START if read is None else (datetime.fromisoformat(read[0]), read[1])


# -- what goes out


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


def _file(job_id: int, format: str, portions: Iterator[bytes], suffix: str) -> Response:
    name = f"job-{job_id}{suffix}.{format}"
    # The first portion is made here, so that what is wrong is told as a problem and not in the middle of a file.
    first = next(portions)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chain((first,), portions), media_type=MEDIA[format], headers=headers)


def _acted(
    desk: Desk, principal: Principal, key: str | None, request: Request, verb: Callable[..., Any], job_id: int
) -> Response:
    def act(connection: Any) -> tuple[int, Any]:
        return 200, JobOut.model_validate(verb(principal, job_id, connection=connection))

    return desk.once(principal, key, request, None, act)
