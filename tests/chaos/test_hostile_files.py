"""Files that are made to hurt, at full size: what `tests/bulk/read/test_hostile.py` shows with small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bulk.read import hostile
from tests.bulk.read.child import read_apart
from tests.bulk.read.hostile import SHEET, TEXTS
from tests.bulk.read.support import MAIN, inline, workbook_parts, zipped

HEAD = f'<worksheet xmlns="{MAIN}"><sheetData>{inline("a")}'


def test_a_line_of_a_gigabyte(tmp_path: Path) -> None:
    hostile.one_line(tmp_path / "line.csv", 1_000)
    assert "the line has more than" in read_apart(tmp_path / "line.csv")["error"]
    hostile.nothing_but_nul(tmp_path / "nul.csv", 1_000)
    told = read_apart(tmp_path / "nul.csv")
    assert (told["rows"], told["faults"]) == (1, 1)


def test_quotes_that_are_never_closed(tmp_path: Path) -> None:
    hostile.open_quotes(tmp_path / "quotes.csv", 10)
    assert read_apart(tmp_path / "quotes.csv")["faults"] > 1_000_000
    hostile.newlines_in_a_quote(tmp_path / "newlines.csv", 10)
    assert read_apart(tmp_path / "newlines.csv")["faults"] == 1


@pytest.mark.parametrize(
    ("part", "head", "again", "tail"),
    [
        (SHEET, f'{HEAD}<row a="', "x", '"/>'),
        (SHEET, f'{HEAD}<row><c t="inlineStr"><is><t>', "x", "</t></is></c></row>"),
        (SHEET, f"{HEAD}<row>", '<c t="inlineStr"><is><t>x</t></is></c>', "</row>"),
        (TEXTS, f'<sst xmlns="{MAIN}"><si><t>', "x", "</t></si></sst>"),
        (TEXTS, f'<sst xmlns="{MAIN}">', "<si><t/></si>", "</sst>"),
        (TEXTS, f'<sst xmlns="{MAIN}">', f"<si><t>{'a text that is shared ' * 5}</t></si>", "</sst>"),
    ],
)
def test_parts_of_a_workbook_that_unpack_to_hundreds_of_megabytes(
    tmp_path: Path, part: str, head: str, again: str, tail: str
) -> None:
    hostile.part_of_a_workbook(tmp_path / "book.xlsx", part, head, again, tail, 900 if again == "x" else 200)
    told = read_apart(tmp_path / "book.xlsx")
    print(told)


def test_a_million_rows_are_read_in_flat_memory(tmp_path: Path) -> None:
    peaks = []
    for rows in (10_000, 1_000_000):
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("title,brand,sku,price\n")
            file.writelines(f'"Kettle, {n}",Acme,SKU-{n},{n}.50\n' for n in range(rows))
        told = read_apart(path)
        assert (told["rows"], told["faults"]) == (rows, 0)
        peaks.append(told["peak_mb"])
        with (tmp_path / f"{rows}.xlsx").open("wb") as out:
            out.write(_book(rows))
        told = read_apart(tmp_path / f"{rows}.xlsx")
        assert (told["rows"], told["faults"]) == (rows, 0)
        print(rows, peaks[-1], told["peak_mb"])
    assert peaks[1] < 1.3 * peaks[0]


def _book(rows: int) -> bytes:
    cells = "".join(f'<row><c t="s"><v>{n}</v></c><c><v>{n}.5</v></c></row>' for n in range(rows))
    texts = "".join(f"<si><t>A kettle of the kind that is number {n}</t></si>" for n in range(rows))
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{inline("title", "price")}{cells}</sheetData></worksheet>'
    return zipped(workbook_parts(sheet, texts=f'<sst xmlns="{MAIN}">{texts}</sst>'))
