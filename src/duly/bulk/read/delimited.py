"""Delimited text: CSV and its relatives, as programs and people really write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from duly.bulk.read.dialect import delimiter_of, quoting_of, sample_of
from duly.bulk.read.headers import find_top
from duly.bulk.read.records import START, Position, Records
from duly.bulk.read.rows import PEEK, BadRow, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.text import lines_of
from duly.core.errors import InputError

MOST_BLANK = 10_000  # rows at the start that are looked through for the first ones with something in them
_SEP = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # Excel's own first line


class Delimited(Reading):
    def __init__(self, file: BinaryIO, limits: ReadLimits, options: ReadOptions) -> None:
        self._lines = lines_of(file, options.encoding, limits)
        sample = sample_of(self._lines, limits)
        declared = _SEP.fullmatch(sample[0]) if sample else None
        delimiter = options.delimiter or (declared[1] if declared else delimiter_of(sample))
        if len(delimiter) != 1 or delimiter in '"\r\n\\':
            raise InputError(
                "delimiter", f"must be one character, and neither a quote nor a line end: {delimiter!r:.20}"
            )
        self._records = Records(self._lines, delimiter, *quoting_of(sample, delimiter), limits)
        first, places = self._first_rows(declared is not None, options.header, limits.columns)
        top = find_top(first, options.header, limits)
        encoding = "utf-8" if self._lines.encoding == "ascii" else self._lines.encoding
        self.shape = Shape(
            kind="csv", columns=top.columns, has_header=top.has_header, encoding=encoding, delimiter=delimiter
        )
        self._records.go_to(places[top.rows])

    def __iter__(self) -> Iterator[FileRow]:
        records, number = self._records, 0
        names, width = self.shape.columns, len(self.shape.columns)
        while True:
            try:
                cells = records.take()
                if cells is None:
                    return
                if len(cells) != width:
                    cells = _fitted(cells, width)
            except BadRow as bad:
                number += 1
                yield FileRow(number, records.first, {}, bad.reason, bad.text)
            except _Ragged as ragged:
                number += 1
                yield FileRow(number, records.first, ragged.values(names), str(ragged))
            else:
                if not any(cells):
                    continue
                number += 1
                yield FileRow(number, records.first, dict(zip(names, cells, strict=True)))

    def _first_rows(self, has_sep: bool, header: bool | None, columns: int) -> tuple[list[list[str]], list[Position]]:
        """The first rows, without blank ones and what cannot be read, and the places before, between and after them."""
        records = self._records
        records.go_to(START)
        if has_sep:
            records.take()
        found: list[list[str]] = []
        places = [records.position]
        for _ in range(MOST_BLANK):
            if len(found) == PEEK:
                break
            try:
                cells = records.take()
            except BadRow as bad:
                if not found and header is not False:
                    raise InputError("file", f"line {records.first}, the first row: {bad.reason}") from None
                continue
            if cells is None:
                break
            # One wide row further down is a fault of its own, and must not be kept twenty times over.
            if any(cells) and (not found or len(cells) <= columns):
                found.append(_trimmed(cells))
                places.append(records.position)
        return found, places


class _Ragged(Exception):
    """A row with more cells than there are columns, and something in them."""

    def __init__(self, cells: list[str], width: int) -> None:
        super().__init__(f"has {len(cells):,} cells where there are {width:,} columns")
        self._cells = cells

    def values(self, names: tuple[str, ...]) -> dict[str, str]:
        """The values by column. Surplus cells get names of their own, as far as that helps to correct the row."""
        shown = self._cells[: len(names) + 20]
        return dict(zip((*names, *(f"column {n + 1}" for n in range(len(names), len(shown)))), shown, strict=True))


def _trimmed(cells: list[str]) -> list[str]:
    """Without the empty cells at the end, which spreadsheets like to add."""
    width = len(cells)
    while width and not cells[width - 1]:
        width -= 1
    return cells[:width]


def _fitted(cells: list[str], width: int) -> list[str]:
    """As many cells as there are columns: missing ones are empty, surplus ones must be."""
    if len(cells) <= width:
        return cells + [""] * (width - len(cells))
    if any(cells[width:]):
        raise _Ragged(cells, width)
    return cells[:width]
