"""Delimited text as programs and people really write it."""

from __future__ import annotations

import csv
import io
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.bulk.read import FileRow
from duly.errors import InputError
from tests.bulk.read.support import opened, rows_of, values_of

LINES = "title,brand\nKettle,Acme\nTéa pot,Bräu\n"


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16-le"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
    ],
)
def test_common_encodings_are_found_out(encoding: str, found: str) -> None:
    with opened(LINES.encode(encoding)) as reading:
        assert reading.shape.encoding == found
        assert reading.shape.columns == ("title", "brand")
        assert [row.values for row in reading] == [
            {"title": "Kettle", "brand": "Acme"},
            {"title": "Téa pot", "brand": "Bräu"},
        ]


def test_an_encoding_may_be_named() -> None:
    assert values_of("имя\nчайник\n".encode("koi8-r"), encoding="koi8-r") == [{"имя": "чайник"}]
    with pytest.raises(InputError, match="encoding: 'nonsense' is not known"):
        opened(LINES, encoding="nonsense")
    with pytest.raises(InputError, match="encoding: zlib is not supported"):
        opened(LINES, encoding="zlib")


def test_bytes_beyond_ascii_that_come_late_and_are_not_utf8_are_western() -> None:
    late = "title\n" + "plain\n" * 20 + "café\n"
    assert values_of(late.encode("cp1252"), sample_bytes=60)[-1] == {"title": "café"}
    assert values_of(late.encode(), sample_bytes=60)[-1] == {"title": "café"}
    assert values_of(b"title\n\x81\xe9\n")[0] == {"title": "\x81é"}, "a byte that cp1252 does not have"


def test_a_line_that_breaks_the_encoding_is_one_bad_row() -> None:
    first, bad, last = rows_of("title\ncafé\n".encode() + b"caf\xe9\n" + "thé\n".encode(), sample_bytes=12)
    assert (first.values, last.values) == ({"title": "café"}, {"title": "thé"})
    assert (bad.number, bad.line, bad.fault) == (2, 3, "cannot be read as utf-8: byte 4 of the line is wrong")
    assert bad.text == "caf\N{REPLACEMENT CHARACTER}\n"


def test_utf16_that_is_cut_in_the_middle_or_has_half_characters_costs_only_those_rows() -> None:
    text = "title\none\n".encode("utf-16") + b"\x00\xd8\n\x00" + "two\nthree".encode("utf-16-le")
    rows = rows_of(text[:-1])
    assert [row.values for row in rows if not row.fault] == [{"title": "one"}, {"title": "two"}]
    assert [row.line for row in rows if row.fault] == [3, 5]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found_out(delimiter: str) -> None:
    lines = f'title{delimiter}price\nPot{delimiter}"1,5; a|b\tc"\n'
    with opened(lines) as reading:
        assert reading.shape.delimiter == delimiter
        assert [row.values for row in reading] == [{"title": "Pot", "price": "1,5; a|b\tc"}]


def test_decimal_commas_do_not_hide_the_semicolons() -> None:
    assert values_of("a;b;c\n1,5;2,5;3,5\n1,5;2,5;3,5\n")[0] == {"a": "1,5", "b": "2,5", "c": "3,5"}


def test_a_delimiter_may_be_named_and_excels_own_line_is_heard() -> None:
    assert values_of("a^b\n1^2\n", delimiter="^") == [{"a": "1", "b": "2"}]
    assert values_of("sep=^\na^b\n1^2\n") == [{"a": "1", "b": "2"}]
    with pytest.raises(InputError, match="delimiter: must be one character"):
        opened(LINES, delimiter="::")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_is_read(end: str) -> None:
    lines = end.join(["a,b", '1,"x', 'y"', "2,z", ""])
    rows = rows_of(lines)
    assert [(row.line, row.values["a"]) for row in rows] == [(2, "1"), (4, "2")]
    assert rows[0].values["b"].splitlines() == ["x", "y"]


