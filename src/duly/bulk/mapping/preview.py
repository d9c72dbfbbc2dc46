"""A row of a file with what would become of it, before anything is stored."""

from __future__ import annotations

from duly.bulk.mapping.columns import Mapping
from duly.bulk.mapping.fields import Fields
from duly.bulk.mapping.values import normalise
from duly.bulk.read.rows import FileRow
from duly.core.results import PreviewRow


def preview(row: FileRow, mapping: Mapping, fields: Fields | None) -> PreviewRow:
    """What would become of this row; without `fields`, its columns stay as they are."""
    if row.fault:
        return PreviewRow(row.number, row.line, row.values, {}, (row.fault,))
    if fields is None:
        return PreviewRow(row.number, row.line, row.values, {}, ())
    normal = normalise(row.values, mapping, fields)
    return PreviewRow(row.number, row.line, row.values, normal.values, normal.problems)
