"""Jobs, their files and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from msgspec import Struct, field
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.doc import Doc
from duly.core.model import Status
from duly.core.shown import InputSummary
from duly.web.schemas import Args, Model, RowId, clean, example

Short = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(clean)]
Cell = Annotated[str, StringConstraints(max_length=500), AfterValidator(clean)]
JobType = Annotated[str | None, Query(alias="jobType", min_length=1, max_length=50, pattern=r"^[\w.-]+$")]


class FileOptionsIn(Model):
    """How to read a file; values that are not given are detected."""

    job_type: Short = Field(default="csv", description="Which task takes the rows: csv, image, or another of the app.")
    header: bool | None = Field(default=None, description="Whether the first row has the names of the columns.")
    encoding: Short | None = None
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    sheet: Cell | None = Field(default=None, description="The sheet of a workbook; default: the first visible one.")
    mapping: dict[Cell, Cell] | None = Field(default=None, description="The column of each field.")


class JobIn(FileOptionsIn):
    model_config = example(source="s3://drop/incoming/products.csv", jobType="csv")

    source: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(clean)] = Field(
        description="The address of the file: s3://…, ftp://…, ftps://… or file:name, if the settings allow it."
    )


class JobMade(Struct, frozen=True):
    job_id: int


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


class ReprocessIn(Model):
    model_config = example(scope="job", statuses=["ERROR", "NOT_FOUND"])

    scope: Literal["job", "items"] = "job"
    item_ids: Annotated[list[RowId], Field(max_length=1_000)] | None = None
    statuses: Annotated[list[Literal["ERROR", "NOT_FOUND", "SKIPPED"]], Field(min_length=1, max_length=3)] = Field(
        default=["ERROR", "NOT_FOUND"]
    )
    reset: bool = Field(default=False, description="Also rows that were tried again as often as the settings allow.")


class Reprocessed(Struct, frozen=True):
    items: Annotated[int, Doc("Rows that will be tried again, at most.")]


class RowMendIn(Model):
    model_config = example(values={"count": "12"})

    values: Args = Field(
        min_length=1, description="By column. Columns that are missing here, or still masked, keep their values."
    )


class MendedRow(Struct, frozen=True):
    row: int


class ScanIn(Model):
    model_config = example(again=False)

    again: bool = Field(default=False, description="Also scan files that were rejected before.")
