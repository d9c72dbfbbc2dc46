"""Exports, read back by libraries that are not ours."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from typing import Any

import openpyxl
import pytest
import python_calamine
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.bulk.export import MEDIA, SheetLimits, canonical, cells, guarded, mendable, stream, unguarded
from duly.bulk.read import ReadOptions, open_rows
from duly.errors import InputError
from tests.bulk.read.child import ROOT

ODD: list[Any] = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "'=1", "plain", "", None, "é 漢 \U0001f600", "a,\"b\"\nc",
    " spaces ", "<&>", "_x000D_", "\r\n", "tab\there", 0, -7, 3.5, 1e300, True, False, "-5", "+385 1 234", "-0.5e3",
]  # fmt: skip


def exported(format: str, headers: list[str], table: list[list[Any]], **limits: int) -> bytes:
    return b"".join(stream(format, headers, table, SheetLimits(**limits)))


def sheets(content: bytes) -> dict[str, list[list[Any]]]:
    book = openpyxl.load_workbook(io.BytesIO(content))
    return {sheet.title: [[cell.value for cell in row] for row in sheet.iter_rows()] for sheet in book.worksheets}


def test_openpyxl_reads_a_workbook_as_it_was_meant() -> None:
    content = exported("xlsx", ["n", "value"], [[n, value] for n, value in enumerate(ODD)])
    ((title, (headers, *rows)),) = sheets(content).items()
    assert (title, headers) == ("Rows", ["n", "value"])
    # openpyxl leaves escapes of what XML cannot say as they are written.
    odd = {"_x000D_": "_x005F_x000D_", "\r\n": "_x000D_\n", "": None}
    expected = [odd.get(value, value) for value in ODD]
    assert [value for _, value in rows] == expected
    book = openpyxl.load_workbook(io.BytesIO(content))
    assert {cell.data_type for row in book.active.iter_rows() for cell in row} <= {"n", "s", "inlineStr", "b"}


def test_calamine_reads_a_workbook_as_it_was_meant() -> None:
    content = exported("xlsx", ["n", "value"], [[n, value] for n, value in enumerate(ODD)])
    rows = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content)).get_sheet_by_index(0).to_python()
    read = {int(n): value for n, value in rows[1:]}
    for n, value in enumerate(ODD):
        if value not in ("_x000D_", "\r\n"):
            assert read[n] == ("" if value is None else value)


def test_the_csv_module_reads_what_was_written_and_nothing_of_it_runs() -> None:
    content = exported("csv", ["n", "value"], [[n, value] for n, value in enumerate(ODD)])
    assert content.startswith(b"\xef\xbb\xbfn,value\r\n")
    _, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    said = [value for _, value in rows]
    assert [unguarded(value) for value in said] == [_said(value) for value in ODD]
    assert said[:6] == ["'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "''=1"]


def _said(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value).lower()


@pytest.mark.parametrize("text", ["-5", "+385 1 234", "-1,5", "+1.5e3", "-5%", "a=b", "", "'a"])
def test_what_cannot_run_is_left_as_it_is(text: str) -> None:
    assert guarded(text) == text


@pytest.mark.parametrize("text", ["-2+3", "+385-1-234", "-1/2", "=A1", "@x", "-x", "＝1", "\r=1"])
def test_what_would_be_computed_is_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"


@given(st.text(st.sampled_from("'=+-@ab1\t\n ＝"), max_size=6))
def test_guarding_can_be_taken_back(text: str) -> None:
    assert unguarded(guarded(text)) == text


def test_lists_and_objects_are_written_as_json() -> None:
    content = exported("csv", ["a", "b"], [[[1, "x"], {"k": None}]])
    assert content.decode("utf-8-sig").splitlines()[1] == '"[1,""x""]","{""k"":null}"'


def test_our_own_reader_reads_both() -> None:
    rows = [["Pot", 3.5, "x"], ["Pan", 4, ""]]
    for format in ("csv", "xlsx"):
        with open_rows(io.BytesIO(exported(format, ["title", "price", "note"], rows)), f"export.{format}") as reading:
            read = [[row.values[name] or "" for name in reading.shape.columns] for row in reading]
        assert [[str(value) for value in row] for row in read] == [["Pot", "3.5", "x"], ["Pan", "4", ""]]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=2),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
def test_any_values_come_back_from_a_workbook(rows: list[tuple[Any, Any]]) -> None:
    content = exported("xlsx", ["a", "b"], [[*row] for row in rows])
    with open_rows(io.BytesIO(content), "x.xlsx", options=ReadOptions(header=True)) as reading:
        read = {row.line - 2: row for row in reading}
    for number, row in enumerate(rows):
        if any("\0" in str(value) for value in row):
            continue  # it is written, and refused when it is read
        for name, value in zip("ab", row, strict=True):
            seen = read[number].values[name] if number in read else None
            if isinstance(value, list) or (isinstance(value, int) and abs(value) >= 2**53):
                assert json.loads(str(seen)) == value
            elif isinstance(value, str):
                assert (seen or "") == value
            else:
                assert seen == value


def test_a_full_sheet_is_followed_by_another_one_with_the_same_headers() -> None:
    rows = [[n] for n in range(7)]
    found = sheets(exported("xlsx", ["n"], rows, rows=4))
    assert found == {"Rows": [["n"], [0], [1], [2]], "Rows 2": [["n"], [3], [4], [5]], "Rows 3": [["n"], [6]]}
    by_bytes = sheets(exported("xlsx", ["n"], [["x" * 1_000]] * 5, bytes=2_000))
    assert [len(rows) for rows in by_bytes.values()] == [3, 3, 2]


def test_a_cell_has_room_for_so_much_and_the_rest_is_cut() -> None:
    content = exported("xlsx", ["a"], [["x" * 32_767], ["y" * 32_768], ["\U0001f600" * 20_000]])
    _, (whole,), (cut,), (faces,) = sheets(content)["Rows"]
    assert whole == "x" * 32_767
    assert cut == "y" * 32_766 + "…"
    assert faces == "\U0001f600" * 16_383 + "…"


def test_a_file_comes_in_portions_and_the_same_rows_give_the_same_bytes() -> None:
    for format in ("csv", "xlsx"):
        rows = [[n, f"text {n}"] for n in range(20_000)]
        portions = list(stream(format, ["n", "text"], iter(rows)))
        assert len(portions) > 1, "it does not wait for the end"
        assert b"".join(portions) == exported(format, ["n", "text"], rows)


def test_an_error_leaves_the_file_unfinished() -> None:
    out = io.BytesIO()
    with pytest.raises(ValueError, match="shorter"):
        out.writelines(stream("xlsx", ["a"], [*([os.urandom(50).hex()] for _ in range(5_000)), []]))
    assert out.tell()
    with pytest.raises(Exception, match="not a zip file"):
        openpyxl.load_workbook(out)


def test_what_cannot_be_exported_is_refused() -> None:
    with pytest.raises(InputError, match="format: 'pdf' is not known"):
        stream("pdf", ["a"], [])
    with pytest.raises(InputError, match="columns: there are 16,385"):
        exported("xlsx", ["a"] * 16_385, [])
    with pytest.raises(ValueError, match="shorter"):
        exported("xlsx", ["a", "b"], [["only one"]])
    assert MEDIA["csv"].startswith("text/csv")


def test_headers_are_always_the_same_and_unique() -> None:
    columns = canonical(["title", "status", "price"], ["price", "price", "url"])
    assert [column.header for column in columns] == [
        "row", "status", "title", "status (input)", "price", "price (result)", "price (result 2)", "url", "attempts",
        "error",
    ]  # fmt: skip
    record = {"row": 7, "status": "DONE", "input": {"title": "Pot", "status": "new"}, "result": None, "attempts": 1}
    assert cells(record, columns) == [7, "DONE", "Pot", "new", None, None, None, None, 1, None]


def test_failed_rows_can_be_mended_and_known_again() -> None:
    columns = mendable(["title", "duly row"])
    assert [column.header for column in columns] == ["duly row", "duly error", "title", "duly row (input)"]
    record = {"row": 7, "error": "no price", "input": {"title": "Pot", "duly row": "x"}}
    assert cells(record, columns) == [7, "no price", "Pot", "x"]


MEASURE = """
import sys
from pathlib import Path
from duly.bulk.export import stream
rows = ([n, f"text {n}", n / 7, None] for n in range(int(sys.argv[2])))
size = sum(map(len, stream(sys.argv[1], ["n", "text", "share", "none"], rows)))
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]))
"""


@pytest.mark.parametrize("format", ["csv", "xlsx"])
def test_memory_does_not_grow_with_the_rows(format: str) -> None:
    small, large = (
        int(subprocess.check_output([sys.executable, "-c", MEASURE, format, str(rows)], cwd=ROOT))
        for rows in (1_000, 50_000)
    )
    assert large < 1.1 * small
