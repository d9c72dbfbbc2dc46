"""Rows out of a file that somebody sent: one interface for every format, in bounded memory, whatever the file is.

    with open_rows(file, "products.csv") as reading:
        reading.shape                    # what was found: kind, columns, encoding, delimiter, sheets
        for row in reading:              # a bad row has a `fault`; it never ends the reading
            ...

The first bytes decide what a file is, not its name: a workbook called `.csv` is read as a workbook. A file that cannot
be read at all raises an InputError that says why and what to do; damage further on is a row with a fault.
"""

from __future__ import annotations

from typing import BinaryIO

from duly.bulk.read.delimited import Delimited
from duly.bulk.read.detect import kind_of
from duly.bulk.read.json_lines import JsonLines
from duly.bulk.read.rows import FileKind, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.xlsx import Workbook

__all__ = ["FileKind", "FileRow", "ReadLimits", "ReadOptions", "Reading", "Shape", "open_rows"]


def open_rows(
    file: BinaryIO,
    name: str,
    limits: ReadLimits | None = None,
    options: ReadOptions | None = None,
) -> Reading:
    """Detect what this seekable file is and begin to read it; raises InputError if that is not possible."""
    limits, options = limits or ReadLimits(), options or ReadOptions()
    kind = options.kind or kind_of(file, name)
    match kind:
        case "csv":
            return Delimited(file, limits, options)
        case "jsonl":
            return JsonLines(file, limits, options)
        case "xlsx":
            return Workbook(file, limits, options)
        case "image" | "images":
            from duly.bulk.read.images import Images  # needs Pillow, which the other kinds do not

            return Images(file, name, kind, limits)
