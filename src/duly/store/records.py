"""Records: the fields of a row are named once, in a struct, and everything else is derived from that.

The SQL sections name the record instead of its columns (`duly.store.sql` fills them in), rows become values by the
same order, and the types of the fields say how a database keeps them. What has to be known about a struct is worked
out once, when a module is loaded, so that a row costs no more than the conversions that it needs.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct, structs

from duly.core import model, shown, unserved

S = TypeVar("S", bound=Struct)

# What a field holds, without "or None": `object` stands for a value that is stored as JSON, `bytes` for JSON that stays
# text, and `list` for a list of times.
ColumnType = type
Turn = Callable[[Any], Any]


class Record(Generic[S]):
    """The fields of a struct that are columns, in the struct's order, each with its type.

    `without` are fields of the struct without a column; `also` are properties that have one.
    """

    def __init__(
        self, struct: type[S], *, without: Iterable[str] = (), also: Mapping[str, ColumnType] | None = None
    ) -> None:
        self.struct = struct
        left_out = frozenset(without)
        own = {field.name: _kind(field.type) for field in structs.fields(struct) if field.name not in left_out}
        self.fields: dict[str, ColumnType] = {**own, **(also or {})}


def _kind(annotation: Any) -> ColumnType:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not types.NoneType)
    if get_origin(annotation) is Literal:
        return str
    if annotation in (str, int, float, bool, bytes, datetime):
        kind: ColumnType = annotation
        return kind
    return list if annotation == list[datetime] else object


ITEM = Record(model.Item)
NEW_ITEM = Record(model.NewItem, without=("is_relative",))
CHANGE = Record(
    model.Change, without=("task", "tried", "member", "then", "job_id", "was_status"), also={"error_group": str}
)
NEW_ROW = Record(model.NewRow, without=("is_relative",))
JOB = Record(model.Job)
TRIED = Record(model.Tried)
MEMBER = Record(model.Member)
NOTE = Record(model.NewAuditLine)
SCHEDULE = Record(model.Schedule)
NEW_SCHEDULE = Record(model.NewSchedule, without=("slots",))
METER = Record(shown.MeterRow)

# The records that SQL sections name.
RECORDS: dict[str, Record[Any]] = {
    "item": ITEM,
    "new_item": NEW_ITEM,
    "new_row": NEW_ROW,
    "new_job": Record(model.NewJob),
    "job": JOB,
    "new_file": Record(model.NewFile),
    "file": Record(model.StoredFile),
    "export_row": Record(shown.ExportRow),
    "change": CHANGE,
    "tried": TRIED,
    "member": MEMBER,
    "note": NOTE,
    "schedule": SCHEDULE,
    "new_schedule": NEW_SCHEDULE,
    "row": Record(shown.Row),
    "occurrence": Record(shown.Occurrence),
    "audit_line": Record(shown.AuditLine),
    "review_note": Record(shown.ReviewNote),
    "alert": Record(shown.Alert),
    "worker": Record(shown.WorkerLife),
    "meter": METER,
    "user": Record(shown.User, without=("has_password",)),
    "key": Record(shown.KeyInfo),
    "act": Record(shown.Act),
    "history_row": Record(shown.HistoryRow),
}
NAMES = {record: name for name, record in RECORDS.items()}
# What a column of this name holds; sections that list their columns themselves go by these too.
KINDS: dict[str, ColumnType] = {}
_COMPUTED: list[Record[Any]] = [
    Record(shown.Depth),
    Record(shown.Group),
    Record(shown.PendingItem),
    Record(shown.User),
    Record(unserved.ServedTask),
    Record(unserved.WaitingTask),
    Record(shown.Story, without=("item", "tries", "timeline", "trace_id")),
]
for _record in (*RECORDS.values(), *_COMPUTED):
    KINDS.update(_record.fields)


def reader(record: Record[S], turns: Mapping[ColumnType, Turn]) -> Callable[[Iterable[Any]], S]:
    """A function that makes the record of a row. `turns` convert values for which the database has no type."""
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


def writer(
    record: Record[S], turns: Mapping[ColumnType, Turn], stamped: Iterable[str] = ()
) -> Callable[..., dict[str, Any]]:
    """A function that makes the parameters of one record, named like its fields.

    With `stamped`, it is given the record and the time of now, which these fields have if the record has none.
    """
    values = [f"{name!r}: {value}" for name, value in _values(record, turns, stamped).items()]
    made: Callable[..., dict[str, Any]] = _made(f"{{{', '.join(values)}}}", turns)
    return made


def lister(
    record: Record[S], turns: Mapping[ColumnType, Turn], stamped: Iterable[str] = (), then: Iterable[str] = ()
) -> Callable[..., list[Any]]:
    """The same in the order of its fields, which is faster for many rows; some fields `then` come once more."""
    values = _values(record, turns, stamped)
    made: Callable[..., list[Any]] = _made(
        f"[{', '.join([*values.values(), *(values[name] for name in then)])}]", turns
    )
    return made


def _values(record: Record[Any], turns: Mapping[ColumnType, Turn], stamped: Iterable[str]) -> dict[str, str]:
    """A Python expression for each field that gives its value as the database takes it."""
    return {
        name: f"{'now' if name in stamped else None} if (value := record.{name}) is None "
        f"else {kind.__name__}_turn(value)"
        if kind in turns
        else f"record.{name}"
        for name, kind in record.fields.items()
    }


def _made(expression: str, turns: Mapping[ColumnType, Turn]) -> Any:
    """Compile a function from its source, as dataclasses do, so that it is as fast as one that is written by hand."""
    names = {f"{kind.__name__}_turn": turn for kind, turn in turns.items()}
    return eval(f"lambda record, now=None: {expression}", names)  # noqa: S307 - made of the names of our own fields
