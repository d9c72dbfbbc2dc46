"""More rows than a sheet of Excel has, and a look by LibreOffice: what `tests/bulk/export` shows with small sheets."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import python_calamine

from debian import ensure_debian
from duly.bulk.export import SheetLimits, stream
from duly.bulk.read import ReadOptions, open_rows
from tests.bulk.export.test_export import ODD

ROWS = 1_100_000


def test_a_workbook_of_more_than_a_million_rows_has_two_sheets(tmp_path: Path) -> None:
    path = tmp_path / "large.xlsx"
    with path.open("wb") as out:
        for portion in stream("xlsx", ["n", "text"], ([n, f"text {n}"] for n in range(ROWS))):
            out.write(portion)
    book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(path.read_bytes()))
    assert [book.get_sheet_by_name(name).height for name in book.sheet_names] == [1_048_576, ROWS - 1_048_575 + 1]
    read = 0
    with path.open("rb") as file:
        for sheet in ("Rows", "Rows 2"):
            with open_rows(file, path.name, options=ReadOptions(sheet=sheet)) as reading:
                for row in reading:
                    assert row.values == {"n": read, "text": f"text {read}"}
                    read += 1
    assert read == ROWS


def test_libreoffice_reads_what_was_written(tmp_path: Path) -> None:
    soffice = ensure_debian("libreoffice-calc-nogui", "/usr/bin/soffice")
    texts = [value for value in ODD if isinstance(value, str) and "\r" not in value and not value.startswith("_x")]
    rows = [[n, value] for n, value in enumerate(texts)]
    path = tmp_path / "odd.xlsx"
    path.write_bytes(b"".join(stream("xlsx", ["n", "text"], rows, SheetLimits(rows=10))))
    # Commas, quotes, UTF-8, every sheet in a file of its own.
    as_csv = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false,false,false,-1"
    home = f"-env:UserInstallation={(tmp_path / 'home').as_uri()}"
    command = [soffice, home, "--headless", "--convert-to", as_csv, "--outdir", tmp_path / "out", path]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    read = {}
    for sheet in (tmp_path / "out").iterdir():
        with sheet.open(encoding="utf-8-sig", newline="") as file:
            headers, *cells = csv.reader(file)
        assert headers == ["n", "text"]
        read |= {int(n): text for n, text in cells}
    assert [read[n] for n in range(len(texts))] == texts
