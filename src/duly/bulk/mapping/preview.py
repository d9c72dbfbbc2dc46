"""The first rows of a file with what would become of each, before anything is kept; and the few words of a row."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Values
from itertools import islice
from typing import Any

from msgspec import Struct

from duly.bulk.mapping.columns import Mapping
from duly.bulk.mapping.fields import Fields
from duly.bulk.mapping.values import normalise, text_of
from duly.bulk.read.rows import Row

SUMMARY = ("title", "brand", "sku")
LONGEST = 120  # characters of each of them


class PreviewRow(Struct, frozen=True):
    """A row of the file, the fields it would have, and why it would be refused."""

    number: int
    line: int
    values: dict[str, Any]
    normal: dict[str, str]
    problems: tuple[str, ...]


class Preview(Struct, frozen=True):
    rows: tuple[PreviewRow, ...]
    refused: int  # of these rows
    unused: tuple[str, ...]  # columns that no field takes


def preview(rows: Iterable[Row], columns: Iterable[str], mapping: Mapping, fields: Fields, count: int = 20) -> Preview:
    """What would become of the first `count` rows. Only so many are read."""
    shown = tuple(_shown(row, mapping, fields) for row in islice(rows, count))
    used = set(mapping.columns.values())
    return Preview(
        shown, sum(bool(row.problems) for row in shown), tuple(column for column in columns if column not in used)
    )


def summary(values: Values[str, Any], names: Iterable[str] = SUMMARY) -> dict[str, str]:
    """The few words by which people know a row, cut short, whatever its size."""
    said = {name: _short(values.get(name)) for name in names}
    return {name: short for name, short in said.items() if short}


def _shown(row: Row, mapping: Mapping, fields: Fields) -> PreviewRow:
    if row.fault:
        return PreviewRow(row.number, row.line, row.values, {}, (row.fault,))
    normal = normalise(row.values, mapping, fields)
    return PreviewRow(row.number, row.line, row.values, normal.values, normal.problems)


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return ""
    said = text_of(value[: 4 * LONGEST] if isinstance(value, str) else value)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
