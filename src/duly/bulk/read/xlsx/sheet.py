"""The rows of one sheet, as they come out of its XML.

Only cells that are there cost anything: the range that a sheet declares is not looked at, and rows and columns that
it leaves out are not made up. Of a formula, the value that was stored with it is read; nothing is computed.

A date is a number of days whose style has a format with day, month, year, hour or second in it. The first system
counts from 1900 and believes that year had a 29 February; the other counts from 1904.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import IO, Any

from msgspec import Struct

from duly.bulk.read.rows import BadRow, ReadLimits
from duly.bulk.read.xlsx.markup import Attributes, tags, walk
from duly.bulk.read.xlsx.texts import Texts

COLUMNS = 16_384  # that a sheet of Excel has
EXACT = 2**53  # whole numbers up to here are themselves in a spreadsheet
BEYOND = 1_000_000
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
MOST_STYLES = 65_536  # styles; Excel itself allows fewer
BUILT_IN = frozenset((*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)))
LAST_DAY = 2_958_465  # 31 December 9999
# Quoted text, escaped characters, colours and conditions of a format; [h] and the like are lengths of time, no dates.
_ASIDE = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_DATE = re.compile(r"[dmyhs]", re.IGNORECASE)
_LENGTH = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)


class Cells(Struct, frozen=True):
    """A row of a sheet: its number, its values by column (from 0), and why it cannot be taken."""

    line: int
    values: dict[int, Any]
    fault: str | None = None


class Notes(Struct, frozen=True):
    """What the rest of the workbook defines for the cells of a sheet."""

    texts: Texts
    date_styles: frozenset[int]
    since_1904: bool


def read_cells(part: str, stream: IO[bytes], notes: Notes, limits: ReadLimits) -> Iterator[Cells]:
    """The rows that have any value, from the top. InputError where the part is broken or contrived."""
    sheet = _Sheet(notes, limits)
    for _ in walk(part, stream, sheet.started, sheet.ended, sheet.text):
        yield from sheet.ready
        sheet.ready.clear()


class _Sheet:
    def __init__(self, notes: Notes, limits: ReadLimits) -> None:
        self._notes = notes
        self._limits = limits
        self.ready: list[Cells] = []
        self._line = 0
        self._begin_row()
        self._begin_cell([])

    def _begin_row(self) -> None:
        self._values: dict[int, Any] = {}
        self._fault: str | None = None
        self._size = 0
        self._column = -1

    def _begin_cell(self, attributes: Attributes) -> None:
        self._type = self._style = ""
        self._has_formula = self._is_text = self._is_aid = False
        self._runs: list[str] = []
        column = self._column + 1
        pairs = iter(attributes)
        for name, value in zip(pairs, pairs, strict=True):
            if name == "r":
                column = _column(value.rstrip("0123456789"))
            elif name == "t":
                self._type = value
            elif name == "s":
                self._style = value
        self._column = column

    def started(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            self._begin_cell(attributes)
        elif name in ("v", "t"):
            self._is_text = not self._is_aid
        elif name == "row":
            self._line = _line(attributes) or self._line + 1
            self._begin_row()
        elif name == "f":
            self._has_formula = True
        elif name == "rPh":
            self._is_aid = True

    def ended(self, name: str) -> None:
        if name == "c":
            self._end_cell()
        elif name in ("v", "t"):
            self._is_text = False
        elif name == "row":
            if self._values or self._fault:
                self.ready.append(Cells(self._line, self._values, self._fault))
        elif name == "rPh":
            self._is_aid = False

    def text(self, data: str) -> None:
        if self._is_text and self._is_within(len(data)):
            self._runs.append(data)

    def _end_cell(self) -> None:
        raw = "".join(self._runs)
        if self._fault or not (raw or self._has_formula):
            return
        try:
            if not raw and self._type != "str":
                raise BadRow("is a formula without a stored value; open the file in a spreadsheet program and save it")
            value = self._value(raw)
        except BadRow as bad:
            self._fault = f"cell {letters(self._column)}{self._line} {bad.reason}"
            return
        if value is None or value == "":
            return
        if self._column >= self._limits.columns:
            self._fault = (
                f"has a value in column {letters(self._column)}; {self._limits.columns:,} columns is the limit"
            )
            return
        self._values[self._column] = value

    def _value(self, raw: str) -> Any:
        match self._type:
            case "s":
                return self._clean(self._shared(raw))
            case "inlineStr" | "str":
                return self._clean(raw)
            case "b":
                return raw.strip() == "1"
            case "e" | "d":
                return raw
            case _:
                return self._number(raw)

    def _shared(self, raw: str) -> str:
        number = int(raw) if raw.isdecimal() and len(raw) < 12 else -1
        if not 0 <= number < len(self._notes.texts):
            raise BadRow("points to a text that is not there")
        text = self._notes.texts[number]
        return text if self._is_within(len(text)) else ""

    def _clean(self, text: str) -> str:
        if "_x" in text:
            text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
            # Half characters can be written by escapes only; two halves that belong together become one.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "\0" in text:
            raise BadRow("holds a NUL character")
        return text

    def _number(self, raw: str) -> Any:
        try:
            number = float(raw)
        except ValueError:
            raise BadRow("is not a number, although it says it is one") from None
        if self._style.isdecimal() and len(self._style) < 6 and int(self._style) in self._notes.date_styles:
            return moment(number, self._notes.since_1904)
        if not abs(number) < float("inf"):
            raise BadRow("is not a finite number")
        return int(number) if number == int(number) and abs(number) < EXACT else number

    def _is_within(self, more: int) -> bool:
        """Whether the row has room for this much more text; once it has not, the row is refused."""
        self._size += more
        if self._size > self._limits.row_bytes:
            self._fault = self._fault or f"the row has more than {self._limits.row_bytes:,} characters"
            return False
        return True


def _line(attributes: Attributes) -> int:
    for name, value in zip(attributes[::2], attributes[1::2], strict=True):
        if name == "r" and value.isdecimal() and len(value) < 8:
            return int(value)
    return 0


@lru_cache(COLUMNS)
def _column(name: str) -> int:
    """The number of the column that is called so, from 0; one that cannot be is beyond every limit."""
    if not 1 <= len(name) <= 3 or not (name.isascii() and name.isalpha()):
        return BEYOND
    number = 0
    for letter in name.upper():
        number = number * 26 + ord(letter) - 64
    return number - 1


def letters(column: int) -> str:
    """The name of a column, counted from 0: A, B, …, Z, AA, …"""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name


def read_date_styles(part: str, stream: IO[bytes]) -> frozenset[int]:
    """The numbers of those styles of this part that show dates."""
    formats: dict[str, str] = {}
    styles: list[str] = []
    is_cells = False
    for name, given in tags(part, stream):
        if name == "numFmt" and len(formats) < MOST_STYLES:
            formats[given.get("numFmtId", "")] = given.get("formatCode", "")[:1000]
        elif name in ("cellXfs", "cellStyleXfs"):  # styles of cells, and styles that these are made of
            is_cells = name == "cellXfs"
        elif name == "xf" and is_cells and len(styles) < MOST_STYLES:
            styles.append(given.get("numFmtId", "0"))
    return frozenset(number for number, style in enumerate(styles) if _is_date(style, formats.get(style)))


def _is_date(number: str, code: str | None) -> bool:
    if code is None:
        return number.isdecimal() and len(number) < 4 and int(number) in BUILT_IN
    first = code.partition(";")[0]
    return not _LENGTH.search(first) and bool(_DATE.search(_ASIDE.sub("", first)))


def moment(days: float, since_1904: bool) -> str | float:
    """The date, the time or both that this number of days means, in ISO's form; the number if there is no such day."""
    shift = 1462 if since_1904 else 1 if days < 60 else 0  # before day 60 stands the day that never was
    if not 0 <= days + shift < LAST_DAY + 1:
        return days
    # Milliseconds are what Excel's arithmetic leaves of a time.
    at = datetime(1899, 12, 30) + timedelta(milliseconds=round((days + shift) * 86_400_000))  # noqa: DTZ001
    if 0 <= days < 1:
        return at.time().isoformat()
    return at.date().isoformat() if days == int(days) else at.isoformat()
