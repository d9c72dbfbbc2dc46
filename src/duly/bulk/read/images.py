"""Images, alone or in a zip file: their format and size, and a thumbnail of each.

An image is measured before it is decoded: what decoding will take follows from its pixels and its format, and must be
below a limit. Names of a zip file are only names here; nothing is ever written where they lead.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Literal
from zipfile import ZipFile, ZipInfo

from PIL import Image, ImageOps, UnidentifiedImageError

from duly.bulk.read.archive import BROKEN, objection, open_archive
from duly.bulk.read.rows import MIB, BadRow, FileRow, Reading, ReadLimits, Shape
from duly.core.errors import InputError

# Bytes of memory that a pixel takes while an image of this format is decoded and made small, at its worst.
COST = {"JPEG": 2, "PNG": 5, "GIF": 6, "WEBP": 13}
PROGRESSIVE = 6  # more, for a JPEG that comes in passes, which is kept as a whole meanwhile
ALPHA = 4  # more, for a copy in which colours are weighed by how much is seen of them
COLUMNS = ("name", "format", "width", "height", "bytes", "sha256")
PORTION = 64 * 1024
IN_MEMORY = 4 * MIB

# What Pillow raises over damaged and contrived images.
UNREADABLE = (
    OSError, ValueError, SyntaxError, EOFError, OverflowError, IndexError, KeyError, TypeError, MemoryError,
    AttributeError, ZeroDivisionError, Image.DecompressionBombError,
)  # fmt: skip


class Images(Reading):
    def __init__(self, file: BinaryIO, name: str, kind: Literal["image", "images"], limits: ReadLimits) -> None:
        self._file = file
        self._name = name
        self._limits = limits
        self._archive: ZipFile | None = None
        if kind == "images":
            self._archive = open_archive(file, limits)
            if not any(_is_wanted(entry) for entry in self._archive.infolist()):
                raise InputError("file", f"{name} holds no files")
        self.shape = Shape(kind=kind, columns=COLUMNS)

    def __iter__(self) -> Iterator[FileRow]:
        if self._archive is None:
            yield _row(1, 1, self._name, self._file, self._limits)
            return
        lines = enumerate(self._archive.infolist(), 1)
        wanted = ((line, entry) for line, entry in lines if _is_wanted(entry))
        for number, (line, entry) in enumerate(wanted, 1):
            try:
                with _unpacked(self._archive, entry, self._limits) as file:
                    row = _row(number, line, entry.filename, file, self._limits)
            except BadRow as bad:
                row = FileRow(number, line, {"name": _shown(entry.filename)}, bad.reason)
            yield row

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()


def _is_wanted(entry: ZipInfo) -> bool:
    """False for folders and for files that operating systems add to archives."""
    name = entry.filename.replace("\\", "/").rpartition("/")[2]
    return bool(name) and not name.startswith(".") and "__MACOSX/" not in entry.filename and name != "Thumbs.db"


@contextmanager
def _unpacked(archive: ZipFile, entry: ZipInfo, limits: ReadLimits) -> Iterator[IO[bytes]]:
    problem = objection(entry) or _name_objection(entry.filename)
    if problem:
        raise BadRow(problem)
    if entry.file_size > limits.image_bytes:
        raise BadRow(f"has {entry.file_size:,} bytes; {limits.image_bytes:,} is the limit")
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as unpacked:
        try:
            with archive.open(entry) as stream:
                while portion := stream.read(PORTION):
                    unpacked.write(portion)
        except BROKEN as error:
            raise BadRow(f"is damaged: {error}") from None
        unpacked.seek(0)
        yield unpacked


def _name_objection(name: str) -> str | None:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or ":" in parts[0] or not name.isprintable():
        return "has a name that leads out of the archive"
    return None


def _row(number: int, line: int, name: str, file: IO[bytes], limits: ReadLimits) -> FileRow:
    values: dict[str, Any] = {"name": _shown(name)}
    try:
        values["sha256"], values["bytes"] = _digest(file, limits)
        values["format"], values["width"], values["height"], thumbnail = _looked_at(file, limits)
    except BadRow as bad:
        return FileRow(number, line, values, bad.reason)
    return FileRow(number, line, values, thumbnail=thumbnail)


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name[:500])


def _digest(file: IO[bytes], limits: ReadLimits) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while portion := file.read(PORTION):
        digest.update(portion)
        size += len(portion)
        if size > limits.image_bytes:
            raise BadRow(f"has more than {limits.image_bytes:,} bytes")
    file.seek(0)
    return digest.hexdigest(), size


def _looked_at(file: IO[bytes], limits: ReadLimits) -> tuple[str, int, int, bytes]:
    """Format, width, height and a thumbnail."""
    try:
        with Image.open(file, formats=tuple(COST)) as image:
            kind, (width, height) = str(image.format), image.size
            if width * height * _cost(image) > limits.decoded_bytes:
                raise BadRow(f"has {width:,} × {height:,} pixels, which is too much to decode")
            return kind, width, height, _thumbnail(image, limits.thumbnail)
    except UnidentifiedImageError:  # its text names a Python object and has no other information
        raise BadRow("is not an image that can be read: send JPEG, PNG, GIF or WebP") from None
    except UNREADABLE as error:
        raise BadRow(f"is not an image that can be read: {error}"[:300]) from None


def _cost(image: Image.Image) -> int:
    cost = COST[str(image.format)]
    if image.info.get("progressive"):
        cost += PROGRESSIVE
    return cost + ALPHA if image.mode in ("RGBA", "LA") else cost


def _thumbnail(image: Image.Image, longest: int) -> bytes:
    image.thumbnail((longest, longest))
    small = ImageOps.exif_transpose(image)
    if small.mode not in ("RGB", "RGBA"):
        has_alpha = "transparency" in small.info or small.mode in ("LA", "PA", "La")
        small = small.convert("RGBA" if has_alpha else "RGB")
    out = io.BytesIO()
    small.save(out, "WEBP", quality=80)
    return out.getvalue()
