"""More rows than a sheet of Excel has: what `tests/bulk/export` shows with small sheets."""

from __future__ import annotations

import io
from pathlib import Path

import python_calamine

from duly.bulk.export import stream
from duly.bulk.read import Options, open_rows

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
            with open_rows(file, path.name, options=Options(sheet=sheet)) as reading:
                for row in reading:
                    assert row.values == {"n": read, "text": f"text {read}"}
                    read += 1
    assert read == ROWS
