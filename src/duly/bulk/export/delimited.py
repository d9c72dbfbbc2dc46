"""CSV as everybody reads it: UTF-8 with a byte order mark (Excel asks for it), commas, doubled quotes, CR LF.

No spreadsheet program takes its text for a formula. A cell that begins with `=`, `+`, `-`, `@` or a control character
may be run when the file is opened. Such a cell gets an apostrophe in front, as people write it by hand. Numbers with a
sign are left as they are, for nothing is run. A text that begins with an apostrophe before such a character gets
another one, so that taking one away always gives what was there.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

PORTION = 64 * 1024

_RUNS = re.compile(r"'*[=+\-@\t\r\n\x00＝＋－＠]")
_HARMLESS = re.compile(r"[+-][\d .,:]*(?:[eE][+-]?\d+)?%?")


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
