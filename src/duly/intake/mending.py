"""Corrected rows: rows in error are corrected one by one, or uploaded as a file, and tried again in their job."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, BinaryIO

from msgspec import Struct

from duly.bulk.export import ERROR, NUMBER, unguarded
from duly.bulk.mapping import Columns
from duly.bulk.read import FileRow, open_rows
from duly.core import codec
from duly.core.errors import InputError, WrongState
from duly.core.results import MendReport, RejectedRow, RowInError
from duly.intake.ingest import values_of
from duly.intake.intake import Intake
from duly.intake.types import JobType
from duly.verbs import Principal

PORTION = 500
LISTED = 100  # rejected rows that are listed one by one


class _Place(Struct, frozen=True):
    """What a corrected row must match."""

    chosen: JobType
    mapping: Columns
    options: dict[str, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.options.get("columns", ()))


def refused(intake: Intake, who: Principal, job_id: int, number: int) -> RowInError:
    """The row of this number as it came; WrongState if it is not in error."""
    place = _place(intake, who, job_id)
    known = _readable(_came(intake, who, job_id, number), place.options)
    return RowInError(number, tuple(dict.fromkeys((*place.columns, *known))), known)


def mend_row(
    intake: Intake, who: Principal, job_id: int, number: int, values: Mapping[str, Any], connection: Any = None
) -> None:
    """Try this row again with other values; columns that are not named keep their values.

    InputError when it is still bad, and WrongState when it is not in error.
    """
    place = _place(intake, who, job_id)
    came = _came(intake, who, job_id, number)
    if place.options.get("kind") != "jsonl" and (unknown := sorted(values.keys() - set(place.columns))):
        raise InputError("values", f"the file of this job has no column {unknown[0]!r:.50}")
    made = _remade(intake, FileRow(number, 0, dict(values)), came, place)
    if not intake.verbs.jobs.mend(who, job_id, {number: made}, connection):
        raise WrongState(f"row {number} of job {job_id} is not in error any more")


def _came(intake: Intake, who: Principal, job_id: int, number: int) -> dict[str, Any]:
    came = intake.verbs.jobs.inputs_in_error(who, job_id, [number])
    if number not in came:
        raise WrongState(f"row {number} of job {job_id} is not in error")
    return came[number]


def _place(intake: Intake, who: Principal, job_id: int) -> _Place:
    job = intake.verbs.jobs.get(who, job_id)
    if not intake.knows(job.job_type):
        raise InputError("file", f"job {job_id} was not made from a file of a job type that is registered here")
    options = codec.decode(job.options)
    return _Place(intake.type_named(str(job.job_type)), options.get("mapping", {}), options)


def mend(intake: Intake, who: Principal, job_id: int, file: BinaryIO, name: str) -> MendReport:
    """Try the rows of this file in place of the rows in error that have the same numbers."""
    place = _place(intake, who, job_id)
    rows = mended = refused = 0
    refusals: list[RejectedRow] = []
    with open_rows(file, name) as reading:
        if NUMBER not in reading.shape.columns:
            raise InputError("file", f"has no column {NUMBER!r}, which identifies the rows; download the rejects first")
        is_guarded = reading.shape.kind == "csv"
        walk = iter(reading)
        while portion := list(islice(walk, PORTION)):
            numbers = [number for row in portion if (number := _number(row)) is not None]
            came = intake.verbs.jobs.inputs_in_error(who, job_id, numbers)
            good: dict[int, tuple[bytes, bytes]] = {}
            lines: dict[int, int] = {}
            bad: list[RejectedRow] = []
            for row in portion:
                try:
                    if (number := _number(row)) is None:
                        given = str(row.values.get(NUMBER, ""))
                        raise InputError(NUMBER, f"{given!r:.50} is not the number of a row")
                    corrected = FileRow(row.number, row.line, _values(row, is_guarded), row.fault)
                    made = _remade(intake, corrected, came.get(number, {}), place)
                except InputError as error:
                    bad.append(RejectedRow(row.line, error.problem))
                else:
                    good[number], lines[number] = made, row.line
            taken = intake.verbs.jobs.mend(who, job_id, good) if good else []
            left = good.keys() - set(taken)
            bad += [RejectedRow(lines[each], f"row {each} of the job is not in error") for each in sorted(left)]
            rows, mended, refused = rows + len(portion), mended + len(taken), refused + len(portion) - len(taken)
            refusals += bad[: LISTED - len(refusals)]
    return MendReport(rows, mended, refused, tuple(refusals))


def _number(row: FileRow) -> int | None:
    """The number of a row in its job, as given in the file."""
    given = str(row.values.get(NUMBER, "")).removesuffix(".0")
    return int(given) if given.isdecimal() and len(given) <= 15 else None


def _values(row: FileRow, is_guarded: bool) -> dict[str, Any]:
    return {
        column: unguarded(value) if is_guarded and isinstance(value, str) else value
        for column, value in row.values.items()
        if column not in (NUMBER, ERROR)
    }


def _readable(came: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What came in without that under which ingestion keeps the rest of a row that could not be taken apart.

    The rest has names that are no columns. Rows of JSON may have fields of their own, which the first rows lack.
    """
    columns = options.get("columns", ())
    if options.get("kind") == "jsonl" and came.keys() != {"text"}:
        return dict(came)
    return {name: value for name, value in came.items() if name in columns}


def _remade(intake: Intake, given: FileRow, came: Mapping[str, Any], place: _Place) -> tuple[bytes, bytes]:
    """The arguments of a row and what came, with the corrected values; InputError when it is still bad.

    What is masked stays as it came, and so does what is not given.
    """
    known = _readable(came, place.options)
    values = {**known, **intake.verbs.context.masks.unmasked(given.values, known)}
    args, problems = values_of(FileRow(given.number, given.line, values, given.fault), place.mapping, place.chosen)
    if problems:
        raise InputError("row", problems)
    return place.chosen.task.checked_args(args), codec.encode(values)
