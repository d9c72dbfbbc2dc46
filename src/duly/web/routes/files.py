"""Files of jobs: upload, preview, correction of rejects, and export, all streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, Field, StringConstraints, ValidationError
from starlette.concurrency import run_in_threadpool

from duly.core import codec
from duly.core.errors import InputError
from duly.core.results import FilePreview, JobTypeInfo, MendReport, RowInError, ScanReport
from duly.intake.exports import MEDIA
from duly.intake.intake import FileOptions, kept_by
from duly.intake.mending import mend, mend_row, refused
from duly.intake.types import JobType as Type
from duly.web.auth import Admin, Reader, Writer
from duly.web.desk import App, Pages, masked
from duly.web.problems import Problem
from duly.web.routes.jobs import JobType
from duly.web.routing import IdempotencyKey, Router, Transaction, repeatable
from duly.web.schemas import Args, Id, Model, Page, clean, example
from duly.web.uploads import UPLOADED, is_form, received, spooled

router = Router(tags=["jobs"])

# The largest JSON body. Files are sent as forms.
JSON_MOST = 64 * 1024

Short = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(clean)]
Cell = Annotated[str, StringConstraints(max_length=500), AfterValidator(clean)]


class FileOptionsIn(Model):
    """How to read a file; values that are not given are detected."""

    job_type: Short = Field(default="csv", description="Which task takes the rows: csv, image, or another of the app.")
    header: bool | None = Field(default=None, description="Whether the first row has the names of the columns.")
    encoding: Short | None = None
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    sheet: Cell | None = Field(default=None, description="The sheet of a workbook; default: the first visible one.")
    mapping: dict[Cell, Cell] | None = Field(default=None, description="The column of each field.")


class JobIn(FileOptionsIn, **example(source="s3://drop/incoming/products.csv", jobType="csv")):
    source: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(clean)] = Field(
        description="The address of the file: s3://…, ftp://…, ftps://… or file:name, if the settings allow it."
    )


class JobMade(Struct, frozen=True):
    job_id: int


class RowMendIn(Model, **example(values={"count": "12"})):
    values: Args = Field(
        min_length=1, description="By column. Columns that are missing here, or still masked, keep their values."
    )


class MendedRow(Struct, frozen=True):
    row: int


class ScanIn(Model, **example(again=False)):
    again: bool = Field(default=False, description="Also scan files that were rejected before.")


_FIELDS: dict[str, Any] = {
    "file": {"type": "string", "format": "binary"},
    **FileOptionsIn.model_json_schema()["properties"],
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


@router.post("/api/jobs", status_code=201, openapi_extra=_CREATED)
async def create_job(
    request: Request, app: App, principal: Writer, job_type: JobType = None, idempotency_key: IdempotencyKey = None
) -> JobMade:
    """Create a job from a file: sent as the field `file` of a form, or given by its address.

    The file is stored as it is, and a worker reads it later. A repeated Idempotency-Key with the same file or address
    and the same type returns the same job.
    Only admins, and the owner of jobs created from scanned files, may give an address.
    """
    key = None if idempotency_key is None else f"upload:{idempotency_key}"  # never equal to a key given in code
    origin = {"key": key, "ip_address": request.client.host if request.client else None}
    intake = app.internals.intake
    if is_form(request):
        writer = await run_in_threadpool(intake.receive)
        form = await received(request, writer.write, writer)
        try:
            given = _checked(FileOptionsIn, job_type, _unpacked(form.fields))
        except Exception:
            await run_in_threadpool(intake.files.delete, kept_by(writer).key)
            raise
        make = partial(intake.create, principal, kept_by(writer), form.filename or "")
    else:
        given = _checked(JobIn, job_type, await _json(request))
        make = partial(intake.order, principal, given.source)
    with _key_named():
        job = await run_in_threadpool(make, job_type=given.job_type, file_options=_options(given), **origin)
    return JobMade(job.id)


@router.post("/api/jobs/preview", openapi_extra=_SEEN)
@repeatable("it only reads")
async def preview_job(request: Request, app: App, principal: Writer, job_type: JobType = None) -> FilePreview:
    """Preview a file: how its first rows would be read, and which column is which field. Nothing is stored."""
    intake = app.internals.intake
    async with spooled(request, intake.settings.upload_max_bytes) as (spool, form):
        given = _checked(FileOptionsIn, job_type, _unpacked(form.fields))
        preview = partial(intake.preview, principal, spool, form.filename or "")
        return await run_in_threadpool(preview, job_type=given.job_type, file_options=_options(given))


@router.get("/api/jobs/types")
def list_job_types(app: App, principal: Reader, pages: Pages) -> Page[JobTypeInfo]:
    """The types of jobs by name, with the fields that columns of a file are mapped to."""
    return pages.among(app.internals.job_types.values(), Type.info, attrgetter("name"))


@router.get("/api/jobs/{job_id}/rows/{row}")
def show_refused_row(job_id: Id, row: Id, app: App, principal: Reader) -> RowInError:
    """One row in error with its original values, for correction."""
    found = refused(app.internals.intake, principal, job_id, row)
    return replace(found, values=masked(app.internals.verbs, found.values))


@router.post("/api/jobs/{job_id}/rows/{row}/mend")
def mend_row_of_job(
    job_id: Id, row: Id, body: RowMendIn, app: App, principal: Writer, connection: Transaction
) -> MendedRow:
    """Try one row in error again with corrected values."""
    mend_row(app.internals.intake, principal, job_id, row, body.values, connection)
    return MendedRow(row)


@router.post("/api/jobs/{job_id}/mend", openapi_extra=_SENT)
@repeatable("only rows that are in error are tried again")
async def mend_job(job_id: Id, request: Request, app: App, principal: Writer) -> MendReport:
    """Upload corrected rejects: each row is tried again in place of the row in error with the same number."""
    await run_in_threadpool(app.internals.verbs.jobs.get, principal, job_id)
    intake = app.internals.intake
    async with spooled(request, intake.settings.upload_max_bytes) as (spool, form):
        return await run_in_threadpool(mend, intake, principal, job_id, spool, form.filename or "")


@router.post("/api/jobs/{job_id}/export", response_class=StreamingResponse, responses=_FILES)
@repeatable("it only reads")
def export_job(job_id: Id, app: App, principal: Reader, format: Format = "xlsx") -> Response:
    """All rows with their input and result, as a file that is written while it is sent."""
    return _file(job_id, format, app.internals.exports.whole(principal, job_id, format), "")


@router.get("/api/jobs/{job_id}/export", response_class=StreamingResponse, responses=_FILES)
def download_job(job_id: Id, app: App, principal: Reader, format: Format = "xlsx") -> Response:
    """The same as a GET, for links."""
    return export_job(job_id, app, principal, format)


@router.get("/api/jobs/{job_id}/rejects", response_class=StreamingResponse, responses=_FILES)
def download_rejects(job_id: Id, app: App, principal: Reader, format: Format = "xlsx") -> Response:
    """The rows in error with their original columns and the reason, for correction."""
    return _file(job_id, format, app.internals.exports.rejects(principal, job_id, format), "-rejects")


@router.post("/api/ingestion/scan")
@repeatable("a file becomes one job, however often it is found")
def scan_sources(app: App, principal: Admin, asked: ScanIn | None = None) -> ScanReport:
    """Scan the inbox and the allowed sources, and create one job for each new file.

    Scanning again is safe. If there is too much for one request, a worker continues.
    """
    return app.internals.intake.scanner.scan(principal, is_again=asked is not None and asked.again)


# -- what comes in


@contextmanager
def _key_named() -> Iterator[None]:
    """Report an invalid key under the name of the header that it came in."""
    try:
        yield
    except InputError as error:
        if error.field != "key":
            raise
        raise Problem(422, f"Idempotency-Key: {error.problem}", "Idempotency-Key") from None


async def _json(request: Request) -> dict[str, Any]:
    body = await request.body()
    try:
        given = codec.decode(body) if len(body) <= JSON_MOST else None
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise Problem(422, "body: must be a JSON object with a source (at most 64 KiB), or a form with a file", "body")
    return given


def _unpacked(fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a form; `mapping` is decoded from JSON."""
    if "mapping" not in fields:
        return dict(fields)
    try:
        return {**fields, "mapping": codec.decode(fields["mapping"])}
    except ValueError:
        raise InputError("mapping", "must be a JSON object: the column of each field") from None


def _checked(model: type[Any], job_type: str | None, given: Mapping[str, Any]) -> Any:
    """The model of this body; the type of the job may stand in the query instead."""
    try:
        # The fields of a form are text, from which other types are read.
        whole = {**({} if job_type is None else {"jobType": job_type}), **given}
        return model.model_validate(whole, strict=None if model is JobIn else False)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None


def _options(asked: FileOptionsIn) -> FileOptions:
    return FileOptions(**asked.model_dump(exclude={"job_type", "source"}))


# -- what goes out


def _file(job_id: int, format: str, portions: Iterator[bytes], suffix: str) -> Response:
    name = f"job-{job_id}{suffix}.{format}"
    # The first portion is made here, so that an error is a problem document and not a broken file.
    first = next(portions)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chain((first,), portions), media_type=MEDIA[format], headers=headers)
