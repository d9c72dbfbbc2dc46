"""Reads the rows of an uploaded file: one interface for every format, in bounded memory for any file.

    with open_rows(file, "products.csv") as reading:
        reading.shape                    # what was found: kind, columns, encoding, delimiter, sheets
        for row in reading:              # a bad row has a `fault`; it never ends the reading
            ...

The first bytes decide what a file is, not its name: a workbook called `.csv` is read as a workbook. A file that cannot
be read at all raises an InputError that says why and what to do; damage further on is a row with a fault.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import BinaryIO

from duly.bulk.read.archive import names_in
from duly.bulk.read.delimited import Delimited
from duly.bulk.read.json_lines import JsonLines
from duly.bulk.read.rows import FileKind, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.xlsx import Workbook
from duly.core.errors import InputError

__all__ = ["FileKind", "FileRow", "ReadLimits", "ReadOptions", "Reading", "Shape", "open_rows"]

HEAD = 4096

IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a")
ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
# What people send by mistake, and what they can do about it.
OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an old or encrypted Excel file; save it as .xlsx without a password"),
    (b"%PDF-", "is a PDF; send the table itself, as CSV or XLSX"),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first"),
    (b"BZh", "is compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ\x00", "is compressed with xz; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; send a zip file"),
    (b"Rar!\x1a\x07", "is a RAR archive; send a zip file"),
    (b"II*\x00", "is a TIFF image; send JPEG, PNG, GIF or WebP"),
    (b"MM\x00*", "is a TIFF image; send JPEG, PNG, GIF or WebP"),
    (b"\x7fELF", "is a program"),
    (b"MZ\x90\x00", "is a program"),
    (b"SQLite format 3\x00", "is a database; export the table as CSV"),
)
_MARKUP = re.compile(rb"\s*<(!doctype|html|\?xml|table|svg|!--)", re.IGNORECASE)


def open_rows(
    file: BinaryIO, name: str, limits: ReadLimits | None = None, options: ReadOptions | None = None
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


def kind_of(file: BinaryIO, name: str) -> FileKind:
    """What a file is, by how it starts."""
    file.seek(0)
    head = file.read(HEAD)
    file.seek(0)
    if not head.strip():
        raise InputError("file", f"{name} is empty" if not head else f"{name} holds nothing but blanks")
    if head.startswith(ZIPS):
        return _kind_of_zip(names_in(file), name)
    if head.startswith(IMAGES) or (head[:4], head[8:12]) == (b"RIFF", b"WEBP"):
        return "image"
    for start, problem in OTHERS:
        if head.startswith(start):
            raise InputError("file", f"{name} {problem}")
    plain = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _MARKUP.match(plain):
        raise InputError("file", f"{name} is a web page or XML; export the table as CSV or XLSX")
    is_json = PurePath(name).suffix.lower() in (".jsonl", ".ndjson", ".json") or plain.startswith(b'{"')
    if is_json and plain.startswith(b"["):
        raise InputError("file", f"{name} is one JSON array; send JSON lines, one object on each line")
    return "jsonl" if is_json else "csv"


def _kind_of_zip(names: frozenset[str], name: str) -> FileKind:
    if "content.xml" in names and "mimetype" in names:
        raise InputError("file", f"{name} is an OpenDocument file; save it as .xlsx")
    return "xlsx" if "[Content_Types].xml" in names else "images"  # every file of Microsoft Office has that
