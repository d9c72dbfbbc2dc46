"""Delimited text: CSV and its relatives, as programs and people really write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import BinaryIO

from duly.bulk.read.headers import find_top
from duly.bulk.read.records import Records, delimiter_of, quoting_of, sample_of
from duly.bulk.read.rows import PEEK, BadRow, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.text import lines_of
from duly.core.errors import InputError

MOST_BLANK = 10_000  # rows at the start that are looked through for the first ones with something in them
MOST_HELD = 500  # rows at the start that are kept meanwhile, however many of them are bad
_SEP = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # Excel's own first line


class Delimited(Reading):
    def __init__(self, file: BinaryIO, limits: ReadLimits, options: ReadOptions) -> None:
        lines = lines_of(file, options.encoding, limits)
        sample = sample_of(lines, limits)
        declared = _SEP.fullmatch(sample[0]) if sample else None
        delimiter = options.delimiter or (declared[1] if declared else delimiter_of(sample))
        if len(delimiter) != 1 or delimiter in '"\r\n\\':
            raise InputError(
                "delimiter", f"must be one character, and neither a quote nor a line end: {delimiter!r:.20}"
            )
        self._records = iter(Records(lines, delimiter, *quoting_of(sample, delimiter), limits))
        if declared:
            next(self._records)
        self.shape = self._begin(options.header, limits, lines.shown_encoding, delimiter)

    def __iter__(self) -> Iterator[FileRow]:
        names, width, number = self.shape.columns, len(self.shape.columns), 0
        for line, cells in self._records:
            if isinstance(cells, BadRow):
                number += 1
                yield FileRow(number, line, {}, cells.reason, cells.text)
                continue
            if not any(cells):
                continue
            number += 1
            if len(cells) > width and any(cells[width:]):
                fault = f"has {len(cells):,} cells where there are {width:,} columns"
                yield FileRow(number, line, _named(cells, names), fault)
                continue
            if len(cells) != width:
                cells = [*cells[:width], *[""] * (width - len(cells))]
            yield FileRow(number, line, dict(zip(names, cells, strict=True)))

    def _begin(self, header: bool | None, limits: ReadLimits, encoding: str, delimiter: str) -> Shape:
        """Find the columns by the first rows, and leave the rows below the header to be read."""
        held: list[tuple[int, list[str] | BadRow]] = []
        found: list[list[str]] = []  # those of them that can be read
        ends = [0]  # of these in `held`
        for line, cells in islice(self._records, MOST_BLANK):
            if isinstance(cells, BadRow):
                if not found and header is not False:
                    raise InputError("file", f"line {line}, the first row: {cells.reason}")
                held.append((line, cells))
                if len(held) == MOST_HELD:
                    break
            elif any(cells):
                held.append((line, cells))
                # One wide row further down is a fault of its own, and is not kept twenty times over.
                if found and len(cells) > limits.columns:
                    break
                found.append(_trimmed(cells))
                ends.append(len(held))
                if len(found) == PEEK:
                    break
        top = find_top(found, header, limits)
        self._records = chain(held[ends[top.rows] :], self._records)
        return Shape(kind="csv", columns=top.columns, has_header=top.has_header, encoding=encoding, delimiter=delimiter)


def _named(cells: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """The values by column. Surplus cells get names of their own, as far as that helps to correct the row."""
    shown = cells[: len(names) + 20]
    return dict(zip((*names, *(f"column {n + 1}" for n in range(len(names), len(shown)))), shown, strict=True))


def _trimmed(cells: list[str]) -> list[str]:
    """Without the empty cells at the end, which spreadsheets like to add."""
    width = len(cells)
    while width and not cells[width - 1]:
        width -= 1
    return cells[:width]
