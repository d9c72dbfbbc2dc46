"""Files that are made to hurt. Each is written to a path, at a size that its test chooses."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from tests.bulk.read.support import MAIN, inline, workbook_parts

MB = 1_000_000
SHEET = "xl/worksheets/sheet1.xml"
TEXTS = "xl/sharedStrings.xml"


def one_line(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * MB)


def nothing_but_nul(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        file.write(b"title\n")
        file.truncate(megabytes * MB)


def open_quotes(path: Path, megabytes: float) -> None:
    path.write_bytes(b"a,b\n" + b'1,"x\n' * int(megabytes * MB / 5))


def newlines_in_a_quote(path: Path, megabytes: float) -> None:
    path.write_bytes(b'a,b\n1,"' + b"\n" * int(megabytes * MB))


def part_of_a_workbook(path: Path, part: str, head: str, again: str, tail: str, megabytes: int) -> None:
    """A workbook in which one part is `head`, then megabytes of `again`, then `tail`."""
    parts = workbook_parts(f'<worksheet xmlns="{MAIN}"><sheetData>{inline("a")}</sheetData></worksheet>')
    parts.pop(part, None)
    portion = (again * (MB // len(again))).encode()
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        with archive.open(part, "w", force_zip64=True) as stream:
            stream.write(head.encode())
            for _ in range(megabytes):
                stream.write(portion)
            stream.write(tail.encode())


def many_entries(path: Path, count: int) -> None:
    """A zip file whose directory has this many entries, written by hand because nobody else would."""
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a"
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    shown = min(count, 0xFFFF)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, shown, shown, len(entry) * count, len(local), 0)
    with path.open("wb") as file:
        file.write(local)
        for _ in range(count // 1000):
            file.write(entry * 1000)
        file.write(end)


def declared(content: bytes, name: str, size: int) -> bytes:
    """The same zip file, whose directory says that this entry unpacks to so many bytes."""
    at = content.rindex(name.encode()) - 46
    assert content[at : at + 4] == b"PK\x01\x02"
    return content[: at + 24] + struct.pack("<I", size) + content[at + 28 :]


def bomb_png(width: int, height: int) -> bytes:
    """A picture that is small as a file and huge as pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(1)
    line = b"\0" * (width + 1)
    packed = b"".join(packer.compress(line) for _ in range(min(height, 2000))) + packer.flush()
    head = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def nested(depth: int) -> bytes:
    """Zips in zips."""
    content = b"x" * 1000
    for level in range(depth):
        out = io.BytesIO()
        with ZipFile(out, "w", ZIP_DEFLATED) as archive:
            for n in range(5):
                archive.writestr(f"{level}-{n}.zip", content)
        content = out.getvalue()
    return content
