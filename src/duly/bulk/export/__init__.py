"""Exports rows to CSV and XLSX, as a stream of bytes, in constant memory.

    columns = canonical(inputs, results)
    headers = [column.header for column in columns]
    for portion in stream("xlsx", headers, (cells(record, columns) for record in records)):
        ...

The same rows give the same bytes. A record is a row of a job: `row`, `status`, `input` (by column of the file),
`result` (by field), `attempts`, `error`. The columns are always the same ones in the same order, as the grid has them.

CSV is written as everybody reads it: UTF-8 with a byte order mark (Excel asks for it), commas, doubled quotes, CR LF.
No spreadsheet program takes its text for a formula. A cell that begins with `=`, `+`, `-`, `@` or a control character
may be run when the file is opened. Such a cell gets an apostrophe in front, as people write it by hand. Numbers with a
sign are left as they are, for nothing is run. A text that begins with an apostrophe before such a character gets
another one, so that taking one away always gives what was there.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from duly.bulk.export.xlsx import PORTION, SheetLimits, workbook
from duly.core.errors import InputError

MEDIA: dict[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
BEFORE = ("row", "status")
AFTER = ("attempts", "error")
# Of rows that are to be mended: the number by which a row is known again, and what is wrong with it.
NUMBER, ERROR = "duly row", "duly error"

_RUNS = re.compile(r"'*[=+\-@\t\r\n\x00＝＋－＠]")
_HARMLESS = re.compile(r"[+-][\d .,:]*(?:[eE][+-]?\d+)?%?")


def stream(
    format: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], limits: SheetLimits | None = None
) -> Iterator[bytes]:
    """A file of this format with these headers on top, in portions. Each row has a value for each header."""
    match format:
        case "csv":
            return delimited(headers, rows)
        case "xlsx":
            return workbook(headers, rows, limits or SheetLimits())
        case _:
            raise InputError("format", f"{format!r:.20} is not known; use csv or xlsx")


class Column(Struct, frozen=True):
    """A header, and where in a record its values are."""

    header: str
    path: tuple[str, ...]


def canonical(inputs: Iterable[str], results: Iterable[str]) -> tuple[Column, ...]:
    """Row and status, what came in, what was found, attempts and error."""
    return _columns(
        *((name, "", (name,)) for name in BEFORE),
        *((name, "input", ("input", name)) for name in inputs),
        *((name, "result", ("result", name)) for name in results),
        *((name, "of the row", (name,)) for name in AFTER),
    )


def mendable(inputs: Iterable[str]) -> tuple[Column, ...]:
    """The columns of failed rows as they came, the number that identifies a corrected row, and the reason."""
    came = ((name, "input", ("input", name)) for name in inputs)
    return _columns((NUMBER, "", ("row",)), (ERROR, "", ("error",)), *came)


def _columns(*wanted: tuple[str, str, tuple[str, ...]]) -> tuple[Column, ...]:
    """A column for each header and path. No header comes twice: where one would, its suffix sets it apart."""
    taken: set[str] = set()
    return tuple(Column(_free(header, suffix, taken), path) for header, suffix, path in wanted)


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


def guarded(text: str) -> str:
    return f"'{text}" if _RUNS.match(text) and not _HARMLESS.fullmatch(text) else text


def unguarded(text: str) -> str:
    return text[1:] if text.startswith("'") and _RUNS.match(text) else text


def delimited(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """The bytes of the file, a portion at a time."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    out.write("\N{BYTE ORDER MARK}")
    writer.writerow([guarded(header) for header in headers])
    for row in rows:
        writer.writerow([_text(value) for value in row])
        if out.tell() >= PORTION:
            yield _emptied(out)
    yield _emptied(out)


def _emptied(out: io.StringIO) -> bytes:
    portion = out.getvalue().encode("utf-8", "replace")
    out.seek(0)
    out.truncate()
    return portion


def _text(value: Any) -> str:
    match value:
        case str():
            return guarded(value)
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            return guarded(msgspec.json.encode(value).decode())
