"""What a file is, by how it starts."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import BinaryIO

from duly.bulk.read.archive import names_in
from duly.bulk.read.rows import FileKind
from duly.core.errors import InputError

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


def kind_of(file: BinaryIO, name: str) -> FileKind:
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
