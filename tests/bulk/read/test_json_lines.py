"""JSON lines: one object on each line."""

from __future__ import annotations

import pytest

from duly.errors import InputError
from tests.bulk.read.support import opened, rows_of, values_of


def test_objects_are_rows_and_the_columns_are_the_keys_in_order() -> None:
    lines = '{"title": "Pot", "price": 3}\n\n{"brand": "Acme", "title": "Pan", "tags": ["a", {"b": null}]}\n'
    with opened(lines, "file.jsonl") as reading:
        assert (reading.shape.kind, reading.shape.columns) == ("jsonl", ("title", "price", "brand", "tags"))
        assert [(row.number, row.line, row.values) for row in reading] == [
            (1, 1, {"title": "Pot", "price": 3}),
            (2, 3, {"brand": "Acme", "title": "Pan", "tags": ["a", {"b": None}]}),
        ]


def test_an_object_is_known_by_its_start_whatever_the_name_says() -> None:
    assert values_of('{"a": 1}\n', "file.txt") == [{"a": 1}]
    assert values_of('{"a": "é"}\n'.encode("utf-8-sig"), "file.txt") == [{"a": "é"}]
    assert values_of('{"a": "é"}\n'.encode("utf-16"), "file.jsonl") == [{"a": "é"}]


def test_a_bad_line_is_a_bad_row() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    lines = ['{"a": 1}', '{"a": ', "[1]", deep, r'{"a": "\u0000"}', r'{"a": "\\u0000"}', '{"a":1,"b":2,"c":3}']
    rows = rows_of("\n".join(lines), "file.jsonl", columns=2)
    assert [row.fault and row.fault.partition(":")[0] for row in rows] == [
        None,
        "is not JSON",
        "is not a JSON object",
        "is nested too deeply",
        "holds a NUL character",
        None,
        "has 3 fields; 2 is the limit",
    ]
    assert rows[2].text == "[1]\n"
    assert [row.line for row in rows] == [1, 2, 3, 4, 5, 6, 7]


def test_long_lines_are_bounded() -> None:
    rows = rows_of('{"a": 1}\n{"a": "' + "x" * 200 + '"}\n{"a": 2}', "file.jsonl", row_bytes=100)
    assert [(row.line, row.fault) for row in rows] == [(1, None), (2, "the line has more than 100 bytes"), (3, None)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[{"a": 1}]', "is one JSON array"),
        ("not json\n", "line 1: is not JSON"),
        ("", "is empty"),
        ('{"a": 1, "b": 2, "c": 3, "d": 4}\n{"e": 5, "f": 6}', "has 6 columns; 4 is the limit"),
        ("{}\n", "has no rows"),
    ],
)
def test_a_file_without_objects_is_refused(content: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        opened(content, "file.json", columns=4)
