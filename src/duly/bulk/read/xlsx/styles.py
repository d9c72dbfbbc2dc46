"""Which numbers of a workbook are dates, and which dates they are.

A date is a number of days whose style has a format with day, month, year, hour or second in it. The first system
counts from 1900 and believes that year had a 29 February; the other counts from 1904.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import IO

from duly.bulk.read.xlsx.markup import tags

MOST = 65_536  # styles; Excel itself allows fewer
BUILT_IN = frozenset((*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)))
LAST_DAY = 2_958_465  # 31 December 9999
# Quoted text, escaped characters, colours and conditions of a format; [h] and the like are lengths of time, no dates.
_ASIDE = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_DATE = re.compile(r"[dmyhs]", re.IGNORECASE)
_LENGTH = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)


def read_date_styles(part: str, stream: IO[bytes]) -> frozenset[int]:
    """The numbers of those styles of this part that show dates."""
    formats: dict[str, str] = {}
    styles: list[str] = []
    is_cells = False
    for name, given in tags(part, stream):
        if name == "numFmt" and len(formats) < MOST:
            formats[given.get("numFmtId", "")] = given.get("formatCode", "")[:1000]
        elif name in ("cellXfs", "cellStyleXfs"):  # styles of cells, and styles that these are made of
            is_cells = name == "cellXfs"
        elif name == "xf" and is_cells and len(styles) < MOST:
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
