"""In which words a product is asked for."""

from __future__ import annotations

import pytest

from duly.apps.enrichment.words import LONGEST, Wanted, named, plain, queries


def test_each_variant_that_has_words_of_its_own_is_a_question() -> None:
    wanted = Wanted(title="Théière (bleue), pack of 2", brand="Acme", sku="TP-7", ean="4006381333931")
    assert queries(wanted) == {
        "sku": "TP-7",
        "ean": "4006381333931",
        "brand_title": "Acme Théière (bleue), pack of 2",
        "title": "Théière (bleue), pack of 2",
        "plain_title": "theiere",
    }


def test_the_same_words_are_not_asked_for_twice() -> None:
    assert queries(Wanted(title="acme pot", brand="Acme")) == {"brand_title": "acme pot"}
    assert queries(Wanted(title="pot")) == {"title": "pot"}
    assert queries(Wanted(brand="Acme")) == {}
    assert queries(Wanted(title=" ", sku="  7 ")) == {"sku": "7"}


def test_a_question_is_not_longer_than_it_may_be() -> None:
    assert {len(query) for query in queries(Wanted(title="x" * 9_999, brand="y")).values()} == {LONGEST}


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Café_Crème 3x [NEW]", "cafe creme"),
        ("Straße 12er Pack", "strasse pack"),
        ("10 pcs Screw M4 x 20", "screw m4 x 20"),
        ("(all in brackets)", ""),
        ("漢字 ポット", "漢字 ホット"),
    ],
)
def test_a_plain_title_is_what_others_may_call_it_too(title: str, words: str) -> None:
    assert plain(title) == words


@pytest.mark.parametrize(
    ("file", "words"),
    [("shop/Blue_Tea-Pot.jpg", "blue tea pot"), ("C:\\pots\\pot.v2.JPEG", "pot v2"), ("pot", "pot"), (".png", "")],
)
def test_the_name_of_a_file_has_words(file: str, words: str) -> None:
    assert named(file) == words
