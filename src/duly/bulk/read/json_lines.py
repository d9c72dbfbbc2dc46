"""JSON lines: one object on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from duly.bulk.read.rows import PEEK, BadRow, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.text import TextLine, lines_of
from duly.core.errors import InputError

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class JsonLines(Reading):
    """The columns are the keys of the first rows, in the order in which they appear; later rows may have others."""

    def __init__(self, file: BinaryIO, limits: ReadLimits, options: ReadOptions) -> None:
        self._lines = lines_of(file, options.encoding, limits)
        self._limits = limits
        columns = self._first_keys()
        self.shape = Shape(kind="jsonl", columns=columns, encoding=self._lines.shown_encoding)

    def __iter__(self) -> Iterator[FileRow]:
        for number, line in enumerate(self._filled(), 1):
            yield self._row(number, line)

    def _first_keys(self) -> tuple[str, ...]:
        first = list(islice(self._filled(), PEEK))
        keys: dict[str, None] = {}
        problem = None
        for line in first:
            row = self._row(0, line)
            keys |= dict.fromkeys(row.values)
            problem = problem or (row.fault and f"line {row.line}: {row.fault}")
        if not keys:
            raise InputError("file", problem or "has no rows")
        if len(keys) > self._limits.columns:
            raise InputError("file", f"has {len(keys):,} columns; {self._limits.columns:,} is the limit")
        self._lines.put_back(first)
        return tuple(keys)

    def _filled(self) -> Iterator[TextLine]:
        """The lines that are not blank."""
        while line := self._lines.take():
            if line.fault or line.text.strip():
                yield line

    def _row(self, number: int, line: TextLine) -> FileRow:
        try:
            if line.fault:
                raise BadRow(line.fault, line.text)
            return FileRow(number, line.number, self._object(line.text))
        except BadRow as bad:
            return FileRow(number, line.number, {}, bad.reason, bad.text)

    def _object(self, text: str) -> dict[str, Any]:
        try:
            values = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError) as error:
            raise BadRow(f"is not JSON: {error}", text) from None
        except RecursionError:
            raise BadRow("is nested too deeply", text) from None
        if not isinstance(values, dict):
            raise BadRow("is not a JSON object", text)
        if len(values) > self._limits.columns:
            raise BadRow(f"has {len(values):,} fields; {self._limits.columns:,} is the limit", text)
        if "\\u0000" in text and _NUL.search(text):
            raise BadRow("holds a NUL character", text)
        return values
