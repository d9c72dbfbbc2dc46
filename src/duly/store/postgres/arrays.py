"""Many values as one parameter of PostgreSQL: arrays as literals, and rows in COPY's text format.

All values of a column go in as one text, so the same prepared statement serves any number of rows. The text is made
with methods of str on whole columns, which is faster than the driver's escaping of each value in Python. How it is made
follows from the type that the statement gives its parameter: `:ids::bigint[]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

from duly.store.records import NAMES, NEW_ITEM, NEW_ROW, ColumnType, Record
from duly.store.sql import sections


def numbers(values: Iterable[float | None]) -> str:
    return "{" + ",".join(map(str, values)).replace("None", "null") + "}"


def texts(values: Iterable[str | None]) -> str:
    values = list(values)
    if values and None not in values:
        joined = '","'.join(values)  # type: ignore[arg-type] # there is no None
        # If there are no other quotes than those between the values, nothing has to be escaped.
        if joined.count('"') == 2 * (len(values) - 1) and "\\" not in joined:
            return '{"' + joined + '"}'
    return "{" + ",".join(["null" if value is None else _quoted(value) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join(["null" if value is None else value.isoformat() for value in values]) + "}"


def _documents(values: Iterable[bytes | None]) -> str:
    return texts([None if value is None else value.decode() for value in values])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# How an array of each type is written.
_ARRAYS: dict[str, Callable[[Iterable[Any]], str]] = {
    **dict.fromkeys(("bigint", "int", "smallint", "float8", "bool"), numbers),
    "text": texts,
    "timestamptz": times,
    "json": _documents,
}
_PARAMETER = re.compile(r":(\w+)::(\w+)\[\]")


@cache
def array_parameters() -> dict[str, dict[str, Callable[[Iterable[Any]], str]]]:
    """For each section that is given arrays, the names of those parameters, and how they are written."""
    found = {name: dict(_PARAMETER.findall(text)) for name, text in sections("postgres").items()}
    return {name: {each: _ARRAYS[kind] for each, kind in kinds.items()} for name, kinds in found.items() if kinds}


@cache
def _fields(record: Record[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(f"{NAMES[record]}_{field}", attrgetter(field)) for field in record.fields]


def columns(record: Record[Any], values: Sequence[Any], more: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The parameters of the fragment `{many record}`: a list for each of its fields, and for further columns."""
    further = {f"{NAMES[record]}_{name}": column for name, column in more.items()}
    return {name: list(map(of, values)) for name, of in _fields(record)} | further


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
        turn = datetime.isoformat if kind is datetime else str
        return [nothing if value is None else turn(value) for value in column]
    if kind is bytes:
        column = [None if text is None else text.decode() for text in column]
    if not _SPECIAL.search("".join(filter(None, column))):
        return [nothing if text is None else text for text in column]
    return [nothing if text is None else text.translate(_ESCAPES) for text in column]


# The rows of a load, and those of a job, in COPY's text format.
copied = _copier(NEW_ITEM)
copied_rows = _copier(NEW_ROW)
