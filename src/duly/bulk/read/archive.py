"""Opens untrusted zip files: the size of the directory is bounded, and so is the declared unpacked size.

An entry cannot give more than its directory says it has (zipfile stops there and finds the checksum wrong), so adding
up what the directory says is enough against bombs, also against entries that overlap. Only the usual compression is
unpacked: the others may ask for gigabytes of memory by a single number.
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from duly.bulk.read.rows import MIB, ReadLimits
from duly.core.errors import InputError

DIRECTORY = 4 * MIB  # of bytes; an entry's name and numbers take some 600 bytes of memory once it is read

# What zipfile raises over a damaged or contrived file.
DAMAGE = (BadZipFile, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError, struct.error)
BROKEN = (*DAMAGE, zlib.error)


def names_in(file: BinaryIO) -> frozenset[str]:
    """What is in this zip file; nothing when its directory cannot be read, which `open_archive` reports."""
    try:
        with ZipFile(_bounded(file)) as archive:
            return frozenset(archive.NameToInfo)
    except (InputError, *DAMAGE):
        return frozenset()


def open_archive(file: BinaryIO, limits: ReadLimits) -> ZipFile:
    """The archive in this file; InputError when it is damaged, or would be too much."""
    try:
        archive = ZipFile(_bounded(file))
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError("file", f"is not a whole zip file ({error}); send it again") from None
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise InputError("file", f"has {len(entries):,} entries; {limits.entries:,} is the limit")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.unpacked_bytes:
        raise InputError("file", f"would unpack to {unpacked:,} bytes; {limits.unpacked_bytes:,} is the limit")
    return archive


def objection(entry: ZipInfo) -> str | None:
    """Why this entry is not unpacked; None when it may be."""
    if entry.flag_bits & 0x1:
        return "is encrypted"
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return "is compressed in a way that is not read here"
    return None


class _Bounded:
    """The file as zipfile reads it, which takes in the whole directory at once: that one must not be endless."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > DIRECTORY:
            raise InputError("file", f"has a directory of more than {DIRECTORY:,} bytes")
        return self._file.read(size if size >= 0 else DIRECTORY)

    def close(self) -> None:
        """The file is its owner's to close."""


def _bounded(file: BinaryIO) -> IO[bytes]:
    return cast(IO[bytes], _Bounded(file))
