"""Whether the first row says the names of the columns, and what the columns are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from duly.bulk.read.rows import Limits
from duly.errors import InputError

LONGEST = 200  # characters of a column's name
# What stands in rows and hardly ever in a header: numbers, prices, dates, addresses of pages and of people.
_DATUM = re.compile(
    r"[-+]?[\d.,'\s]*\d[\d.,'\s]*%?|[$€£¥]\s*[\d.,]+|[\d.,]+\s*[$€£¥]|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*"
    r"|https?://.*|[^@\s]+@[^@\s]+\.[^@\s]+|true|false",
    re.IGNORECASE,
)


def columns(rows: Sequence[Sequence[Any]], wanted: bool | None, limits: Limits) -> tuple[tuple[str, ...], bool]:
    """The names of the columns and whether the first of these rows says them. `wanted` is what the sender says."""
    if not rows:
        raise InputError("file", "has no rows")
    has_header = looks_like_header(rows[0], rows[1:]) if wanted is None else wanted
    width = len(rows[0]) if has_header else max(map(len, rows))
    if width > limits.columns:
        raise InputError("file", f"has {width:,} columns; {limits.columns:,} is the limit")
    return unique(rows[0] if has_header else [None] * width), has_header


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """A header has words, no data, and none of its words comes again in the same column, but where all of them do."""
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
        said = " ".join(str("" if cell is None else cell).replace("\0", "").split())[:LONGEST] or f"column {number}"
        name, again = said, 2
        while name in names:
            name, again = f"{said} ({again})", again + 1
        names[name] = None
    return tuple(names)
