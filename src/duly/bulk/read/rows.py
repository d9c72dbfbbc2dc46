"""The values of reading: what may come in (ReadLimits, ReadOptions) and what goes out (Shape, FileRow)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from msgspec import Struct

FileKind = Literal["csv", "jsonl", "xlsx", "image", "images"]

MIB = 1024 * 1024
EXCERPT = 2_000  # characters of a broken row that are kept
PEEK = 20  # rows at the start by which the columns are found out


class ReadLimits(Struct, frozen=True, kw_only=True):
    """Limits on what is read. With the defaults, reading any file needs less than 256 MB of memory."""

    row_bytes: int = MIB  # of one row, over all of its lines and cells
    row_lines: int = 10_000  # that one row of delimited text may go over, inside quotes
    columns: int = 1_000
    sample_bytes: int = 256 * 1024  # of the start, by which encoding and delimiter are found out
    mended_rows: int = 100  # open quotes after which the following lines are read again; each costs up to `row_bytes`
    unpacked_bytes: int = 4 * 1024 * MIB  # that all entries of a zip file declare
    entries: int = 20_000  # of a zip file
    texts: int = 10_000_000  # different texts of a workbook; those beyond `texts_bytes` wait on disk
    texts_bytes: int = 16 * MIB
    image_bytes: int = 64 * MIB  # of one image file
    decoded_bytes: int = 150_000_000  # of memory that decoding one image may take
    thumbnail: int = 256  # pixels of its longer side


class ReadOptions(Struct, frozen=True, kw_only=True):
    """What the sender declared about the file; None is detected."""

    kind: FileKind | None = None
    header: bool | None = None  # whether the first row has the names of the columns
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None  # of a workbook; without a name, the first that is visible


class Shape(Struct, frozen=True, kw_only=True):
    """What kind of table was found. `columns` are unique and not empty, in the order of the file."""

    kind: FileKind
    columns: tuple[str, ...]
    has_header: bool = True
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    sheets: tuple[str, ...] = ()


class FileRow(Struct, frozen=True):
    """One row. A row with a fault still has the values that could be read, so that it can be corrected."""

    number: int  # counts the rows below the header, from 1; blank rows are not counted
    line: int  # where it begins: a line of text, a row of a sheet, an entry of a zip file
    values: dict[str, Any]  # by column; JSON values
    fault: str | None = None
    text: str | None = None  # the start of a row that could not be taken apart
    thumbnail: bytes | None = None  # of an image: a small WebP


class Reading:
    """A file that is being read: a context manager, and an iterator over its rows that can be used once."""

    shape: Shape

    def __iter__(self) -> Iterator[FileRow]:
        raise NotImplementedError

    def close(self) -> None:
        """Release what was opened for reading; the file itself stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BadRow(Exception):
    """A row that cannot be read: why, and the start of its text."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text[:EXCERPT]
