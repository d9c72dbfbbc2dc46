"""JSON lines: one object on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, BinaryIO

import msgspec

from duly.bulk.read.rows import PEEK, BadRow, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.text import lines_of
from duly.core.errors import InputError

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class JsonLines(Reading):
    """The columns are the keys of the first rows, in the order in which they appear; later rows may have others."""

    def __init__(self, file: BinaryIO, limits: ReadLimits, options: ReadOptions) -> None:
        self._lines = lines_of(file, options.encoding, limits)
        self._limits = limits
        names = self._first_keys()
        encoding = "utf-8" if self._lines.encoding == "ascii" else self._lines.encoding
        self.shape = Shape(kind="jsonl", columns=names, encoding=encoding)
        self._lines.go_to(0, 0)

    def __iter__(self) -> Iterator[FileRow]:
        for number in count(1):
            try:
                values = self._next()
            except BadRow as bad:
                yield FileRow(number, self._lines.number, {}, bad.reason, bad.text)
                continue
            if values is None:
                return
            yield FileRow(number, self._lines.number, values)

    def _first_keys(self) -> tuple[str, ...]:
        keys: dict[str, None] = {}
        problem = None
        for _ in range(PEEK):
            try:
                values = self._next()
            except BadRow as bad:
                problem = problem or f"line {self._lines.number}: {bad.reason}"
                continue
            if values is None:
                break
            keys |= dict.fromkeys(values)
        if not keys:
            raise InputError("file", problem or "has no rows")
        if len(keys) > self._limits.columns:
            raise InputError("file", f"has {len(keys):,} columns; {self._limits.columns:,} is the limit")
        return tuple(keys)

    def _next(self) -> dict[str, Any] | None:
        """The object on the next line that is not blank."""
        while line := self._lines.take():
            if line.fault:
                raise BadRow(line.fault, line.text)
            if line.text.strip():
                return self._object(line.text)
        return None

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
