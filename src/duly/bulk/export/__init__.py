"""Rows out to a file: CSV and XLSX, written as they come, in constant memory.

    columns = canonical(inputs, results)
    with open_export("xlsx", out, [column.header for column in columns]) as export:
        for record in records:
            export.write(cells(record, columns))

`out` needs only `write`: it may be a socket. The same rows give the same bytes. `stream` returns an iterator of
portions instead. No program takes a cell for a formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from duly.bulk.export.delimited import DelimitedExport
from duly.bulk.export.headers import ERROR, NUMBER, Column, canonical, cells, mendable
from duly.bulk.export.out import Export, Out
from duly.bulk.export.safe import unguarded
from duly.bulk.export.xlsx import SheetLimits, WorkbookExport
from duly.core.errors import InputError

__all__ = [
    "ERROR",
    "NUMBER",
    "Column",
    "Export",
    "Format",
    "SheetLimits",
    "canonical",
    "cells",
    "media_type",
    "mendable",
    "open_export",
    "stream",
    "unguarded",
]

Format = Literal["csv", "xlsx"]
MEDIA: dict[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
PORTION = 64 * 1024


def open_export(format: str, out: Out, headers: Sequence[str], limits: SheetLimits | None = None) -> Export:
    """Begin to write a file of this format, with these headers on top; close it to have it whole."""
    match format:
        case "csv":
            return DelimitedExport(out, headers)
        case "xlsx":
            return WorkbookExport(out, headers, limits or SheetLimits())
        case _:
            raise InputError("format", f"{format!r:.20} is not known; use csv or xlsx")


def stream(
    format: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], limits: SheetLimits | None = None
) -> Iterator[bytes]:
    """The same as portions of bytes, made while they are asked for."""
    basket = _Basket()
    export = open_export(format, basket, headers, limits)
    for row in rows:
        export.write(row)
        if basket.size >= PORTION:
            yield basket.emptied()
    export.close()
    yield basket.emptied()


def media_type(format: str) -> str:
    return MEDIA[format]


class _Basket:
    """Where a writer puts its bytes until they are taken."""

    def __init__(self) -> None:
        self._portions: list[bytes] = []
        self.size = 0

    def write(self, data: bytes, /) -> int:
        self._portions.append(bytes(data))
        self.size += len(data)
        return len(data)

    def emptied(self) -> bytes:
        whole = b"".join(self._portions)
        self._portions.clear()
        self.size = 0
        return whole
