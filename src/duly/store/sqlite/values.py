"""How SQLite stores what it has no type for: times as microseconds since 1970, JSON as text, booleans as 0 or 1.

How a value is converted follows from the type of its field in the record. In sections that list their columns
themselves, it follows from the field that has the column's name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.core.clock import EPOCH
from duly.core.model import NewItem, NewRow
from duly.store import records
from duly.store.records import ColumnType, lister, reader, writer


def to_int(time: datetime) -> int:
    since = time - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def to_time(value: int) -> datetime:
    return EPOCH + timedelta(0, 0, value)


def maybe_int(time: datetime | None) -> int | None:
    return None if time is None else to_int(time)


def maybe_time(value: int | None) -> datetime | None:
    return None if value is None else to_time(value)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _to_times(text: str) -> list[datetime]:
    return [to_time(value) for value in msgspec.json.decode(text)]


READ: dict[ColumnType, Callable[[Any], Any]] = {
    datetime: to_time,
    bytes: str.encode,
    object: str.encode,
    list: _to_times,
    bool: bool,
}
WRITTEN: dict[ColumnType, Callable[[Any], Any]] = {datetime: to_int, bytes: bytes.decode}

item_of = reader(records.ITEM, READ)
job_of = reader(records.JOB, READ)
schedule_of = reader(records.SCHEDULE, READ)
change_parameters = writer(records.CHANGE, WRITTEN)
tried_parameters = writer(records.TRIED, WRITTEN)
member_parameters = writer(records.MEMBER, WRITTEN)
note_parameters = writer(records.NOTE, WRITTEN)
schedule_parameters = writer(records.SCHEDULE, WRITTEN)
new_schedule_parameters = writer(records.NEW_SCHEDULE, WRITTEN)
_new_item = writer(records.NEW_ITEM, WRITTEN)
_new_item_row = lister(records.NEW_ITEM, WRITTEN)
_new_row_values = lister(records.NEW_ROW, WRITTEN)
_DUE_AT = list(records.NEW_ITEM.fields).index("due_at")
_CHANGED_AT = list(records.NEW_ROW.fields).index("changed_at")

_COLUMNS = {name: READ[kind] for name, kind in records.KINDS.items() if kind in READ}


def new_item_parameters(item: NewItem, now: int) -> dict[str, Any]:
    """The parameters of a put; an item without a time is due now."""
    parameters = _new_item(item)
    if parameters["due_at"] is None:
        parameters["due_at"] = now
    return parameters


def new_item_row(item: NewItem, now: int) -> list[Any]:
    """The same values in the order of the fields, followed by the time that the item is planned for."""
    row = _new_item_row(item)
    if row[_DUE_AT] is None:
        row[_DUE_AT] = now
    row.append(row[_DUE_AT])
    return row


def new_row_values(row: NewRow, now: int) -> list[Any]:
    """What a job writes for one of its rows, in the order of its fields, and then the time that it is planned for."""
    values = _new_row_values(row)
    for place in (_DUE_AT, _CHANGED_AT):
        if values[place] is None:
            values[place] = now
    values.append(values[_DUE_AT])
    return values


def typed(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """The rows of a cursor, with values converted by the names of their columns."""
    turns = [_COLUMNS.get(column[0]) for column in cursor.description or ()]
    return [
        tuple(value if value is None or turn is None else turn(value) for value, turn in zip(row, turns, strict=True))
        for row in cursor
    ]
