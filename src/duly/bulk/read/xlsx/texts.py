"""The texts that the cells of a workbook share: the first megabytes in memory, the rest in a file without a name."""

from __future__ import annotations

import os
import tempfile
from array import array
from typing import IO

from duly.bulk.read.rows import ReadLimits
from duly.bulk.read.xlsx.markup import Attributes, walk
from duly.core.errors import InputError

BUFFER = 256 * 1024


class Texts:
    """A list of texts that is filled once, then asked by number."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._room = limits.texts_bytes
        self._kept: list[str] = []
        self._ends = array("Q", [0])  # of those on disk
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None
        self._runs: list[str] = []  # of the text that is being read
        self._size = 0
        self._is_text = self._is_aid = False

    def read(self, part: str, stream: IO[bytes]) -> None:
        for _ in walk(part, stream, self._started, self._ended, self._text):
            pass
        self._flush()

    def append(self, text: str) -> None:
        if len(self) >= self._limits.texts:
            raise InputError("file", f"has more than {self._limits.texts:,} different texts")
        if self._room > 0:
            self._room -= len(text) + 64
            self._kept.append(text)
            return
        raw = text.encode("utf-8", "replace")
        self._buffer += raw
        self._ends.append(self._ends[-1] + len(raw))
        if len(self._buffer) > BUFFER:
            self._flush()

    def __len__(self) -> int:
        return len(self._kept) + len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        if number < len(self._kept):
            return self._kept[number]
        number -= len(self._kept)
        start, end = self._ends[number], self._ends[number + 1]
        assert self._file is not None
        return os.pread(self._file.fileno(), end - start, start).decode()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._buffer:
            self._file = self._file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by close)
            self._file.write(self._buffer)
            self._buffer.clear()

    # Puts the runs of each text together. Reading aids for Asian scripts (rPh) are not part of a text.

    def _started(self, name: str, _: Attributes) -> None:
        if name == "t":
            self._is_text = not self._is_aid
        elif name == "rPh":
            self._is_aid = True

    def _ended(self, name: str) -> None:
        if name == "t":
            self._is_text = False
        elif name == "rPh":
            self._is_aid = False
        elif name == "si":
            self.append("".join(self._runs))
            self._runs.clear()
            self._size = 0

    def _text(self, data: str) -> None:
        # What goes beyond the limit of a row need not be kept: the row that it stands in is refused for its length.
        if self._is_text and self._size <= self._limits.row_bytes:
            self._size += len(data)
            self._runs.append(data)
