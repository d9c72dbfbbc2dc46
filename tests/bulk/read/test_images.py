"""Images and zips of images: what they are, and a thumbnail of each."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest
from PIL import Image

from duly.errors import InputError
from tests.bulk.read.support import opened, rows_of, zipped


def painted(kind: str, size: tuple[int, int] = (640, 480), mode: str = "RGB", **more: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 0 if mode in ("L", "P", "I;16", "1") else "red").save(out, kind, **more)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP"])
def test_an_image_is_one_row_with_what_it_is_and_a_thumbnail(kind: str) -> None:
    content = painted(kind)
    with opened(content, "pot.bin") as reading:
        assert reading.shape.kind == "image"
        (row,) = reading
    assert row.fault is None
    assert row.values == {
        "name": "pot.bin",
        "format": kind,
        "width": 640,
        "height": 480,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert row.thumbnail is not None
    with Image.open(io.BytesIO(row.thumbnail)) as small:
        assert (small.format, small.size) == ("WEBP", (256, 192))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_pixels_has_a_thumbnail(mode: str) -> None:
    (row,) = rows_of(painted("JPEG" if mode == "CMYK" else "PNG", mode=mode))
    assert row.fault is None
    assert row.thumbnail


def test_a_thumbnail_stands_as_the_camera_was_held() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    (row,) = rows_of(painted("JPEG", exif=turned))
    assert row.thumbnail is not None
    with Image.open(io.BytesIO(row.thumbnail)) as small:
        assert small.size == (192, 256)


def test_a_zip_has_a_row_for_each_file_and_bad_ones_are_told() -> None:
    pot, pan = painted("JPEG"), painted("PNG", (10, 10))
    content = zipped(
        {
            "pictures/": b"",
            "pictures/pot.jpg": pot,
            "__MACOSX/pictures/._pot.jpg": b"left behind",
            "pictures/.DS_Store": b"left behind",
            "notes.txt": b"no picture",
            "../../etc/passwd.png": pan,
            "/root.png": pan,
            "C:\\windows.png": pan,
            "inner.zip": zipped({"deeper.jpg": pot}),
            "cut.jpg": pot[:400],
            "pan.jpg": pan,
        }
    )
    with opened(content, "pictures.zip") as reading:
        assert reading.shape.kind == "images"
        rows = list(reading)
    assert [(row.number, row.line, row.values["name"]) for row in rows if row.fault is None] == [
        (1, 2, "pictures/pot.jpg"),
        (8, 11, "pan.jpg"),
    ]
    outside = "has a name that leads out of the archive"
    assert [row.fault for row in rows if row.number in (3, 4, 5)] == [outside] * 3
    assert "0x" not in str(rows[1].fault), "no names of Python's objects"
    assert all("is not an image that can be read" in str(row.fault) for row in rows if row.number in (2, 6, 7))


def test_too_many_pixels_and_bytes_are_not_decoded() -> None:
    (row,) = rows_of(painted("PNG", (1000, 1000)), decoded_bytes=4_000_000)
    assert row.fault == "has 1,000 × 1,000 pixels, which is too much to decode"
    assert row.thumbnail is None
    (row,) = rows_of(painted("JPEG", (1000, 1000), progressive=True), decoded_bytes=4_000_000)
    assert row.fault == "has 1,000 × 1,000 pixels, which is too much to decode"
    (row,) = rows_of(painted("JPEG", (1000, 1000)), decoded_bytes=4_000_000)
    assert row.fault is None
    (row,) = rows_of(painted("PNG"), image_bytes=100)
    assert row.fault == "has more than 100 bytes"
    (row,) = rows_of(zipped({"a.png": painted("PNG")}), image_bytes=100)
    assert str(row.fault).endswith("bytes; 100 is the limit")


def test_a_zip_without_files_is_refused() -> None:
    with pytest.raises(InputError, match=r"empty.zip holds no files"):
        opened(zipped({"folder/": b""}), "empty.zip")
