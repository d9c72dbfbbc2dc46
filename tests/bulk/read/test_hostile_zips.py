"""Zip files and pictures that are made to hurt: a clear error or bad rows, in bounded memory."""

from __future__ import annotations

import io
from pathlib import Path
from zipfile import ZIP_LZMA, ZipFile

import pytest
from PIL import Image

from duly.errors import InputError
from tests.bulk.read import hostile
from tests.bulk.read.child import read_apart
from tests.bulk.read.hostile import SHEET
from tests.bulk.read.support import MAIN, inline, opened, rows_of, workbook, zipped

HEAD = f'<worksheet xmlns="{MAIN}"><sheetData>{inline("a")}'


def test_bombs_are_refused_by_what_they_say_and_cannot_lie() -> None:
    book = workbook(inline("a") + inline("x" * 5_000))
    with pytest.raises(InputError, match=r"would unpack to .* bytes; 1,000 is the limit"):
        opened(book, unpacked_bytes=1_000)
    with pytest.raises(InputError, match="is damaged"):
        opened(hostile.declared(book, SHEET, 300))
    long = workbook(inline("a") + inline("a text to fill a row") * 5_000)
    rows = rows_of(hostile.declared(long, SHEET, 200_000))
    assert "cannot be read from here on" in str(rows[-1].fault), "an entry gives no more than it says"
    assert len(rows) > 1_000
    pictures = hostile.declared(zipped({"a.png": b"x" * 5_000}), "a.png", 100)
    (row,) = rows_of(pictures)
    assert "is damaged" in str(row.fault)


def test_endless_directories_are_refused(tmp_path: Path) -> None:
    hostile.many_entries(tmp_path / "many.zip", 1_000_000)
    assert "has a directory of more than" in read_apart(tmp_path / "many.zip")["error"]
    hostile.many_entries(tmp_path / "some.zip", 60_000)
    assert "has 60,000 entries; 20,000 is the limit" in read_apart(tmp_path / "some.zip")["error"]


def test_zips_in_zips_are_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "nested.zip").write_bytes(hostile.nested(6))
    told = read_apart(tmp_path / "nested.zip")
    assert (told["rows"], told["faults"]) == (5, 5)


def test_odd_compression_and_passwords_are_told() -> None:
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_LZMA) as archive:
        archive.writestr("a.png", b"x")
    (row,) = rows_of(out.getvalue())
    assert row.fault == "is compressed in a way that is not read here"
    locked = bytearray(zipped({"a.png": b"x" * 100}))
    locked[locked.rindex(b"PK\x01\x02") + 8] |= 1
    (row,) = rows_of(bytes(locked))
    assert row.fault == "is encrypted"
    book = bytearray(workbook(inline("a")))
    book[book.rindex(SHEET.encode()) - 46 + 8] |= 1
    with pytest.raises(InputError, match=f"{SHEET} is encrypted"):
        opened(bytes(book))


def test_a_picture_of_a_billion_pixels_is_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(hostile.bomb_png(30_000, 30_000))
    told = read_apart(tmp_path / "bomb.png")
    assert "is too much to decode" in told["first_fault"] or "could be decompression bomb" in told["first_fault"]
    assert told["peak_mb"] < 100


@pytest.mark.parametrize(
    ("kind", "mode", "side", "more"),
    [
        ("PNG", "RGBA", 4_000, {"compress_level": 1}),
        ("PNG", "RGB", 5_400, {"compress_level": 1}),
        ("JPEG", "RGB", 8_500, {}),
        ("JPEG", "RGB", 4_300, {"progressive": True, "subsampling": 0}),
        ("WEBP", "RGBA", 2_900, {"lossless": True, "quality": 0, "method": 0}),
        ("WEBP", "RGB", 3_300, {"lossless": True, "quality": 0, "method": 0}),
        ("GIF", "P", 4_900, {}),
    ],
)
def test_the_largest_pictures_that_are_decoded_fit_into_memory(
    tmp_path: Path, kind: str, mode: str, side: int, more: dict[str, int]
) -> None:
    path = tmp_path / f"large.{kind.lower()}"
    Image.new(mode, (side, side)).save(path, kind, **more)
    told = read_apart(path)
    assert (told["rows"], told["faults"]) == (1, 0), told
    assert told["peak_mb"] < 220
