"""A record's fields are named once, in its struct, and everything else follows from there.

The SQL sections name the record instead of its columns (`duly.store.sql` fills them in), rows become values by the
same order, and the types of the fields say how a database keeps them. What has to be known about a struct is worked
out once, when a module is loaded, so that a row costs no more than the conversions that it needs.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct, structs

from duly.model import Change, Item, Member, NewItem, NewSchedule, Note, Schedule, Tried
from duly.shown import (
    Act,
    Alert,
    AuditLine,
    Depth,
    Group,
    KeyInfo,
    MeterRow,
    Occurrence,
    OwnedRow,
    ReviewNote,
    Row,
    Story,
    Try,
    User,
    WorkerLife,
)

S = TypeVar("S", bound=Struct)

# What a field holds, whatever else its type says: `object` stands for a value that is kept as JSON, `bytes` for JSON
# that stays text, and `list` for several times.
Kind = type
Turn = Callable[[Any], Any]


class Record(Generic[S]):
    """The fields of a struct that are columns, in the struct's order, each with what it holds.

    `without` are fields of the struct that no column has; `also` are properties that one has.
    """

    def __init__(self, struct: type[S], *, without: Iterable[str] = (), also: Mapping[str, Kind] | None = None) -> None:
        self.struct = struct
        self.without = tuple(without)
        self.also = dict(also or {})
        own = {field.name: _kind(field.type) for field in structs.fields(struct) if field.name not in self.without}
        self.fields: dict[str, Kind] = {**own, **self.also}


def _kind(annotation: Any) -> Kind:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not types.NoneType)
    if get_origin(annotation) is Literal:
        return str
    if annotation in (str, int, float, bool, bytes, datetime):
        kind: Kind = annotation
        return kind
    return list if annotation == list[datetime] else object


ITEM = Record(Item)
NEW_ITEM = Record(NewItem, without=("is_relative",))
CHANGE = Record(Change, without=("task", "tried", "member", "then"), also={"error_group": str})
TRIED = Record(Tried)
MEMBER = Record(Member)
NOTE = Record(Note)
SCHEDULE = Record(Schedule)
NEW_SCHEDULE = Record(NewSchedule, without=("slots",))
METER = Record(MeterRow)

# The records that SQL sections name.
RECORDS: dict[str, Record[Any]] = {
    "item": ITEM,
    "new_item": NEW_ITEM,
    "change": CHANGE,
    "tried": TRIED,
    "member": MEMBER,
    "note": NOTE,
    "schedule": SCHEDULE,
    "new_schedule": NEW_SCHEDULE,
    "row": Record(Row),
    "owned_row": Record(OwnedRow),
    "try": Record(Try),
    "occurrence": Record(Occurrence),
    "audit_line": Record(AuditLine),
    "review_note": Record(ReviewNote),
    "alert": Record(Alert),
    "worker": Record(WorkerLife),
    "meter": METER,
    "user": Record(User, without=("has_password",)),
    "key": Record(KeyInfo),
    "act": Record(Act),
}
# What a column of this name holds, also where a section chooses its columns itself.
KINDS: dict[str, Kind] = {}
_COMPUTED: list[Record[Any]] = [Record(Depth), Record(Group), Record(User), Record(Story, without=("item", "tries"))]
for _record in (*RECORDS.values(), *_COMPUTED):
    KINDS.update(_record.fields)


def reader(record: Record[S], turns: Mapping[Kind, Turn]) -> Callable[[Iterable[Any]], S]:
    """Makes the record of a row; `turns` say what becomes of values that the database has no type for."""
    struct = record.struct
    turned = [(place, turns[kind]) for place, kind in enumerate(record.fields.values()) if kind in turns]

    def read(row: Iterable[Any]) -> S:
        values = list(row)
        for place, turn in turned:
            value = values[place]
            if value is not None:
                values[place] = turn(value)
        return struct(*values)

    return read


def writer(record: Record[S], turns: Mapping[Kind, Turn]) -> Callable[[S], dict[str, Any]]:
    """Makes the parameters of one record, named like its fields."""
    without, also = record.without, tuple(record.also)
    turned = [(name, turns[kind]) for name, kind in record.fields.items() if kind in turns]

    def write(value: S) -> dict[str, Any]:
        parameters = structs.asdict(value)
        for name in without:
            del parameters[name]
        for name in also:
            parameters[name] = getattr(value, name)
        for name, turn in turned:
            if (given := parameters[name]) is not None:
                parameters[name] = turn(given)
        return parameters

    return write
