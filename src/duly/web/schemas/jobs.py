"""Jobs: made of files, followed, and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.model import Status
from duly.core.shown import JobRow
from duly.web.schemas import BIG, Args, Model, Out, Sentence, clean, example, fields_of

Short = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(clean)]
Cell = Annotated[str, StringConstraints(max_length=500), AfterValidator(clean)]
JobType = Annotated[str | None, Query(alias="jobType", min_length=1, max_length=50, pattern=r"^[\w.-]+$")]
RowId = Annotated[int, Field(ge=1, le=BIG)]


class SaidIn(Model):
    """What the sender knows of a file; what is not said is found out."""

    job_type: Short = Field(default="csv", description="Which task takes the rows: csv, image, or another of the app.")
    header: bool | None = Field(default=None, description="Whether the first row says the names of the columns.")
    encoding: Short | None = None
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    sheet: Cell | None = Field(default=None, description="Of a workbook; else its first visible one.")
    mapping: dict[Cell, Cell] | None = Field(default=None, description="The column of each field.")


class JobIn(SaidIn):
    model_config = example(source="s3://drop/incoming/products.csv", jobType="csv")

    source: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(clean)] = Field(
        description="Where the file is: s3://…, ftp://…, ftps://… or file:name, as far as the settings allow."
    )


class JobMade(Out):
    job_id: int


class JobOut(Out):
    __annotations__ = fields_of(JobRow)


class KickoffOut(Out):
    job: JobOut
    seconds: float = Field(description="That it took.")
    processed: int = Field(description="Rows that it ended.")
    ended: dict[str, int] = Field(description="These rows by their status.")
    tried_again: int = Field(description="Rows that failed and are to be tried again.")


class InputSummary(Out):
    title: str | None = None
    brand: str | None = None
    sku: str | None = None


class RowOut(Out):
    id: int
    job_id: int
    row: int = Field(description="Its number in the file, from 1.")
    status: Status
    attempts: int
    last_error: str | None
    locked_by: str | None
    locked_at: datetime | None
    updated_at: datetime
    input_summary: InputSummary


class PendingItemOut(RowOut):
    job_type: str | None
    user_id: str | None
    progress: float = Field(description="How much of its job has ended, from 0 to 1.")
    total: int = Field(description="Rows of its job.")


class StatusCountsOut(Out):
    """How many rows of jobs there are, by status."""

    counts: dict[Status, int]
    capped: bool = Field(description="There are more of some statuses, which were not counted further.")


class JobItemOut(RowOut):
    result: Any = Field(description="What the grid shows: all that the task returned.")


class PreviewRowOut(Out):
    number: int
    line: int
    values: dict[str, Any]
    normal: dict[str, str] = Field(description="The fields that the row would have.")
    problems: tuple[str, ...] = Field(description="Why it would be refused.")


class PreviewOut(Out):
    kind: str = Field(description="csv, jsonl, xlsx, image, or images for a zip file of them.")
    columns: tuple[str, ...]
    has_header: bool
    mapping: dict[str, str] = Field(description="The column of each field.")
    unused: tuple[str, ...] = Field(description="Columns that no field takes.")
    rows: list[PreviewRowOut]
    refused: int


class ReprocessIn(Model):
    model_config = example(scope="job", statuses=["ERROR", "NOT_FOUND"])

    scope: Literal["job", "items"] = "job"
    item_ids: Annotated[list[RowId], Field(max_length=1_000)] | None = None
    statuses: Annotated[list[Literal["ERROR", "NOT_FOUND", "SKIPPED"]], Field(min_length=1, max_length=3)] = Field(
        default=["ERROR", "NOT_FOUND"]
    )
    reset: bool = Field(default=False, description="Also rows that were tried anew as often as the settings allow.")


class ReprocessOut(Out):
    items: int = Field(description="How many rows are meant, at most.")


class RefusalOut(Out):
    line: int
    reason: str


class MendedOut(Out):
    rows: int
    mended: int = Field(description="Rows that are tried now.")
    refused: int = Field(description="Rows that are still bad, or are not in error in this job.")
    refusals: list[RefusalOut] = Field(description="The first of these, with why.")


class RefusedOut(Out):
    """A row in error as it came."""

    row: int
    columns: tuple[str, ...]
    values: dict[str, Any] = Field(description="What could be read of it, by its columns; secrets are masked.")


class RowMendIn(Model):
    model_config = example(values={"count": "12"})

    values: Args = Field(
        min_length=1, description="By column; what is not named, or is still masked, stays as it came."
    )


class RowMendOut(Out):
    row: int


class FieldOut(Out):
    name: str
    kind: str
    is_needed: bool = Field(description="A row must have this one or another that is needed.")


class JobTypeOut(Out):
    name: str
    task: str
    kinds: tuple[str, ...] = Field(description="The kinds of files that it takes.")
    fields: list[FieldOut] | None = Field(description="What columns are mapped to; null: columns are the arguments.")


class CancelIn(Model):
    model_config = example(reason="the wrong file")

    reason: Sentence = ""


class ScanIn(Model):
    model_config = example(again=False)

    again: bool = Field(default=False, description="Also look at files that were refused before.")


class ScannedFileOut(Out):
    source: str = Field(description="Where it lies, or the place that could not be looked into.")
    job_id: int | None
    reason: str | None


class ScannedOut(Out):
    found: int = Field(description="Files that are there.")
    took: int = Field(description="Files that became jobs.")
    passed_over: int = Field(description="Files that were taken before, are taken by others, or may still be written.")
    unsettled: int = Field(description="Of these, those that may still be written.")
    refused: int = Field(description="Files that no type of jobs takes, and places that cannot be looked into.")
    left: int = Field(description="Files, and places there was no time for, that are taken by a worker who goes on.")
    held: str | None = Field(description="Why no more are taken for now.")
    taken: list[ScannedFileOut] = Field(description="The first of them.")
    passed: list[ScannedFileOut] = Field(
        description="The first of them, but for those of earlier scans; and those left for a reason."
    )
    refusals: list[ScannedFileOut] = Field(description="The first of them.")
