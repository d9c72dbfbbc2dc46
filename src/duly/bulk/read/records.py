"""Rows of delimited text as lists of cells.

A line without a quote is split where the delimiter stands; only the others go through the csv module, in
strict mode: a quote in the wrong place is a fault of that row instead of a cell that swallows its neighbours. When a
quote is opened and never closed, only its first line is bad, and the lines after it are read again.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from duly.bulk.read.rows import BadRow, ReadLimits
from duly.bulk.read.text import TextLine, TextLines


class Position(NamedTuple):
    """How far a text has been read."""

    line: int
    offset: int
    mended: int


START = Position(0, 0, 0)


class Records:
    """Rows as lists of cells, with where they are. `take` gives the next one, None at the end, or raises BadRow."""

    def __init__(
        self, lines: TextLines, delimiter: str, escape: str | None, skips_blanks: bool, limits: ReadLimits
    ) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._escape = escape
        self._limits = limits
        # Reads from this object, which hands out the lines of one row.
        self._reader = csv.reader(
            _Feed(self), delimiter=delimiter, escapechar=escape, skipinitialspace=skips_blanks, strict=True
        )
        self._returned: deque[TextLine] = deque()
        self.go_to(START)

    def go_to(self, position: Position) -> None:
        self._lines.go_to(position.offset, position.line)
        self._returned.clear()
        self.first = self.line = position.line
        self.offset, self.mended = position.offset, position.mended

    @property
    def position(self) -> Position:
        return Position(self.line, self.offset, self.mended)

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

    def _parsed(self, line: TextLine) -> list[str]:
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

    def _next_line(self) -> TextLine | None:
        return self._returned.popleft() if self._returned else self._lines.take()


class _Feed:
    """An iterator over the lines of one row, which csv asks for as many as the row needs."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return self._records.feed()


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
