"""Columns once: a struct names its fields, and SQL, rows and parameters follow from it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Struct

from duly.core.model import NewItem
from duly.core.shown import Row
from duly.store.dialects import named
from duly.store.postgres.arrays import array_parameters, columns, copied
from duly.store.records import ITEM, KINDS, NEW_ITEM, RECORDS, Record, lister, reader, writer
from duly.store.sql import COMMON, filled, sections
from duly.store.sqlite.values import READ

POSTGRES, SQLITE = named("postgres"), named("sqlite")


class Sighting(Struct, frozen=True):
    id: int
    at: datetime
    by: str | None = None
    is_sure: bool = False
    notes: Any = None
    is_new: bool = False


ROW = Record(Row)
SIGHTING = Record(Sighting, without=("is_new",))


@pytest.fixture(autouse=True)
def sighting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECORDS, "sighting", SIGHTING)


def test_a_section_that_names_a_record_has_its_columns_in_the_order_of_the_struct() -> None:
    assert filled("select {sighting} from s", SQLITE) == "select id, at, by, is_sure, notes from s"
    assert filled("select x, {sighting of s}", SQLITE) == "select x, s.id, s.at, s.by, s.is_sure, s.notes"
    assert filled("{sighting but at, by}", SQLITE) == "id, is_sure, notes"
    assert filled("({sighting but id, at, notes}) values ({values sighting but id, at, notes})", SQLITE) == (
        "(by, is_sure) values (:by, :is_sure)"
    )
    assert filled("({places sighting but id})", SQLITE) == "(?, ?, ?, ?)"
    assert filled("set {set sighting but id, at, notes}", SQLITE) == "set by = :by, is_sure = :is_sure"
    assert filled("set {set sighting but id, at, notes of n}", SQLITE) == "set by = n.by, is_sure = n.is_sure"


def test_parameters_have_the_types_that_their_fields_have() -> None:
    assert filled("{values sighting but notes}", POSTGRES) == (
        "cast(:id as bigint), cast(:at as timestamptz), cast(:by as text), cast(:is_sure as bool)"
    )
    assert filled("{many sighting but notes, at with place int, rank smallint as n}", POSTGRES) == (
        "unnest(:sighting_id::bigint[], :sighting_by::text[], :sighting_is_sure::bool[], :sighting_place::int[], "
        ":sighting_rank::smallint[]) as n(id, by, is_sure, place, rank)"
    )


def test_a_column_is_compared_only_where_its_parameter_says_something() -> None:
    assert filled("{given owner, slot}", POSTGRES) == (
        "(cast(:owner as text) is null or owner = cast(:owner as text)) "
        "and (cast(:slot as bigint) is null or slot = cast(:slot as bigint))"
    )
    assert filled("{given owner}", SQLITE) == "(:owner is null or owner = :owner)"


def test_each_dialect_asks_in_its_own_way_for_what_waits_and_what_is_in_review() -> None:
    assert filled("where {is_waiting} or {in_review}", POSTGRES) == "where is_waiting or in_review"
    assert filled("where {is_waiting} or {in_review}", SQLITE) == "where state = 'waiting' or state = 'failed'"


def test_a_parameter_loses_its_type_where_none_is_needed() -> None:
    assert filled("having :size::bigint is null", SQLITE) == "having :size is null"
    assert filled("having :size::bigint is null", POSTGRES) == "having :size::bigint is null"


def test_a_column_that_is_kept_as_another_type_is_read_as_its_field_says() -> None:
    assert "i.execution_key::text" in filled("{item of i}", POSTGRES)
    assert "i.execution_key," in filled("{item of i}", SQLITE)


def test_a_field_or_record_that_is_not_there_is_told_when_the_sql_is_loaded() -> None:
    with pytest.raises(ValueError, match=r"\{item but colour\}: item has no \['colour'\]"):
        filled("select {item but colour} from duly_item", SQLITE)
    with pytest.raises(KeyError, match="itme"):
        filled("select {itme} from duly_item", SQLITE)
    with pytest.raises(KeyError, match="ownr"):
        filled("where {given ownr}", SQLITE)


def test_rows_become_records_by_the_order_of_their_fields() -> None:
    read = reader(SIGHTING, {datetime: datetime.fromisoformat, bool: bool, object: str.upper})
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert read((1, at.isoformat(), "ana", 1, "x")) == Sighting(1, at, "ana", True, "X")
    assert read((1, at.isoformat(), None, 0, None)) == Sighting(1, at, None, False, None)


def test_records_become_parameters_named_like_their_fields() -> None:
    write = writer(SIGHTING, {datetime: datetime.isoformat, object: str.lower})
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert write(Sighting(1, at, notes="X")) == {
        "id": 1, "at": "2026-01-01T00:00:00+00:00", "by": None, "is_sure": False, "notes": "x",
    }  # fmt: skip


def test_records_become_rows_of_parameters_in_the_order_of_their_fields() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert lister(SIGHTING, {datetime: datetime.isoformat})(Sighting(1, at, "ana")) == [
        1, "2026-01-01T00:00:00+00:00", "ana", False, None,
    ]  # fmt: skip


def test_many_records_become_one_array_for_each_field() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    odd = NewItem('a "b" \\c', "null", b'{"x": "\\n"}', at, version=3)
    given = columns(NEW_ITEM, [odd, NewItem("t", "q", b"[]", is_relative=True)], {"id": [1, 2]})
    assert given.keys() == {f"new_item_{name}" for name in ("id", *NewItem.__struct_fields__) if name != "is_relative"}
    written = {name: write(given[name]) for name, write in array_parameters()["arm_again"].items()}
    assert written["new_item_id"] == "{1,2}"
    assert written["new_item_task"] == r'{"a \"b\" \\c","t"}'
    assert written["new_item_queue"] == '{"null","q"}', "which is no null"
    assert written["new_item_args"] == r'{"{\"x\": \"\\n\"}","[]"}'
    assert written["new_item_due_at"] == "{2026-01-01T00:00:00+00:00,null}"
    assert written["new_item_version"] == "{3,null}"
    assert written["new_item_owner"] == "{null,null}"


def test_rows_for_copy_have_every_column_behind_the_time_that_they_are_planned_for() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    text = copied([NewItem("a\tb", "q\\", b'"x\\n"', rank=2, owner="ana")], at).decode()
    stamp = at.isoformat()
    nothing = r"\N"
    assert text == (
        "\t".join([stamp, r"a\tb", r"q\\", r'"x\\n"', stamp, nothing, "2", nothing, nothing, nothing, "ana", nothing])
        + "\n"
    )


def test_a_column_of_one_name_is_read_alike_in_every_record() -> None:
    for name, record in RECORDS.items():
        for field, kind in record.fields.items():
            if name != "sighting":
                assert READ.get(kind) is READ.get(KINDS[field]), f"{field} of {name}"


def test_no_section_lists_the_fields_of_a_record_by_hand() -> None:
    """A dozen columns of an item in a row are a list that somebody would have to keep."""
    listed = []
    for folder in (COMMON, POSTGRES.sql, SQLITE.sql):
        for file in folder.iterdir():
            for names in re.findall(r"(?:(?:\w+\.)?[a-z_]+,\s+){11,}(?:\w+\.)?[a-z_]+", file.read_text()):
                columns = set(re.findall(r"[a-z_]{2,}", names))
                listed += [(file.name, names) for record in (ITEM, ROW) if columns <= record.fields.keys()]
    assert listed == []


def test_every_fragment_is_filled_in() -> None:
    for dialect in ("postgres", "sqlite"):
        assert [name for name, text in sections(dialect).items() if "{" in text or "}" in text] == []
