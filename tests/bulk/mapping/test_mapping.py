"""From the columns of somebody's file to fields: suggestions, values, previews and duplicates."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.apps.enrichment.fields import PRODUCT
from duly.bulk.duplicates import Duplicates
from duly.bulk.mapping import checked_columns, fingerprint, fitted_columns, identity, normalise, plain, preview, suggest
from duly.errors import InputError
from tests.bulk.read.support import opened

STRAIGHT = {field.name: field.name for field in PRODUCT.fields}


@pytest.mark.parametrize("name", ["Artikel-Nr.", "ARTIKEL NR", "artikelNr", " artikel_nr ", "Artikel–Nr"])
def test_case_punctuation_and_camel_case_do_not_count(name: str) -> None:
    assert plain(name) == "artikel nr"


def test_accents_do_not_count() -> None:
    assert plain("Größe") == plain("GROSSE") == "grosse"
    assert plain("Catégorie") == "categorie"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["title", "brand", "sku"], {"title": "title", "brand": "brand", "sku": "sku"}),
        (
            ["Item No.", "Product Name", "Manufacturer", "UPC", "Unit Price"],
            {"sku": "Item No.", "title": "Product Name", "brand": "Manufacturer", "ean": "UPC", "price": "Unit Price"},
        ),
        (["Artikelbezeichnung", "Preis (€)"], {"title": "Artikelbezeichnung", "price": "Preis (€)"}),
        (["name", "title"], {"title": "title"}),
        (["product title (en)", "productTitleDe"], {"title": "product title (en)"}),
        (["id", "sku"], {"sku": "sku"}),
        (["image url", "url"], {"url": "url", "image": "image url"}),
        (["foo", "bar"], {}),
    ],
)  # fmt: skip
def test_columns_are_suggested_by_their_names(names: list[str], found: dict[str, str]) -> None:
    assert suggest(names, PRODUCT) == found


def test_without_a_header_values_tell_what_they_are() -> None:
    with opened(
        "4006381333931,Stabilo point 88 blue,https://example.com/1,3.50\n"
        "5901234123457,A tea pot,https://example.com/2,4\n"
    ) as reading:
        assert not reading.shape.has_header
        rows = [row.values for row in reading]
        mapping = suggest(reading.shape.columns, PRODUCT, rows, has_header=False)
    assert mapping == {"ean": "column 1", "url": "column 3", "title": "column 2"}
    assert suggest(["column 1"], PRODUCT, [], has_header=False) == {}


def test_a_mapping_is_checked_against_the_file_and_the_fields() -> None:
    names = ["a", "b"]
    assert checked_columns({"title": "a"}, names, PRODUCT) == {"title": "a"}
    for wrong, problem in (
        ({"colour": "a"}, "mapping.colour: is not a field"),
        ({"title": "c"}, "mapping.title: there is no column 'c'"),
        ({"title": "a", "brand": "a"}, "mapping.brand: column 'a' is already title"),
    ):
        with pytest.raises(InputError, match=problem):
            checked_columns(wrong, names, PRODUCT)


def test_a_mapping_is_remembered_by_the_shape_of_a_file() -> None:
    known = fingerprint(["Item No.", "Name"])
    assert fingerprint(["name", "ITEM-NO"]) == known
    assert fingerprint(["name", "item"]) != known
    assert fingerprint(["x", "y"], has_header=False) == fingerprint(["1", "2"], has_header=False)
    assert fingerprint(["x"], has_header=False) != fingerprint(["1", "2"], has_header=False)
    assert fitted_columns({"sku": "Item No.", "title": "Name", "brand": "Gone"}, ["name", "ITEM-NO"]) == {
        "sku": "ITEM-NO",
        "title": "name",
    }


@pytest.mark.parametrize(
    ("field", "value", "normal"),
    [
        ("title", "  A\u00a0 tea\tpot\u200b ", "A tea pot"),
        ("title", "Cafe\u0301", "Café"),
        ("sku", 4711, "4711"),
        ("sku", 4711.0, "4711"),
        ("sku", "007-a", "007-a"),
        ("price", "€ 1.234,50", "1234.50"),
        ("price", "$1,234.50", "1234.50"),
        ("price", "1'234.50 CHF", "1234.50"),
        ("price", "1 234,5", "1234.5"),
        ("price", "1,234", "1234"),
        ("price", "1,234,567", "1234567"),
        ("price", "1.234.567", "1234567"),
        ("price", "12,5", "12.5"),
        ("price", "-0,123", "-0.123"),
        ("price", "12,-", "12"),
        ("price", 3.5, "3.5"),
        ("ean", "400-6381 333931", "4006381333931"),
        ("ean", 36000291452, "0036000291452"),
        ("ean", "96385074", "96385074"),
        ("url", "https://example.com/a?b=c", "https://example.com/a?b=c"),
        ("brand", None, None),
        ("brand", "", None),
    ],
)
def test_values_that_mean_the_same_are_written_the_same(field: str, value: Any, normal: str | None) -> None:
    found = normalise({"title": "x", field: value}, STRAIGHT, PRODUCT)
    assert found.problems == ()
    assert found.values.get(field) == normal


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("price", "on request", "'on request' is not a number"),
        ("price", "1,2.3,4", "'1,2.3,4' is not a number"),
        ("price", "1.2.", "'1.2.' is not a number"),
        ("ean", "4006381333932", "'4006381333932' is not a barcode: its last digit is wrong"),
        ("ean", "12", "'12' is not a barcode of 8 to 14 digits"),
        ("url", "javascript:alert(1)", "'javascript:alert(1)' is not a web address"),
        ("url", "http://[", "'http://[' is not a web address"),
        ("brand", "x" * 1_001, "has 1,001 characters; 1,000 is the limit"),
        ("brand", ["a"], "is a list or an object, where a single value is wanted"),
    ],
)
def test_values_that_cannot_be_are_told_with_field_and_column(field: str, value: Any, problem: str) -> None:
    found = normalise({"title": "x", field: value}, STRAIGHT, PRODUCT)
    assert found.problems == (f"{field} (column '{field}'): {problem}",)
    assert found.values["title"] == "x"


def test_a_row_needs_something_to_be_looked_up_by() -> None:
    assert normalise({"brand": "Acme"}, STRAIGHT, PRODUCT).problems == ("none of these has a value: title, sku, ean",)


def test_a_preview_shows_what_would_be_refused() -> None:
    with opened("Name;Preis;Notiz\nPot;3,50;x\nPan;viel;\n;4;\nCup;1;2;3\n" + "More;1;\n" * 100) as reading:
        mapping = suggest(reading.shape.columns, PRODUCT)
        seen = [preview(row, mapping, PRODUCT) for row in islice(reading, 5)]
    assert [row.problems for row in seen] == [
        (),
        ("price (column 'Preis'): 'viel' is not a number",),
        ("none of these has a value: title, sku, ean",),
        ("has 4 cells where there are 3 columns",),
        (),
    ]
    assert seen[0].normal == {"title": "Pot", "price": "3.50"}
    assert seen[3].line == 5


def test_rows_are_the_same_by_barcode_then_number_then_title() -> None:
    assert identity({"ean": "1", "title": "a"}, PRODUCT) == identity({"ean": "1", "title": "b"}, PRODUCT)
    assert identity({"sku": "A", "brand": "x"}, PRODUCT) != identity({"sku": "A", "brand": "y"}, PRODUCT)
    assert identity({"title": "POT"}, PRODUCT) == identity({"title": "pot"}, PRODUCT)
    assert identity({"price": "1"}, PRODUCT) is None


def test_duplicates_are_found_with_the_row_that_came_first() -> None:
    with Duplicates() as seen:
        for number in range(1, 200_001):
            seen.add(number, f"sku={number % 199_990}")
        assert sorted(seen.found()) == [(number, number - 199_990) for number in range(199_990 + 1, 200_001)]
        assert len(list(seen.found())) == 10, "asking does not use them up"


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=50))
def test_duplicates_are_what_a_dictionary_would_find(keys: list[str]) -> None:
    first: dict[str, int] = {}
    expected = []
    with Duplicates() as seen:
        for number, key in enumerate(keys):
            seen.add(number, key)
            if key in first:
                expected.append((number, first[key]))
            first.setdefault(key, number)
        assert sorted(seen.found()) == expected
