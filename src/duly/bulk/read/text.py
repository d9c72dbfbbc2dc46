"""Reads lines of text in any common encoding, none of them longer than a limit.

Text in UTF-16, or with the lone carriage returns of old Macs, is turned into UTF-8 lines on the way, so that the
readers see one kind of bytes.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import deque
from collections.abc import Iterable
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
    """A line, and its fault if it cannot be read. It has slots, for there are millions of them."""

    __slots__ = ("fault", "number", "text")

    def __init__(self, text: str, number: int, fault: str | None = None) -> None:
        self.text = text
        self.number = number
        self.fault = fault


class TextLines:
    """The lines of a file. `take` gives the next one, or None at the end; lines that are put back come again."""

    def __init__(self, file: BinaryIO, encoding: str, limits: ReadLimits) -> None:
        self.encoding = encoding
        self._limit = limits.row_bytes
        self._number = 0
        self._returned: deque[TextLine] = deque()
        file.seek(0)
        sample = file.read(limits.sample_bytes)
        file.seek(next((len(bom) for bom, named in BOMS if named == encoding and sample.startswith(bom)), 0))
        self._stream = file
        if encoding in TURNED or (b"\r" in sample and b"\n" not in sample):
            self._stream = cast(BinaryIO, io.BufferedReader(_Turned(file, encoding), PORTION))

    @property
    def shown_encoding(self) -> str:
        return "utf-8" if self.encoding == "ascii" else self.encoding

    def put_back(self, lines: Iterable[TextLine]) -> None:
        """Let `take` give these lines next."""
        self._returned.extendleft(reversed([*lines]))

    def take(self) -> TextLine | None:
        if self._returned:
            return self._returned.popleft()
        raw = self._stream.readline(self._limit + 1)
        if not raw:
            return None
        self._number += 1
        if len(raw) > self._limit and not raw.endswith(b"\n"):
            while (rest := self._stream.readline(PORTION)) and not rest.endswith(b"\n"):
                pass
            return self._bad(raw, f"the line has more than {self._limit:,} bytes")
        if b"\0" in raw:
            return self._bad(raw, "holds a NUL character")
        try:
            return TextLine(self._decoded(raw), self._number)
        except UnicodeDecodeError as error:
            return self._bad(raw, f"cannot be read as {self.encoding}: byte {error.start + 1} of the line is wrong")

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
        return TextLine(excerpt[:EXCERPT], self._number, fault)


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
    """Text with plain line ends, as UTF-8 if it is UTF-16. What is no text becomes bytes that are no UTF-8, and so a
    bad line later.
    """

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        # Bytes of other encodings pass through Latin-1, in which every byte stands for itself.
        source, self._target = (encoding, "utf-8") if encoding in TURNED else ("latin-1", "latin-1")
        decoder = codecs.getincrementaldecoder(source)("surrogatepass")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._ready:
            raw = self._file.read(PORTION)
            try:
                self._ready = self._decoder.decode(raw, final=not raw).encode(self._target, "surrogatepass")
            except UnicodeDecodeError:  # the last character is cut in the middle
                self._decoder.reset()
                self._ready = b"\xff"
            if not raw:
                break
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
