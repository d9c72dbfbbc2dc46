"""Many values as one parameter of PostgreSQL: arrays as literals, and rows in COPY's text format.

All values of a column go in as one text, so the same prepared statement serves any number of rows. The text is made
with methods of str on whole columns, which is faster than the driver's escaping of each value in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from duly.store.records import NEW_ITEM, NEW_ROW, RECORDS, ColumnType, Record


def ints(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def maybe_ints(values: Iterable[int | None]) -> str:
    return "{" + ",".join("null" if value is None else str(value) for value in values) + "}"


def texts(values: Iterable[str]) -> str:
    values = list(values)
    joined = '","'.join(values)
    # If there are no other quotes than those between the values, nothing has to be escaped.
    if values and joined.count('"') == 2 * (len(values) - 1) and "\\" not in joined:
        return '{"' + joined + '"}'
    return "{" + ",".join(map(_quoted, values)) + "}"


def maybe_texts(values: Iterable[str | None]) -> str:
    return "{" + ",".join(["null" if value is None else _quoted(value) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join("null" if value is None else value.isoformat() for value in values) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_ELEMENTS: dict[ColumnType, Callable[[Any], str]] = {
    int: str,
    float: repr,
    bool: str,
    datetime: datetime.isoformat,
    str: _quoted,
    bytes: lambda text: _quoted(text.decode()),
}


def arrays(name: str) -> Callable[[Sequence[Any]], dict[str, str]]:
    """Makes the parameters of the fragment `{many name}`: an array for each field of this record."""
    columns = [(f"{name}_{field}", attrgetter(field), _ELEMENTS[kind]) for field, kind in RECORDS[name].fields.items()]

    def write(records: Sequence[Any]) -> dict[str, str]:
        return {
            parameter: "{" + ",".join(["null" if value is None else turn(value) for value in map(of, records)]) + "}"
            for parameter, of, turn in columns
        }

    return write


_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
# Times that default to now.
_STAMPED = ("due_at", "changed_at")


def _copier(record: Record[Any]) -> Callable[[Sequence[Any], datetime], bytes]:
    """Makes COPY's text of some records, each behind the time that it is planned for."""
    fields = [(field, attrgetter(field), kind) for field, kind in record.fields.items()]

    def copy(chunk: Sequence[Any], now: datetime) -> bytes:
        columns = {
            field: _cells(list(map(of, chunk)), kind, now.isoformat() if field in _STAMPED else r"\N")
            for field, of, kind in fields
        }
        rows = zip(columns["due_at"], *columns.values(), strict=True)
        return ("\n".join(map("\t".join, rows)) + "\n").encode()

    return copy


def _cells(column: list[Any], kind: ColumnType, nothing: str) -> list[str]:
    """The cells of a column as COPY reads them. In most columns all are null, or none needs to be escaped."""
    if column[0] is None and column.count(None) == len(column):
        return [nothing] * len(column)
    if kind is not str and kind is not bytes:
        turn = _ELEMENTS[kind]
        return [nothing if value is None else turn(value) for value in column]
    if kind is bytes:
        column = [None if text is None else text.decode() for text in column]
    if not _SPECIAL.search("".join(filter(None, column))):
        return [nothing if text is None else text for text in column]
    return [nothing if text is None else text.translate(_ESCAPES) for text in column]


# The rows of a load, and those of a job, in COPY's text format.
copied = _copier(NEW_ITEM)
copied_rows = _copier(NEW_ROW)
