"""Detects whether the first row is a header, and names the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from duly.bulk.read.rows import ReadLimits
from duly.core.errors import InputError

LONGEST = 200  # characters of a column's name
# What stands in rows and hardly ever in a header: numbers, prices, dates, addresses of pages and of people.
_DATUM = re.compile(
    r"[-+]?[\d.,'\s]*\d[\d.,'\s]*%?|[$€£¥]\s*[\d.,]+|[\d.,]+\s*[$€£¥]|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*"
    r"|https?://.*|[^@\s]+@[^@\s]+\.[^@\s]+|true|false",
    re.IGNORECASE,
)


class Top(NamedTuple):
    """The top of a table: the names of its columns, and how many rows stand above its first row."""

    columns: tuple[str, ...]
    has_header: bool
    rows: int  # the header, and titles and the like, which belong to nothing


def find_top(rows: Sequence[Sequence[Any]], wanted: bool | None, limits: ReadLimits) -> Top:
    """The top of the table that begins with these rows. `wanted` is what the sender declared about a header."""
    if not rows:
        raise InputError("file", "has no rows")
    above = 0 if wanted is False else _titles(rows)
    has_header = looks_like_header(rows[above], rows[above + 1 :]) if wanted is None else wanted
    if not has_header:
        above = 0  # without a header below it, it is a row like the others that has only one value
    width = len(rows[above]) if has_header else max(map(len, rows))
    if width > limits.columns:
        raise InputError("file", f"has {width:,} columns; {limits.columns:,} is the limit")
    return Top(unique(rows[above] if has_header else [None] * width), has_header, above + has_header)


def _titles(rows: Sequence[Sequence[Any]]) -> int:
    """How many rows at the start have a single value, where others have three or more."""
    filled = [sum(cell not in (None, "") for cell in row) for row in rows]
    return next(number for number, count in enumerate(filled) if count > 1) if max(filled) > 2 else 0


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row is a header: words, no data, and no word repeated in its column, unless all are."""
    others = [other for other in others if list(other) != list(first)]
    for place, cell in enumerate(first):
        if cell is None or cell == "":
            continue
        if not isinstance(cell, str) or len(cell) > LONGEST or _DATUM.fullmatch(cell.strip()):
            return False
        if any(place < len(other) and other[place] == cell for other in others):
            return False
    return True


def unique(cells: Sequence[Any]) -> tuple[str, ...]:
    """A name for each column: no two are alike, none is empty."""
    names: dict[str, None] = {}
    for number, cell in enumerate(cells, 1):
        base = " ".join(str("" if cell is None else cell).replace("\0", "").split())[:LONGEST] or f"column {number}"
        name, again = base, 2
        while name in names:
            name, again = f"{base} ({again})", again + 1
        names[name] = None
    return tuple(names)
