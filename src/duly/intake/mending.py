"""Rows in error that somebody mended: a file of them comes back, and joins its job row by row."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, BinaryIO

from msgspec import Struct

from duly.bulk.export import ERROR, NUMBER, unguarded
from duly.bulk.mapping import Mapping as Columns
from duly.bulk.read import Row, open_rows
from duly.core import codec
from duly.core.errors import InputError
from duly.intake.ingest import values_of
from duly.intake.intake import Intake
from duly.intake.types import JobType
from duly.verbs import Principal

PORTION = 500
TOLD = 100  # rows that are told of one by one


class Refusal(Struct, frozen=True):
    line: int
    reason: str


class Mended(Struct, frozen=True):
    """What became of the rows of a file that came back."""

    rows: int
    mended: int
    refused: int  # still bad, or no rows in error of this job
    refusals: tuple[Refusal, ...]  # the first of them


def mend(intake: Intake, who: Principal, job_id: int, file: BinaryIO, name: str) -> Mended:
    """Have the rows of this file tried in place of those of the job that have the same numbers and are in error."""
    job = intake.verbs.jobs.get(who, job_id)
    if not intake.knows(job.job_type):
        raise InputError("file", f"job {job_id} did not come from a file of a type that is known here")
    chosen, options = intake.type_named(str(job.job_type)), codec.decode(job.options)
    mapping = Columns(options.get("mapping", {}))
    rows = mended = refused = 0
    refusals: list[Refusal] = []
    with open_rows(file, name) as reading:
        if NUMBER not in reading.shape.columns:
            raise InputError("file", f"has no column {NUMBER!r}, by which rows are known again; download the rejects")
        is_guarded = reading.shape.kind == "csv"
        masks = intake.verbs.ground.masks
        walk = iter(reading)
        while portion := list(islice(walk, PORTION)):
            numbers = [number for row in portion if (number := _number(row)) is not None]
            came = intake.verbs.jobs.inputs_in_error(who, job_id, numbers)
            good: dict[int, tuple[bytes, bytes]] = {}
            lines: dict[int, int] = {}
            bad: list[Refusal] = []
            for row in portion:
                try:
                    number = _told_number(row)
                    known = _readable(came.get(number, {}), options)
                    values = {**known, **masks.unmasked(_values(row, is_guarded), known)}
                    made = _made(Row(row.number, row.line, values, row.fault), mapping, chosen)
                except InputError as error:
                    bad.append(Refusal(row.line, error.problem))
                else:
                    good[number], lines[number] = made, row.line
            taken = intake.verbs.jobs.mend(who, job_id, good) if good else []
            left = good.keys() - set(taken)
            bad += [Refusal(lines[each], f"row {each} of the job is not in error") for each in sorted(left)]
            rows, mended, refused = rows + len(portion), mended + len(taken), refused + len(portion) - len(taken)
            refusals += bad[: TOLD - len(refusals)]
    return Mended(rows, mended, refused, tuple(refusals))


def _number(row: Row) -> int | None:
    """The number that a row says it has in its job."""
    said = str(row.values.get(NUMBER, "")).removesuffix(".0")
    return int(said) if said.isdecimal() and len(said) <= 15 else None


def _told_number(row: Row) -> int:
    if (number := _number(row)) is None:
        raise InputError(NUMBER, f"{str(row.values.get(NUMBER, ''))!r:.50} is not the number of a row")
    return number


def _values(row: Row, is_guarded: bool) -> dict[str, Any]:
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


def _made(row: Row, mapping: Columns, chosen: JobType) -> tuple[bytes, bytes]:
    """The arguments of a row, and what came; InputError when it is still bad."""
    args, problems = values_of(row, mapping, chosen)
    if problems:
        raise InputError("row", problems)
    return chosen.task.checked_args(args), codec.encode(row.values)
