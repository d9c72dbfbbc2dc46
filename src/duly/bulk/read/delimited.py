"""Reads delimited text: CSV and similar formats, in the variants that occur in practice.

A line without a quote is split where the delimiter stands; only the others go through the csv module, in
strict mode: a quote in the wrong place is a fault of that row instead of a cell that swallows its neighbours. When a
quote is opened and never closed, only its first line is bad, and the lines after it are read again.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import BinaryIO

from duly.bulk.read.headers import find_top
from duly.bulk.read.rows import PEEK, BadRow, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.text import TextLine, TextLines, lines_of
from duly.core.errors import InputError

MOST_BLANK = 10_000  # rows at the start that are looked through for the first ones with something in them
MOST_HELD = 500  # rows at the start that are kept meanwhile, however many of them are bad
_SEP = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # Excel's own first line
DELIMITERS = (",", ";", "\t", "|")
_ESCAPED = re.compile(r'\\"(?![,;\t|\r\n]|$)')
_DOUBLED = re.compile(r'[^,;\t|\r\n]""|""[^,;\t|\r\n]')


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


def sample_of(lines: TextLines, limits: ReadLimits) -> list[str]:
    """Whole lines from the start, to detect the delimiter. They are put back."""
    found: list[TextLine] = []
    size = 0
    while len(found) < 100 and size < limits.sample_bytes and (line := lines.take()) is not None:
        size += len(line.text)
        found.append(line)
    lines.put_back(found)
    return [line.text for line in found if line.fault is None]


def delimiter_of(lines: list[str]) -> str:
    """The delimiter that cuts most of these lines into the same number of cells; a comma if none cuts any."""

    def fit(delimiter: str) -> tuple[float, int]:
        try:
            widths = [len(cells) for cells in csv.reader(lines, delimiter=delimiter) if cells]
        except csv.Error:
            return 0.0, 0
        width, count = max(Counter(widths).items(), key=lambda item: (item[0] > 1, item[1]), default=(0, 0))
        return (round(count / len(widths), 1), width) if width > 1 else (0.0, 0)

    return max(DELIMITERS, key=fit)


def quoting_of(lines: list[str], delimiter: str) -> tuple[str | None, bool]:
    """A backslash, where quotes inside quotes are written with one instead of being doubled; and whether blanks stand
    between a delimiter and a quote, as in `1, "a, b"`.
    """
    text = "".join(lines)
    escape = "\\" if _ESCAPED.search(text) and not _DOUBLED.search(text) else None
    return escape, bool(re.search(rf'{re.escape(delimiter)} +"', text))


class Records:
    """An iterator over rows: the number of the first line of each, and its cells, or why it cannot be read."""

    def __init__(
        self, lines: TextLines, delimiter: str, escape: str | None, skips_blanks: bool, limits: ReadLimits
    ) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._escape = escape
        self._limits = limits
        self._mended = 0
        self._held: list[TextLine] = []  # lines of the row that csv parses
        self._reader = csv.reader(
            iter(self._next_text, None), delimiter=delimiter, escapechar=escape, skipinitialspace=skips_blanks,
            strict=True,
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[int, list[str] | BadRow]]:
        delimiter, escape = self._delimiter, self._escape
        while (line := self._lines.take()) is not None:
            text = line.text
            if line.fault:
                yield line.number, BadRow(line.fault, text)
            elif '"' not in text and (escape is None or escape not in text):
                yield line.number, text.rstrip("\r\n").split(delimiter)
            else:
                yield line.number, self._parsed(line)

    def _parsed(self, line: TextLine) -> list[str] | BadRow:
        self._first: str | None = line.text
        self._held, self._size = [line], len(line.text)
        try:
            return next(self._reader)
        except (csv.Error, BadRow) as error:
            reason = error.reason if isinstance(error, BadRow) else _reason(str(error))
        if len(self._held) > 1 and self._mended < self._limits.mended_rows:
            self._mended += 1
            self._lines.put_back(self._held[1:])
            del self._held[1:]
        return BadRow(reason, "".join(line.text for line in self._held[:10]))

    def _next_text(self) -> str:
        """The next line of the row, of which csv asks for as many as the row needs."""
        text, self._first = self._first, None
        if text is not None:  # nearly always: the row is one line
            return text
        line = self._lines.take()
        if line is None:
            raise BadRow("a quoted cell is opened and never closed")
        self._held.append(line)
        self._size += len(line.text)
        if line.fault:
            raise BadRow("a quoted cell is opened and not closed before a line that cannot be read")
        if self._size > self._limits.row_bytes or len(self._held) > self._limits.row_lines:
            raise BadRow("a quoted cell is opened and not closed for very long")
        return line.text


def _reason(problem: str) -> str:
    if "expected after" in problem:
        return "a quote stands inside a quoted cell; it must be doubled"
    if "field limit" in problem:
        return f"a quoted cell has more than {csv.field_size_limit():,} characters"
    if "new-line character" in problem:
        return "a carriage return stands in the middle of the row"
    return problem