def test_quotes_inside_quotes_may_be_doubled_or_escaped() -> None:
    assert values_of('a,b\n"5"" pipe",x\n') == [{"a": '5" pipe', "b": "x"}]
    assert values_of('a,b\n"5\\" pipe",x\n') == [{"a": '5" pipe', "b": "x"}]
    assert values_of('a,b\n5" pipe,x\n') == [{"a": '5" pipe', "b": "x"}]
    assert values_of('a, b\n1, "x, y"\n') == [{"a": "1", "b": "x, y"}]
    assert values_of('a,b\n"C:\\","x ""y"""\n') == [{"a": "C:\\", "b": 'x "y"'}]


def test_an_open_quote_costs_its_own_line_and_no_other() -> None:
    rows = rows_of('a,b\n1,"open\n2,x\n3,"y"\n4,z\n')
    assert [(row.number, row.line, row.fault is None) for row in rows] == [
        (1, 2, False),
        (2, 3, True),
        (3, 4, True),
        (4, 5, True),
    ]
    assert rows[0].fault == "a quote stands inside a quoted cell; it must be doubled"
    assert rows[0].text == '1,"open\n'
    assert rows[2].values == {"a": "3", "b": "y"}


def test_a_quote_that_is_open_to_the_end_is_told_so() -> None:
    rows = rows_of('a,b\n1,"open\n2,x\n3,y')
    assert [row.fault for row in rows] == ["a quoted cell is opened and never closed", None, None]


def test_open_quotes_are_mended_so_often_only() -> None:
    lines = "a,b\n" + '1,"open\n' * 10
    rows = rows_of(lines, mended_rows=3, row_lines=4)
    assert [row.line for row in rows] == [2, 3, 4, 5, 7, 9, 11]
    assert rows[0].fault == "a quote stands inside a quoted cell; it must be doubled"
    endless = rows_of("a,b\n" + '1,"open\n' + "2,x\n" * 10, mended_rows=0, row_lines=4)
    assert endless[0].fault == "a quoted cell is opened and not closed for very long"
    assert [row.line for row in endless] == [2, 7, 8, 9, 10, 11, 12]


def test_an_open_quote_before_a_line_that_cannot_be_read_hides_neither() -> None:
    rows = rows_of(b'a,b\n1,"open\n2,\x00\n3,z\n')
    assert [(row.line, row.fault) for row in rows] == [
        (2, "a quoted cell is opened and not closed before a line that cannot be read"),
        (3, "holds a NUL character"),
        (4, None),
    ]


def test_ragged_rows_are_filled_or_told() -> None:
    rows = rows_of("a,b\n1\n1,2,,\n1,2,3\n")
    assert [row.values for row in rows] == [
        {"a": "1", "b": ""},
        {"a": "1", "b": "2"},
        {"a": "1", "b": "2", "column 3": "3"},
    ]
    assert [row.fault for row in rows] == [None, None, "has 3 cells where there are 2 columns"]


def test_blank_rows_are_passed_over_and_lines_still_count() -> None:
    rows = rows_of("\n,\na,b\n\n1,2\n,\n3,4\n")
    assert [(row.number, row.line) for row in rows] == [(1, 5), (2, 7)]


@pytest.mark.parametrize(
    ("lines", "has_header"),
    [
        ("title,price\nPot,3\n", True),
        ("title\n", True),
        ("Pot,3\nPan,4\n", False),
        ("Pot,Acme\nPan,Acme\n", False),
        ("Pot,https://example.com/pot\n", False),
        ("Pot,2026-03-01\n", False),
        ("Pot,€ 3.50\n", False),
        ("Pot,a@example.com\n", False),
        (",title,\n1,Pot\n", True),
        ("title,brand\nPot,Acme\ntitle,brand\nPan,Acme\n", True),
        ("title,price\nPot,3\n" * 30, True),
    ],
)
def test_whether_there_is_a_header_is_found_out(lines: str, has_header: bool) -> None:
    with opened(lines) as reading:
        assert reading.shape.has_header is has_header


