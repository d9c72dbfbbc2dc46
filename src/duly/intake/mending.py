"""Rows in error that somebody mended: a file of them comes back, and joins its job row by row."""

from __future__ import annotations

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
        walk = iter(reading)
        while portion := list(islice(walk, PORTION)):
            good: dict[int, tuple[bytes, bytes]] = {}
            lines: dict[int, int] = {}
            bad: list[Refusal] = []
            for row in portion:
                try:
                    number, made = _made(row, mapping, chosen, is_guarded)
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


def _made(row: Row, mapping: Columns, chosen: JobType, is_guarded: bool) -> tuple[int, tuple[bytes, bytes]]:
    """The number of a row, its arguments, and what came; InputError when it is still bad."""
    values: dict[str, Any] = {
        column: unguarded(value) if is_guarded and isinstance(value, str) else value
        for column, value in row.values.items()
        if column not in (NUMBER, ERROR)
    }
    said = str(row.values.get(NUMBER, "")).removesuffix(".0")
    if not said.isdecimal() or len(said) > 15:
        raise InputError(NUMBER, f"{said!r:.50} is not the number of a row")
    args, problems = values_of(Row(row.number, row.line, values, row.fault), mapping, chosen)
    if problems:
        raise InputError("row", problems)
    return int(said), (chosen.task.checked_args(args), codec.encode(values))
