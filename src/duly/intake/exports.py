"""Exports rows: a whole job as the grid shows it, the rows in error, and the differences from a file.

Everything flows from the database to the file a portion at a time. Nothing is computed again, and what is masked for
people is masked here too, so an export says cell by cell what the grid says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any, BinaryIO

from msgspec import Struct

from duly.bulk.export import MEDIA as MEDIA
from duly.bulk.export import Column, canonical, cells, mendable, stream, unguarded
from duly.bulk.mapping import text_of
from duly.bulk.read import ReadOptions, open_rows
from duly.core import codec
from duly.core.shown import ExportRow
from duly.verbs import Principal, Verbs

# A whole number, as some formats write it.
_WHOLE = re.compile(r"-?\d{1,15}\.0")


class Difference(Struct, frozen=True):
    """A cell that is not the same here and there; no column: a row that only one of them has."""

    row: int
    column: str | None
    ours: str
    theirs: str


class Exports:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def whole(self, who: Principal, job_id: int, format: str) -> Iterator[bytes]:
        """All rows of a job, in the order of its file."""
        results = self._verbs.job_rows.result_names(who, job_id) or ["result"]
        columns = canonical(self._inputs(who, job_id), results)
        return _streamed(format, columns, self._records(self._verbs.job_rows.each(who, job_id)))

    def rejects(self, who: Principal, job_id: int, format: str) -> Iterator[bytes]:
        """The rows in error with their columns as they came, the number that identifies each, and the error."""
        columns = mendable(self._inputs(who, job_id))
        failed = (row for row in self._verbs.job_rows.each(who, job_id) if row.status == "ERROR")
        return _streamed(format, columns, self._records(failed))

    def _inputs(self, who: Principal, job_id: int) -> list[str]:
        """The columns of its file; of a job that came without one, the arguments of its rows, as the first has them."""
        options = codec.decode(self._verbs.jobs.get(who, job_id).options)
        if "columns" in options:
            return list(options["columns"])
        first = [name for row in islice(self._verbs.job_rows.each(who, job_id), 1) for name in row.args]
        return list(dict.fromkeys((*first, *self._verbs.job_rows.argument_names(who, job_id))))

    def _records(self, rows: Iterable[ExportRow]) -> Iterator[dict[str, Any]]:
        masks = self._verbs.context.masks
        for row in rows:
            result = row.result if isinstance(row.result, Mapping) else {"result": row.result}
            yield {
                "row": row.row_no,
                "status": row.status,
                "input": masks.masked(row.args if row.input is None else row.input),
                "result": masks.masked(result),
                "attempts": row.attempt,
                "error": row.last_error,
            }


def _streamed(format: str, columns: tuple[Column, ...], records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    headers = [column.header for column in columns]
    return stream(format, headers, (cells(record, columns) for record in records))


def exported_differences(export: BinaryIO, file: BinaryIO, name: str) -> Iterator[Difference]:
    """Differences between the rows of a job, exported as CSV, and a file, in the columns that both have.

    Rows are compared in their order.
    """
    options = ReadOptions(kind="csv", header=True, encoding="utf-8-sig", delimiter=",")
    with open_rows(export, "export.csv", options=options) as ours, open_rows(file, name) as theirs:
        common = [header for header in ours.shape.columns if header in theirs.shape.columns]
        is_guarded = theirs.shape.kind == "csv"
        for number, (mine, other) in enumerate(zip_longest(ours, theirs), 1):
            if mine is None or other is None:
                yield Difference(number, None, "" if mine is None else "is there", "" if other is None else "is there")
                continue
            for header in common:
                here, there = _text(unguarded(text_of(mine.values.get(header)))), _text(other.values.get(header))
                if here != there and not (is_guarded and here == _text(unguarded(there))):
                    yield Difference(number, header, here, there)


def _text(value: Any) -> str:
    """The text of a cell, independent of the format."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return codec.encode(value).decode()
    text = text_of(value)
    return text[:-2] if _WHOLE.fullmatch(text) else text
