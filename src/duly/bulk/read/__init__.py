"""Rows out of a file that somebody sent: one interface for every format, in bounded memory, whatever the file is.

    with open_rows(file, "products.csv") as reading:
        reading.shape                    # what was found: kind, columns, encoding, delimiter, sheets
        for row in reading:              # a bad row has a `fault` and is never the end
            ...
        reading.place                    # where reading goes on after the last row: keep it, and hand it in as `start`

What the file is, is told by what it starts with, not by its name: a workbook called `.csv` is read as a workbook. A
file that cannot be read at all is an InputError that says why and what to do; damage further on is a row with a fault.

Reading again from a place costs a seek for delimited text and JSON lines (in UTF-16 the bytes before it are decoded
again), a look at the directory for a zip of images, and for XLSX a second pass over the rows before it, because a
compressed stream cannot be entered in the middle.
"""

from __future__ import annotations

from typing import BinaryIO

from duly.bulk.read.delimited import Delimited
from duly.bulk.read.detect import kind_of
from duly.bulk.read.json_lines import JsonLines
from duly.bulk.read.rows import Kind, Limits, Options, Place, Reading, Row, Shape
from duly.bulk.read.xlsx import Workbook

__all__ = ["Kind", "Limits", "Options", "Place", "Reading", "Row", "Shape", "open_rows"]


def open_rows(
    file: BinaryIO,
    name: str,
    limits: Limits | None = None,
    options: Options | None = None,
    start: Place | None = None,
) -> Reading:
    """Find out what this seekable file is and begin to read it, at `start` if that is given; or raise InputError."""
    limits, options, start = limits or Limits(), options or Options(), start or Place()
    kind = options.kind or kind_of(file, name)
    match kind:
        case "csv":
            return Delimited(file, limits, options, start)
        case "jsonl":
            return JsonLines(file, limits, options, start)
        case "xlsx":
            return Workbook(file, limits, options, start)
        case "image" | "images":
            from duly.bulk.read.images import Images  # needs Pillow, which the other kinds do not

            return Images(file, name, kind, limits, start)