def test_a_title_above_the_table_is_passed_over() -> None:
    lines = "Price list of March\n\n" + "\n" * 30 + "title;brand;price\nPot;Acme;3,50\nPan;;4\n"
    with opened(lines) as reading:
        assert (reading.shape.delimiter, reading.shape.columns) == (";", ("title", "brand", "price"))
        assert [(row.number, row.line) for row in reading] == [(1, 34), (2, 35)]
    assert len(rows_of(lines, header=False)) == 4
    odd = b"List\n\x00\na,b,c\n1,2,3\n"
    assert [row.values for row in rows_of(odd)] == [{"a": "1", "b": "2", "c": "3"}]
    sparse = "Pot,,\nPan,3,Acme\nCup,4,Acme\n"
    assert len(rows_of(sparse)) == 3, "a row with a single value over rows without a header is no title"


def test_a_file_without_a_header_has_columns_by_number() -> None:
    with opened("Pot,3\nPan,4,red\n", header=False) as reading:
        assert reading.shape.columns == ("column 1", "column 2", "column 3")
        assert [row.number for row in reading] == [1, 2]
    assert values_of("1,2\n3,4\n", header=True) == [{"1": "3", "2": "4"}]


def test_columns_have_names_of_their_own() -> None:
    with opened(" Price ,price,Price,,a\x0bb\n1,2,3,4,5\n", header=True) as reading:
        assert reading.shape.columns == ("Price", "price", "Price (2)", "column 4", "a b")


def test_nul_is_a_bad_row() -> None:
    rows = rows_of(b"a,b\n1,x\x00y\n2,z\n")
    assert [row.fault for row in rows] == ["holds a NUL character", None]
    assert rows[0].text == "1,x\N{REPLACEMENT CHARACTER}y\n"


def test_many_bad_rows_at_the_start_are_all_reported_and_few_of_them_are_kept() -> None:
    content = b"a,b\n1,2\n" + (b"\0" + b"x" * 4_000 + b"\n") * 5_000 + b"3,4\n"
    tracemalloc.start()
    with opened(content) as reading:
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        rows = list(reading)
    assert held < 5_000_000
    assert [row.line for row in rows] == list(range(2, 5_004))
    assert sum(row.fault is not None for row in rows) == 5_000


def test_long_lines_and_wide_headers_are_bounded() -> None:
    rows = rows_of("a,b\n1," + "x" * 200 + "\n2,y\n", row_bytes=100)
    assert [(row.line, row.fault) for row in rows] == [(2, "the line has more than 100 bytes"), (3, None)]
    with pytest.raises(InputError, match="has 11 columns; 10 is the limit"):
        opened(",".join(f"c{n}" for n in range(11)), columns=10)
    with pytest.raises(InputError, match="line 1, the first row: the line has more than 100 bytes"):
        opened("x" * 200, row_bytes=100)
    long = rows_of('a,b\n1,"' + "x" * 140_000 + '"\n2,y\n')
    assert [row.fault for row in long] == ["a quoted cell has more than 131,072 characters", None]
    assert rows_of('a,b\n1,x\r"y"\n2,y\n')[0].fault == "a carriage return stands in the middle of the row"


WORDS = st.text(st.sampled_from('ab,;"\n\r |é\\'), max_size=8)


@given(
    st.lists(st.lists(WORDS, min_size=3, max_size=3), max_size=8),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from([",", ";", "\t", "|"]),
)
def test_what_the_csv_module_writes_is_read_back(table: list[list[str]], encoding: str, delimiter: str) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([["first", "second", "third"], *table])
    read = rows_of(out.getvalue().encode(encoding), header=True, delimiter=delimiter)
    # Turning UTF-16 into lines turns returns inside of cells, too; nothing else may change.
    expected = [[_lines(cell) for cell in cells] for cells in table if any(cells)]
    if not any("\\" in cell for cells in table for cell in cells):
        assert [[_lines(cell) for cell in row.values.values()] for row in read] == expected


def _lines(cell: str) -> str:
    return cell.replace("\r\n", "\n").replace("\r", "\n")


@settings(deadline=None)  # the first image loads what reads images
@given(st.binary(max_size=300))
def test_any_bytes_give_rows_or_a_clear_error(content: bytes) -> None:
    try:
        rows = rows_of(content, row_bytes=50, columns=5, row_lines=3, mended_rows=2)
    except InputError:
        return
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert all(isinstance(row, FileRow) and "\0" not in str(row.values) for row in rows)
