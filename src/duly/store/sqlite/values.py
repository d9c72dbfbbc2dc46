"""How SQLite stores what it has no type for: times as microseconds since 1970, JSON as text, booleans as 0 or 1.

How a value is converted follows from the type of its field in the record. In sections that list their columns
themselves, it follows from the field that has the column's name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from duly.core.clock import EPOCH
from duly.store.records import KINDS, NEW_ITEM, NEW_ROW, ColumnType, Record, Turn, lister, writer


def to_int(time: datetime) -> int:
    since = time - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def to_time(value: int) -> datetime:
    return EPOCH + timedelta(0, 0, value)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _to_times(text: str) -> list[datetime]:
    return [to_time(value) for value in msgspec.json.decode(text)]


READ: dict[ColumnType, Turn] = {datetime: to_time, bytes: str.encode, object: str.encode, list: _to_times, bool: bool}
WRITTEN: dict[ColumnType, Turn] = {datetime: to_int, bytes: bytes.decode}
# Times that default to now.
_STAMPED = ("due_at", "changed_at")

# The values of new items and rows of jobs in the order of their fields, followed by the time that they are planned for.
new_item_row = lister(NEW_ITEM, WRITTEN, _STAMPED, then=("due_at",))
new_row_values = lister(NEW_ROW, WRITTEN, _STAMPED, then=("due_at",))

_COLUMNS = {name: READ[kind] for name, kind in KINDS.items() if kind in READ}


@cache
def written(record: Record[Any]) -> Callable[..., dict[str, Any]]:
    """A function that makes the parameters of one record, which is written now."""
    return writer(record, WRITTEN, _STAMPED if record in (NEW_ITEM, NEW_ROW) else ())


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as SQLite takes them."""
    return {
        name: to_int(value) if isinstance(value, datetime) else to_json(value) if isinstance(value, list) else value
        for name, value in parameters.items()
    }


def turns_of(cursor: sqlite3.Cursor) -> list[tuple[int, Turn]]:
    """Which columns of these rows are converted, and how, by their names."""
    names = [column[0] for column in cursor.description or ()]
    return [(place, _COLUMNS[name]) for place, name in enumerate(names) if name in _COLUMNS]


def typed(rows: Iterable[tuple[Any, ...]], turns: list[tuple[int, Turn]]) -> list[Any]:
    """These rows with their values converted."""
    if not turns:
        return list(rows)
    found = []
    for row in rows:
        values = list(row)
        for place, turn in turns:
            if (value := values[place]) is not None:
                values[place] = turn(value)
        found.append(tuple(values))
    return found
