"""Reads lines of text in any common encoding, none of them longer than a limit.

Text in UTF-16, or with the lone carriage returns of old Macs, is turned into UTF-8 lines on the way, so that
the readers see one kind of bytes. `offset` counts bytes after that turn; going to an offset is a seek where nothing had
to be turned, and otherwise reads and drops what lies before.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING, BinaryIO, cast

from duly.bulk.read.rows import EXCERPT, ReadLimits
from duly.core.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
TURNED = ("utf-16-le", "utf-16-be")
PORTION = 64 * 1024
# Encodings that may be asked for by name. In all of them a line ends with the byte that it ends with in ASCII.
_READ = re.compile(
    r"ascii|utf-8(-sig)?|utf-16-[bl]e|cp\d+|iso8859-\d+|koi8-[rtu]|mac-\w+|shift_jis\w*|euc_\w+|gb\w+|big5\w*"
)


def encoding_of(sample: bytes) -> str:
    """The encoding of a text that starts like this. `ascii` means: nothing but ASCII so far, so it may be either."""
    for bom, encoding in BOMS:
        if sample.startswith(bom):
            return encoding
    if b"\0" in sample and (found := _utf16_without_bom(sample)):
        return found
    if sample.isascii():
        return "ascii"
    try:  # the sample may end in the middle of a character
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _utf16_without_bom(sample: bytes) -> str | None:
    """Every other byte of mostly Latin text is zero in UTF-16: the second ones, or the first ones."""
    half = len(sample) // 2
    if sample[1::2].count(0) > 0.7 * half and sample[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if sample[::2].count(0) > 0.7 * half and sample[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


class TextLine:
    """A line with where it ends, and its fault if it cannot be read. It has slots, for there are millions of them."""

    __slots__ = ("end", "fault", "number", "text")

    def __init__(self, text: str, number: int, end: int, fault: str | None = None) -> None:
        self.text = text
        self.number = number
        self.end = end
        self.fault = fault


class TextLines:
    """The lines of a file, from an offset on. `take` gives the next one, or None at the end."""

    def __init__(self, file: BinaryIO, encoding: str, limits: ReadLimits) -> None:
        self.encoding = encoding
        self._limit = limits.row_bytes
        self._file = file
        self._start = 0
        file.seek(0)
        sample = file.read(limits.sample_bytes)
        for bom, named in BOMS:
            if named == encoding and sample.startswith(bom):
                self._start = len(bom)
        self._has_returns = b"\r" in sample and b"\n" not in sample
        self.go_to(0, 0)

    def go_to(self, offset: int, number: int) -> None:
        """Continue at this offset, after the line of this number."""
        self.number, self.offset = number, offset
        self._file.seek(self._start)
        if self.encoding in TURNED or self._has_returns:
            self._stream: BinaryIO = cast(BinaryIO, io.BufferedReader(_Turned(self._file, self.encoding), PORTION))
            left = offset
            while left and (skipped := len(self._stream.read(min(left, PORTION)))):
                left -= skipped
        else:
            self._stream = self._file
            self._file.seek(self._start + offset)

    def take(self) -> TextLine | None:
        raw = self._stream.readline(self._limit + 1)
        if not raw:
            return None
        self.number += 1
        self.offset += len(raw)
        if len(raw) > self._limit and not raw.endswith(b"\n"):
            self._skip_rest()
            return self._bad(raw, f"the line has more than {self._limit:,} bytes")
        if b"\0" in raw:
            return self._bad(raw, "holds a NUL character")
        try:
            return TextLine(self._decoded(raw), self.number, self.offset)
        except UnicodeDecodeError as error:
            return self._bad(raw, f"cannot be read as {self.encoding}: byte {error.start + 1} of the line is wrong")

    def _skip_rest(self) -> None:
        while rest := self._stream.readline(PORTION):
            self.offset += len(rest)
            if rest.endswith(b"\n"):
                return

    def _decoded(self, raw: bytes) -> str:
        if self.encoding == "cp1252":
            return _western(raw)
        if self.encoding != "ascii":
            return raw.decode("utf-8" if self.encoding in TURNED else self.encoding)
        try:
            return raw.decode()
        except UnicodeDecodeError:  # the first bytes beyond ASCII, and they are not UTF-8
            return _western(raw)

    def _bad(self, raw: bytes, fault: str) -> TextLine:
        excerpt = raw[:8192].decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return TextLine(excerpt[:EXCERPT], self.number, self.offset, fault)


def _western(raw: bytes) -> str:
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:  # five bytes mean nothing in cp1252; in Latin-1 every byte means something
        return raw.decode("latin-1")


def lines_of(file: BinaryIO, encoding: str | None, limits: ReadLimits) -> TextLines:
    """The lines of this file, in the encoding that the sender names or else in the one that is found."""
    if encoding is not None:
        try:
            named = codecs.lookup(encoding).name
        except LookupError:
            raise InputError("encoding", f"{encoding!r:.50} is not known") from None
        if not _READ.fullmatch(named):
            raise InputError("encoding", f"{named} is not supported; leave it out, and UTF-8 and UTF-16 are detected")
        return TextLines(file, {"utf-8-sig": "utf-8"}.get(named, named), limits)
    file.seek(0)
    return TextLines(file, encoding_of(file.read(limits.sample_bytes)), limits)


class _Turned(io.RawIOBase):
    """Text as UTF-8 with plain line ends. What is no text becomes bytes that are no UTF-8, and so a bad line later."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass") if encoding in TURNED else None
        self._ready = b""
        self._held_return = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._ready:
            raw = self._file.read(PORTION)
            self._ready = self._turned(raw)
            if not raw:
                break
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _turned(self, raw: bytes) -> bytes:
        turned = raw
        if self._decoder is not None:
            try:
                turned = self._decoder.decode(raw, final=not raw).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError:  # the last character is cut in the middle
                self._decoder.reset()
                turned = b"\xff"
        # A pair of return and newline may lie across two portions.
        if self._held_return:
            turned = b"\r" + turned
        self._held_return = bool(raw) and turned.endswith(b"\r")
        if self._held_return:
            turned = turned[:-1]
        return turned.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
