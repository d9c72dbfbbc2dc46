"""Workbooks: what other programs write is read as it is meant, row by row."""

from __future__ import annotations

import io
from datetime import date, datetime, time
from typing import Any

import openpyxl
import pytest

from duly.bulk.read.xlsx.sheet import moment
from duly.errors import InputError
from tests.bulk.read.support import MAIN, REL, inline, opened, rows_of, values_of, workbook, workbook_parts, zipped

# A spreadsheet knows no zones.
NOON = datetime.fromisoformat("2026-03-01T12:00:00")
LATE = datetime.fromisoformat("1999-12-31T23:59:59")


def written(*rows: list[Any], sheets: tuple[str, ...] = ("One",), since_1904: bool = False) -> bytes:
    """A workbook by openpyxl, with these rows in the last of its sheets."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name in sheets:
        book.create_sheet(name)
    if since_1904:
        book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    for row in rows:
        book.worksheets[-1].append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def test_cells_have_the_values_that_they_show() -> None:
    content = written(
        ["title", "price", "stock", "sold", "on", "at", "hour", "ean", "blank"],
        ["Pot & <pan>", 3.5, 12, True, date(2026, 3, 1), NOON, time(9, 30), 4006381333931, None],
        ["é\n\u6f22\U0001f600", -0.1, 0, False, date(1900, 1, 1), LATE, time(0), 1e300],
    )
    with opened(content, "file.xlsx") as reading:
        assert reading.shape.kind == "xlsx"
        assert (reading.shape.sheet, reading.shape.sheets) == ("One", ("One",))
        rows = list(reading)
    assert [list(row.values.values()) for row in rows] == [
        ["Pot & <pan>", 3.5, 12, True, "2026-03-01", "2026-03-01T12:00:00", "09:30:00", 4006381333931, None],
        ["é\n\u6f22\U0001f600", -0.1, 0, False, "1900-01-01", "1999-12-31T23:59:59", "00:00:00", 1e300, None],
    ]
    assert [(row.number, row.line) for row in rows] == [(1, 2), (2, 3)]


def test_days_are_counted_from_1904_where_the_workbook_says_so() -> None:
    content = written(["on", "n"], [NOON, 1], since_1904=True)
    assert values_of(content)[0] == {"on": "2026-03-01T12:00:00", "n": 1}


def test_days_that_never_were_stay_numbers() -> None:
    assert moment(59, False) == "1900-02-28"
    assert moment(61, False) == "1900-03-01"
    assert moment(2_958_465, False) == "9999-12-31"
    assert moment(2_958_466, False) == 2_958_466
    assert moment(-5, False) == -5
    assert moment(0.5, True) == "12:00:00"


def test_a_style_is_a_date_by_its_format() -> None:
    formats = ["0.00", "yyyy-mm-dd", '"day" 0', "[Red]0", "[h]:mm", "d. mmm;@", "\\d0"]
    styles = (
        f'<styleSheet xmlns="{MAIN}"><numFmts>'
        + "".join(
            f'<numFmt numFmtId="{164 + n}" formatCode="{f.replace(chr(34), "&quot;")}"/>' for n, f in enumerate(formats)
        )
        + '</numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs>'
        + "".join(f'<xf numFmtId="{n}"/>' for n in (0, 14, *range(164, 164 + len(formats))))
        + "</cellXfs></styleSheet>"
    )
    cells = "".join(f'<c s="{n}"><v>46082</v></c>' for n in range(len(formats) + 3))
    read = values_of(workbook(f"<row>{cells}</row>", styles=styles), header=False)[0]
    day = "2026-03-01"
    assert list(read.values()) == [46082, day, 46082, day, 46082, 46082, 46082, day, 46082, 46082]


def test_texts_are_shared_or_stand_in_the_cell() -> None:
    texts = (
        f'<sst xmlns="{MAIN}"><si><t>title</t></si><si><r><t>rich </t></r><r><t>text</t></r>'
        "<rPh><t>aid</t></rPh></si><si><t>tab_x0009_and _x005F_x0009_</t></si><si><t>_xD83D__xDE00_</t></si></sst>"
    )
    rows = "".join(f'<row><c t="s"><v>{n}</v></c></row>' for n in range(4))
    read = values_of(workbook(rows, texts=texts))
    assert [row["title"] for row in read] == ["rich text", "tab\tand _x0009_", "\U0001f600"]


def test_texts_that_do_not_fit_into_memory_wait_on_disk() -> None:
    names = [f"text {n} é" for n in range(5_000)]
    texts = (
        f'<sst xmlns="{MAIN}"><si><t>title</t></si>' + "".join(f"<si><t>{name}</t></si>" for name in names) + "</sst>"
    )
    rows = "".join(f'<row><c t="s"><v>{n}</v></c></row>' for n in range(5_001))
    read = values_of(workbook(rows, texts=texts), texts_bytes=1_000)
    assert [row["title"] for row in read] == names
    with pytest.raises(InputError, match="has more than 100 different texts"):
        opened(workbook(rows, texts=texts), texts=100)


def test_a_formula_gives_what_was_stored_with_it() -> None:
    rows = rows_of(
        workbook(
            inline("sum", "name")
            + '<row><c><f>1+2</f><v>3</v></c><c t="str"><f>A1</f><v>x</v></c></row>'
            + "<row><c><f>1+2</f></c></row>"
            + '<row><c t="e"><f>1/0</f><v>#DIV/0!</v></c><c t="str"><f>A1</f><v></v></c></row>'
        )
    )
    assert [row.values for row in rows] == [
        {"sum": 3, "name": "x"},
        {"sum": None, "name": None},
        {"sum": "#DIV/0!", "name": None},
    ]
    assert [row.fault for row in rows][::2] == [None, None]
    assert rows[1].fault is not None
    assert rows[1].fault.startswith("cell A3 is a formula without a stored value")


def test_a_bad_cell_is_a_bad_row() -> None:
    rows = rows_of(
        workbook(
            inline("a", "b")
            + '<row r="5"><c r="A5" t="s"><v>7</v></c></row>'
            + '<row r="6"><c r="B6"><v>many</v></c></row>'
            + "<row><c><v>nan</v></c></row>"
            + inline("x_x0000_")
            + inline("1", "2", "3")
            + '<row><c r="ZZZ9"><v>1</v></c><c r="A9"><v>1</v></c></row>'
            + '<row><c r="7"><v>1</v></c></row>'
            + inline("long" * 100)
            + inline("fine")
        ),
        row_bytes=300,
    )
    assert [(row.line, row.fault) for row in rows] == [
        (5, "cell A5 points to a text that is not there"),
        (6, "cell B6 is not a number, although it says it is one"),
        (7, "cell A7 is not a finite number"),
        (8, "cell A8 holds a NUL character"),
        (9, "has 3 cells where there are 2 columns"),
        (10, "has a value in column ZZZ; 1,000 columns is the limit"),
        (11, "has a value in column BDWGO; 1,000 columns is the limit"),
        (12, "the row has more than 300 characters"),
        (13, None),
    ]
    assert rows[4].values == {"a": "1", "b": "2", "column 3": "3"}


def test_gaps_and_blank_rows_cost_nothing_and_lines_still_count() -> None:
    sheet = (
        '<row r="2">'
        '<c r="B2" t="inlineStr"><is><t>b</t></is></c></row><row r="3"/><row r="4"><c r="A4" s="1"/></row>'
        '<row r="1048576"><c r="B1048576"><v>7</v></c></row>'
    )
    (row,) = rows_of(workbook(sheet))
    assert (row.number, row.line, row.values) == (1, 1048576, {"column 1": None, "b": 7})


def test_prefixes_of_names_are_of_no_importance() -> None:
    sheet = (
        f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData><x:row><x:c t="inlineStr"><x:is><x:t>a</x:t></x:is></x:c></x:row>'
        "<x:row><x:c><x:v>1</x:v></x:c></x:row></x:sheetData></x:worksheet>"
    )
    assert values_of(zipped(workbook_parts(sheet))) == [{"a": 1}]


def test_a_sheet_is_chosen_by_name_or_is_the_first_visible_one() -> None:
    content = written(["a"], [1], sheets=("Empty", "Data"))
    assert values_of(content, sheet="Data") == [{"a": 1}]
    with pytest.raises(InputError, match="sheet: there is no sheet 'Other'; there are: Empty, Data"):
        opened(content, sheet="Other")
    with pytest.raises(InputError, match="has no rows"):
        opened(content)
    sheets = '<sheets><sheet name="One" state="hidden" r:id="r1"/></sheets>'
    hidden = f'<workbook xmlns="{MAIN}" xmlns:r="{REL}">{sheets}</workbook>'
    with pytest.raises(InputError, match="has no visible sheet"):
        opened(workbook(inline("a"), workbook=hidden))


def test_a_title_above_the_table_is_passed_over() -> None:
    content = written(["Price list of March"], [None], ["title", "brand", "price"], ["Pot", "Acme", 3.5])
    assert [(row.line, row.values) for row in rows_of(content)] == [
        (4, {"title": "Pot", "brand": "Acme", "price": 3.5})
    ]
