"""CSV as everybody reads it: UTF-8 with a byte order mark (Excel asks for it), commas, doubled quotes, CR LF."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Sequence
from typing import Any

import msgspec

from duly.bulk.export.out import Export, Out
from duly.bulk.export.safe import guarded

PORTION = 64 * 1024


class DelimitedExport(Export):
    def __init__(self, out: Out, headers: Sequence[str]) -> None:
        self._out = out
        self._lines: list[str] = []
        self._size = 0
        self._writer = csv.writer(self._Lines(self))
        out.write(codecs.BOM_UTF8)
        self._writer.writerow([guarded(header) for header in headers])

    def write(self, row: Sequence[Any]) -> None:
        self._writer.writerow([_text(value) for value in row])
        if self._size >= PORTION:
            self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._out.write("".join(self._lines).encode("utf-8", "replace"))
            self._lines.clear()
            self._size = 0

    class _Lines:
        """What csv writes its lines to."""

        def __init__(self, export: DelimitedExport) -> None:
            self._export = export

        def write(self, line: str) -> None:
            self._export._lines.append(line)
            self._export._size += len(line)


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
