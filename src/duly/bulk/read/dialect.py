"""How a delimited text is written: found out from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter

from duly.bulk.read.rows import ReadLimits
from duly.bulk.read.text import TextLines

DELIMITERS = (",", ";", "\t", "|")
_ESCAPED = re.compile(r'\\"(?![,;\t|\r\n]|$)')
_DOUBLED = re.compile(r'[^,;\t|\r\n]""|""[^,;\t|\r\n]')


def sample_of(lines: TextLines, limits: ReadLimits) -> list[str]:
    """Whole lines from the start, to detect the delimiter."""
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


def quoting_of(lines: list[str], delimiter: str) -> tuple[str | None, bool]:
    """A backslash, where quotes inside quotes are written with one instead of being doubled; and whether blanks stand
    between a delimiter and a quote, as in `1, "a, b"`.
    """
    text = "".join(lines)
    escape = "\\" if _ESCAPED.search(text) and not _DOUBLED.search(text) else None
    return escape, bool(re.search(rf'{re.escape(delimiter)} +"', text))
