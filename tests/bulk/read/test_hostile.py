"""Files that are made to hurt: a clear error or bad rows, in bounded memory. `make chaos` has them at full size."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InputError
from tests.bulk.read import hostile
from tests.bulk.read.child import read_apart
from tests.bulk.read.hostile import SHEET, TEXTS
from tests.bulk.read.support import MAIN, inline, opened, rows_of, workbook, workbook_parts, zipped

HEAD = f'<worksheet xmlns="{MAIN}"><sheetData>{inline("a")}'


def test_a_single_endless_line_is_refused(tmp_path: Path) -> None:
    hostile.one_line(tmp_path / "line.csv", 64)
    told = read_apart(tmp_path / "line.csv")
    assert told["error"] == "file: line 1, the first row: the line has more than 1,048,576 bytes"


def test_an_endless_line_further_down_is_a_bad_row(tmp_path: Path) -> None:
    hostile.nothing_but_nul(tmp_path / "nul.csv", 60)
    told = read_apart(tmp_path / "nul.csv")
    assert (told["rows"], told["faults"]) == (1, 1)
    hostile.nothing_but_nul(tmp_path / "nul.jsonl", 60)
    assert "line 1: is not JSON" in read_apart(tmp_path / "nul.jsonl")["error"]


def test_open_quotes_and_newlines_in_quotes_do_not_pile_up(tmp_path: Path) -> None:
    hostile.open_quotes(tmp_path / "quotes.csv", 0.3)
    told = read_apart(tmp_path / "quotes.csv")
    assert told["rows"] == told["faults"] > 20_000
    hostile.newlines_in_a_quote(tmp_path / "newlines.csv", 0.5)
    told = read_apart(tmp_path / "newlines.csv")
    assert (told["rows"], told["faults"]) == (1, 1)


def test_a_million_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_bytes(b",".join(b"c" for _ in range(500_000)))
    assert "has 500,000 columns; 1,000 is the limit" in read_apart(tmp_path / "wide.csv")["error"]
    (tmp_path / "wide2.csv").write_bytes(b"a,b\n1,2\n" + (b"12," * 300_000 + b"\n") * 20 + b"3,4\n")
    told = read_apart(tmp_path / "wide2.csv")
    assert (told["rows"], told["faults"]) == (22, 20)
    assert told["first_fault"] == "has 300,001 cells where there are 2 columns"


@pytest.mark.parametrize(
    ("part", "head", "again", "tail", "problem"),
    [
        (SHEET, f'{HEAD}<row a="', "x", '"/>', "has a tag of more than 1,048,576 bytes"),
        (SHEET, f"{HEAD}<!--", "x", "-->", "has a tag of more than 1,048,576 bytes"),
        (SHEET, HEAD, "<a>", "", "is nested more than 64 levels deep"),
        (SHEET, f'{HEAD}<row><c t="inlineStr"><is><t>', "x", "</t></is></c></row>", "the row has more than"),
        (SHEET, f"{HEAD}<row>", '<c t="inlineStr"><is><t>x</t></is></c>', "</row>", "has a value in column ALM"),
        (TEXTS, f'<sst xmlns="{MAIN}"><si><t>', "x", "</t></si></sst>", None),
        (TEXTS, f'<sst xmlns="{MAIN}">', "<si><t>a text that is shared</t></si>", "</sst>", None),
        (SHEET, HEAD, "<row/>", "", "not well-formed"),
    ],
)
def test_a_workbook_cannot_make_memory_grow(
    tmp_path: Path, part: str, head: str, again: str, tail: str, problem: str | None
) -> None:
    megabytes = 60 if again == "x" else 3  # tags take their time, and would pile up just as well
    hostile.part_of_a_workbook(tmp_path / "book.xlsx", part, head, again, tail, megabytes)
    told = read_apart(tmp_path / "book.xlsx")
    said = told["error"] or told["first_fault"]
    assert problem is None or problem in said, said
    assert told["peak_mb"] < 120, told


def test_a_workbook_that_keeps_inventing_names_is_refused() -> None:
    names = "".join(f"<n{n}/>" for n in range(20_000))
    (row,) = rows_of(workbook(inline("a") + inline("1") + names))[1:]
    assert "uses more than 10,000 different names" in str(row.fault)


@pytest.mark.parametrize("part", ["xl/workbook.xml", "xl/_rels/workbook.xml.rels", TEXTS, "xl/styles.xml", SHEET])
def test_document_types_are_refused_in_every_part(part: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    parts = workbook_parts(f"{HEAD}</sheetData></worksheet>", texts="<sst/>", styles="<styleSheet/>")
    parts[part] = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><x>&e;</x>'
    with pytest.raises(InputError, match="declares a document type"):
        opened(zipped(parts))
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(10))
    parts[part] = f"<!DOCTYPE x [{laughs}]><x>&l9;</x>"
    with pytest.raises(InputError, match="declares a document type"):
        opened(zipped(parts))


def test_a_huge_declared_range_costs_nothing(tmp_path: Path) -> None:
    sheet = (
        f'<worksheet xmlns="{MAIN}"><dimension ref="A1:XFD1048576"/><sheetData>{inline("a")}'
        '<row r="1048576"><c r="A1048576"><v>1</v></c></row></sheetData></worksheet>'
    )
    (tmp_path / "range.xlsx").write_bytes(zipped(workbook_parts(sheet)))
    told = read_apart(tmp_path / "range.xlsx")
    assert (told["rows"], told["faults"]) == (1, 0)
    assert told["peak_mb"] < 80


def test_macros_are_refused() -> None:
    parts = workbook_parts(f"{HEAD}</sheetData></worksheet>")
    with pytest.raises(InputError, match="holds macros"):
        opened(zipped({**parts, "xl/vbaProject.bin": b"macro"}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "file.csv is empty"),
        (b"\n \n", "holds nothing but blanks"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1rest", "save it as .xlsx"),
        (b"%PDF-1.7", "is a PDF"),
        (b"\x1f\x8b\x08", "unpack it first"),
        (b"<!DOCTYPE html><table>", "is a web page or XML"),
        (b"PK\x03\x04 and no more", "is not a whole zip file"),
        (workbook(inline("a"))[:-30], "is not a whole zip file"),
        (zipped({"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "<workbook/>"}), "is not a whole workbook"),
        (zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": "<d/>"}), "but not a workbook of Excel's"),
        (zipped({"mimetype": "application/vnd.oasis", "content.xml": "<d/>"}), "is an OpenDocument file"),
        (zipped({**workbook_parts("<x"), "x": b""}), "is not well-formed"),
        (b"a,b\n", None),
    ],
)
def test_what_is_no_table_is_told_for_what_it_is(content: bytes, problem: str | None) -> None:
    if problem is None:
        assert rows_of(content) == []
        return
    with pytest.raises(InputError, match=problem):
        opened(content)


def test_the_content_decides_and_not_the_name() -> None:
    assert rows_of(workbook(inline("a") + inline("1")), "table.csv")[0].values == {"a": "1"}
    assert rows_of("a,b\n1,2\n", "table.xlsx")[0].values == {"a": "1", "b": "2"}


BOOK = workbook(
    inline("a", "b") + inline("1", "2") + '<row><c t="s"><v>0</v></c></row>', texts="<sst><si><t>x</t></si></sst>"
)
PICTURES = zipped({"a.png": hostile.bomb_png(4, 4), "b.png": hostile.bomb_png(3, 3)})


LINES = b'a,b,c\n1,"x, y",z\n2,"q ""w""",\xc3\xa9\n3,,\n' * 3
OBJECTS = b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n' * 3


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([BOOK, PICTURES, LINES, LINES.decode().encode("utf-16"), OBJECTS]),
    st.lists(st.tuples(st.integers(0, 3_000), st.binary(max_size=4), st.integers(0, 9)), min_size=1, max_size=4),
)
def test_damage_anywhere_gives_rows_or_a_clear_error(whole: bytes, damages: list[tuple[int, bytes, int]]) -> None:
    damaged = whole
    for at, put_in, left_out in damages:
        at %= len(damaged) + 1
        damaged = damaged[:at] + put_in + damaged[at + left_out :]
    try:
        with opened(damaged) as reading:
            rows = list(reading)
    except InputError:
        return
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert rows_of(damaged) == rows, "also a damaged file is read the same way twice"
