"""The columns of an export: always the same ones in the same order, as the grid shows them.

A record is a row of a job: `row`, `status`, `input` (by column of the file), `result` (by field), `attempts`, `error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

BEFORE = ("row", "status")
AFTER = ("attempts", "error")
# Of rows that are to be mended: the number by which a row is known again, and what is wrong with it.
NUMBER, ERROR = "duly row", "duly error"


class Column(Struct, frozen=True):
    """A header, and where in a record its values are."""

    header: str
    path: tuple[str, ...]


def canonical(inputs: Iterable[str], results: Iterable[str]) -> tuple[Column, ...]:
    """Row and status, what came in, what was found, attempts and error. No header comes twice."""
    taken: set[str] = set()
    return tuple(
        Column(_free(header, suffix, taken), path)
        for header, suffix, path in (
            *((name, "", (name,)) for name in BEFORE),
            *((name, "input", ("input", name)) for name in inputs),
            *((name, "result", ("result", name)) for name in results),
            *((name, "of the row", (name,)) for name in AFTER),
        )
    )


def mendable(inputs: Iterable[str]) -> tuple[Column, ...]:
    """The columns of failed rows as they came, the number that identifies a corrected row, and the reason."""
    taken: set[str] = set()
    return tuple(
        Column(_free(header, "input", taken), path)
        for header, path in (
            (NUMBER, ("row",)),
            (ERROR, ("error",)),
            *((name, ("input", name)) for name in inputs),
        )
    )


def cells(record: Mapping[str, Any], columns: Sequence[Column]) -> list[Any]:
    """The values of a record in the order of these columns."""
    return [_value(record, column.path) for column in columns]


def _value(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _free(header: str, suffix: str, taken: set[str]) -> str:
    name, number = header, 1
    while name in taken:
        number += 1
        name = f"{header} ({suffix})" if number == 2 else f"{header} ({suffix} {number - 1})"
    taken.add(name)
    return name
