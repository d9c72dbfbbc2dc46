"""Which form of a query is tried next, and in which order retailers are asked."""

from __future__ import annotations

from duly.apps.enrichment.rounds import Rotation, Turn


def test_each_look_up_that_found_nothing_turns_to_other_words_then_to_another_retailer() -> None:
    rotation = Rotation(variants=("ean", "brand title", "title"), retailers=("a", "b"), tries=5)
    assert [rotation.turn(n) for n in range(6)] == [
        Turn("ean", ("a", "b")),
        Turn("brand title", ("a", "b")),
        Turn("title", ("a", "b")),
        Turn("ean", ("b", "a")),
        Turn("brand title", ("b", "a")),
        None,
    ]
    assert rotation.turn(1, ("title",)) == Turn("title", ("b", "a"))
    assert rotation.turn(0, ()) is None
    assert Rotation(variants=("title",)).turn(0) == Turn("title", ())


def test_retailers_that_find_more_move_up() -> None:
    rotation = Rotation(variants=("title",), retailers=("a", "b", "c"))
    for _ in range(30):
        rotation = rotation.after("a", False).after("c", True)
    assert rotation.order() == ("c", "b", "a")
