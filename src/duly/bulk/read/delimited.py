"""Delimited text: CSV and its relatives, as programs and people really write it.

A line without a quote is split where the delimiter stands; only the others go through the csv module, which is told to
be strict: a quote in the wrong place is a fault of that row instead of a cell that swallows its neighbours. When a
quote is opened and never closed, only its first line is taken for bad, and the lines after it are read anew.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import BinaryIO

from duly.bulk.read.headers import find_top
from duly.bulk.read.rows import PEEK, BadRow, Closing, Limits, Options, Place, Row, Shape
from duly.bulk.read.text import Line, Lines, lines_of
from duly.errors import InputError

DELIMITERS = (",", ";", "\t", "|")
MOST_BLANK = 10_000  # rows at the start that are looked through for the first ones with something in them
_SEP = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # Excel's own first line
_ESCAPED = re.compile(r'\\"(?![,;\t|\r\n]|$)')
_DOUBLED = re.compile(r'[^,;\t|\r\n]""|""[^,;\t|\r\n]')


class Delimited(Closing):
    def __init__(self, file: BinaryIO, limits: Limits, options: Options, start: Place) -> None:
        self._lines = lines_of(file, options.encoding, limits)
        sample = _sample(self._lines, limits)
        said = _SEP.fullmatch(sample[0]) if sample else None
        delimiter = options.delimiter or (said[1] if said else delimiter_of(sample))
        if len(delimiter) != 1 or delimiter in '"\r\n\\':
            raise InputError(
                "delimiter", f"must be one character, and neither a quote nor a line end: {delimiter!r:.20}"
            )
        self._records = Records(self._lines, delimiter, _escape_of(sample), limits)
        first, places = self._first_rows(said is not None, options.header, limits.columns)
        top = find_top(first, options.header, limits)
        encoding = "utf-8" if self._lines.encoding == "ascii" else self._lines.encoding
        self.shape = Shape(
            kind="csv", columns=top.columns, has_header=top.has_header, encoding=encoding, delimiter=delimiter
        )
        self._records.go_to(start if start.number else places[top.rows])
        self._number = start.number

    @property
    def place(self) -> Place:
        return self._records.place(self._number)

    def __iter__(self) -> Iterator[Row]:
        records, number = self._records, self._number
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
                row = Row(number, records.first, {}, bad.reason, bad.text)
            except _Ragged as ragged:
                number += 1
                row = Row(number, records.first, ragged.values(names), str(ragged))
            else:
                if not any(cells):
                    continue
                number += 1
                row = Row(number, records.first, dict(zip(names, cells, strict=True)))
            self._number = number
            yield row

    def _first_rows(self, has_sep: bool, header: bool | None, columns: int) -> tuple[list[list[str]], list[Place]]:
        """The first rows, without blank ones and what cannot be read, and the places before, between and after them."""
        records = self._records
        records.go_to(Place())
        if has_sep:
            records.take()
        found: list[list[str]] = []
        places = [records.place(0)]
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
                places.append(records.place(0))
        return found, places


class Records:
    """Rows as lists of cells, with where they are. `take` gives the next one, None at the end, or raises BadRow."""

    def __init__(self, lines: Lines, delimiter: str, escape: str | None, limits: Limits) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._escape = escape
        self._limits = limits
        # Reads from this object, which hands out the lines of one row.
        self._reader = csv.reader(_Feed(self), delimiter=delimiter, escapechar=escape, strict=True)
        self._returned: deque[Line] = deque()
        self.go_to(Place())

    def go_to(self, place: Place) -> None:
        self._lines.go_to(place.offset, place.line)
        self._returned.clear()
        self.first = self.line = place.line
        self.offset, self.mended = place.offset, place.mended

    def place(self, number: int) -> Place:
        return Place(number, self.line, self.offset, self.mended)

    def take(self) -> list[str] | None:
        line = self._next_line()
        if line is None:
            return None
        self.first = line.number
        text = line.text
        if line.fault:
            self.line, self.offset = line.number, line.end
            raise BadRow(line.fault, text)
        if '"' not in text and (self._escape is None or self._escape not in text):
            self.line, self.offset = line.number, line.end
            return text.rstrip("\r\n").split(self._delimiter)
        return self._parsed(line)

    def _parsed(self, line: Line) -> list[str]:
        self._held, self._size = [line], len(line.text)
        self._is_begun = False
        try:
            cells = next(self._reader)
        except (csv.Error, BadRow) as error:
            reason = error.reason if isinstance(error, BadRow) else _reason(str(error))
            if len(self._held) > 1 and self.mended < self._limits.mended_rows:
                self.mended += 1
                self._returned.extendleft(reversed(self._held[1:]))
                del self._held[1:]
            raise BadRow(reason, "".join(line.text for line in self._held[:10])) from None
        finally:
            self.line, self.offset = self._held[-1].number, self._held[-1].end
        return cells

    def feed(self) -> str:
        """The next line of the row that is being parsed."""
        if not self._is_begun:
            self._is_begun = True
            return self._held[0].text
        line = self._next_line()
        if line is None:
            raise StopIteration
        self._held.append(line)
        self._size += len(line.text)
        if line.fault:
            raise BadRow("a quoted cell is opened and not closed before a line that cannot be read")
        if self._size > self._limits.row_bytes or len(self._held) > self._limits.row_lines:
            raise BadRow("a quoted cell is opened and not closed for very long")
        return line.text

    def _next_line(self) -> Line | None:
        return self._returned.popleft() if self._returned else self._lines.take()


class _Feed:
    """An iterator over the lines of one row, which csv asks for as many as the row needs."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return self._records.feed()


class _Ragged(Exception):
    """A row with more cells than there are columns, and something in them."""

    def __init__(self, cells: list[str], width: int) -> None:
        super().__init__(f"has {len(cells):,} cells where there are {width:,} columns")
        self._cells = cells

    def values(self, names: tuple[str, ...]) -> dict[str, str]:
        """What there is, the surplus under names of its own, as far as that is of use to who mends it."""
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


def _sample(lines: Lines, limits: Limits) -> list[str]:
    """Whole lines at the start, by which the delimiter is found."""
    found: list[str] = []
    size = 0
    while len(found) < 100 and size < limits.sample_bytes:
        line = lines.take()
        if line is None:
            break
        size += len(line.text)
        if line.fault is None:
            found.append(line.text)
    return found


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


def _escape_of(lines: list[str]) -> str | None:
    """A backslash, where quotes inside quotes are written with one instead of being doubled."""
    text = "".join(lines)
    return "\\" if _ESCAPED.search(text) and not _DOUBLED.search(text) else None


def _reason(problem: str) -> str:
    if "unexpected end of data" in problem:
        return "a quoted cell is opened and never closed"
    if "expected after" in problem:
        return "a quote stands inside a quoted cell; it must be doubled"
    if "field limit" in problem:
        return f"a quoted cell has more than {csv.field_size_limit():,} characters"
    if "new-line character" in problem:
        return "a carriage return stands in the middle of the row"
    return problem
