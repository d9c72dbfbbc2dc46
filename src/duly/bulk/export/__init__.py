"""Rows out to a file: CSV and XLSX, as portions of bytes that are made while they are asked for, in constant memory.

    columns = canonical(inputs, results)
    headers = [column.header for column in columns]
    for portion in stream("xlsx", headers, (cells(record, columns) for record in records)):
        ...

The same rows give the same bytes. No program takes a cell for a formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from duly.bulk.export.delimited import delimited, unguarded
from duly.bulk.export.headers import ERROR, NUMBER, Column, canonical, cells, mendable
from duly.bulk.export.xlsx import SheetLimits, workbook
from duly.core.errors import InputError

__all__ = [
    "ERROR", "MEDIA", "NUMBER", "Column", "SheetLimits", "canonical", "cells", "mendable", "stream", "unguarded",
]  # fmt: skip

MEDIA: dict[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def stream(
    format: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], limits: SheetLimits | None = None
) -> Iterator[bytes]:
    """A file of this format with these headers on top, in portions. Each row has a value for each header."""
    match format:
        case "csv":
            return delimited(headers, rows)
        case "xlsx":
            return workbook(headers, rows, limits or SheetLimits())
        case _:
            raise InputError("format", f"{format!r:.20} is not known; use csv or xlsx")
