"""A row of a file with what would become of it, before anything is stored."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from duly.bulk.mapping.columns import Mapping
from duly.bulk.mapping.fields import Fields
from duly.bulk.mapping.values import normalise
from duly.bulk.read.rows import FileRow
from duly.core.doc import Doc


class PreviewRow(Struct, frozen=True):
    """A row of the file, the fields it would have, and why it would be refused."""

    number: int
    line: int
    values: dict[str, Any]
    normal: Annotated[dict[str, str], Doc("The fields that the row would have.")]
    problems: Annotated[tuple[str, ...], Doc("Why it would be refused.")]


def preview(row: FileRow, mapping: Mapping, fields: Fields | None) -> PreviewRow:
    """What would become of this row; without `fields`, its columns stay as they are."""
    if row.fault:
        return PreviewRow(row.number, row.line, row.values, {}, (row.fault,))
    if fields is None:
        return PreviewRow(row.number, row.line, row.values, {}, ())
    normal = normalise(row.values, mapping, fields)
    return PreviewRow(row.number, row.line, row.values, normal.values, normal.problems)
