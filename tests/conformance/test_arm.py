"""Items whose key is theirs for good: newer versions arm their row again, and so does any once it is done."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from duly.core.errors import KeyConflict
from duly.core.model import Armed, Cancel, Done, Failed, GiveUp, NewItem, Revived, Snooze
from duly.store import Store
from tests.support import NOW, after, claim, claim_one, new, put, query, settle, share, together


def version(number: int, key: str = "k", **more: object) -> NewItem:
    return new(key=key, version=number, args=b'{"n":%d}' % number, **more)


def arm(store: Store, *items: NewItem) -> list[str]:
    return [each.how for each in store.arm(items, lambda _, item: item)]


def test_a_key_is_new_then_known_then_armed_again_by_a_higher_version(store: Store) -> None:
    (first,) = store.arm([version(0)], lambda _, item: item)
    assert first.how == "new"
    assert arm(store, version(0)) == ["known"]
    item = claim_one(store)
    assert item.id == first.id
    settle(store, item, Failed("busy"))
    assert arm(store, version(0)) == ["known"], "it waits for its next try"
    assert store.arm([version(1, due_at=after(5))], lambda _, item: item) == [Armed(first.id, "again")]
    (row,) = store.fetch([first.id])
    assert (row.state, row.attempt, row.args, row.planned_at, row.due_at) == (
        "waiting", 0, b'{"n":1}', after(5), after(5),
    )  # fmt: skip
    assert row.execution_key == item.execution_key


@pytest.mark.parametrize("held", [0, 7])
def test_what_comes_again_once_its_row_is_done_is_the_next_version(store: Store, held: int) -> None:
    (first,) = store.arm([version(held)], lambda _, item: item)
    for after_it in (1, 2):
        settle(store, claim(store, share(ranks=(0, 2))), Done(b"1"))
        came = version(0, due_at=after(5))
        assert store.arm([came], lambda _, item: replace(item, due_at=NOW, rank=2)) == [Armed(first.id, "again")]
        assert query(store, "select version, state, rank from duly_item") == [(held + after_it, "waiting", 2)]
        assert arm(store, version(held + after_it)) == ["known"], "while it waits"
    (item,) = claim(store, share(ranks=(0, 2)))
    assert arm(store, version(held + 2)) == ["known"], "while it runs"
    settle(store, item, Done(b"1"))
    assert arm(store, version(held + 9)) == ["again"]
    assert query(store, "select version from duly_item") == [(held + 9,)], "the highest holds"
    assert len(store.read("attempts", {"id": first.id})) == 3, "the story forgot a try"


def test_what_is_known_says_whether_its_row_has_begun(store: Store) -> None:
    def come() -> Armed:
        (armed,) = store.arm([version(0)], lambda _, item: item)
        return armed

    first = come()
    known, begun = Armed(first.id, "known"), Armed(first.id, "known", is_begun=True)
    assert come() == known, "nobody claimed it yet"
    item = claim_one(store)
    assert come() == begun, "it runs"
    settle(store, item, Snooze(0.0))
    assert come() == begun, "its effect may be out"
    settle(store, claim_one(store), Done())
    assert come().how == "again"
    assert come() == known, "armed again, it has not begun"
    settle(store, claim_one(store), GiveUp("no"))
    assert come() == known, "it waits for a person"


def test_what_comes_twice_in_a_breath_after_its_row_is_done_comes_once(store: Store) -> None:
    arm(store, version(4))
    settle(store, claim_one(store), Done())
    assert arm(store, version(3), version(4)) == ["known", "again"]
    assert query(store, "select version from duly_item") == [(5,)]


@pytest.mark.parametrize("end", [GiveUp("no"), Cancel("no"), Failed("no")], ids=lambda end: type(end).__name__)
def test_whatever_became_of_a_row_a_higher_version_arms_it_again(store: Store, end: object) -> None:
    arm(store, version(3))
    settle(store, claim_one(store), end)
    assert arm(store, version(2)) == ["known"]
    assert arm(store, version(4)) == ["again"]
    item = claim_one(store)
    assert (item.attempt, item.failures, item.lane) == (1, 0, "main")


def test_a_try_under_way_is_superseded_and_its_result_refused(store: Store) -> None:
    arm(store, version(0))
    stale = claim_one(store)
    assert arm(store, version(1)) == ["again"]
    assert settle(store, stale, Done()) == [stale.id]
    item = claim_one(store)
    assert settle(store, stale, Done()) == [stale.id], "not even once the row runs again"
    assert settle(store, item, Done()) == []
    tries = store.read("attempts", {"id": item.id})
    assert [row for row in tries if "superseded" in row], "the story forgot the try"


def test_nothing_armed_is_nothing_done(store: Store) -> None:
    assert store.arm([], lambda _, item: item) == []


def test_rows_are_found_by_how_their_key_begins(store: Store) -> None:
    arm(store, version(0, key="a 1"), version(0, key="a 2"), version(0, key="b 1"), new(key="a 3"))
    found = store.read("versioned", {"task": "ring", "low": "a ", "high": "a!"})
    assert len(found) == 2


def test_a_breath_with_many_versions_of_a_key_keeps_the_highest(store: Store) -> None:
    assert arm(store, version(1), version(3), version(2), version(0, key="other")) == ["known", "new", "known", "new"]
    assert sorted(item.args for item in claim(store)) == [b'{"n":0}', b'{"n":3}']


def test_items_without_a_version_are_put_beside(store: Store) -> None:
    assert arm(store, new(), version(0), new()) == ["new"] * 3
    assert len(claim(store)) == 3


def test_the_arguments_are_what_merge_makes_of_old_and_new(store: Store) -> None:
    arm(store, version(0))
    store.arm([version(1)], lambda old, item: replace(item, args=b"[" + old + b"," + item.args + b"]"))
    assert claim_one(store).args == b'[{"n":0},{"n":1}]'


def test_arguments_are_kept_character_by_character(store: Store) -> None:
    odd = [r"{}", r'{"a":"\"\\\\\n{},null\t\""}', r'["","NULL","%s :name","grüße 💥","\u2028\\"]']
    armed = store.arm(
        [new(key=str(n), version=0, args=text.encode()) for n, text in enumerate(odd)], lambda old, _: old
    )
    assert [item.args.decode() for each in armed for item in store.fetch([each.id])] == odd


def test_revivals_are_counted_until_a_row_is_armed_again(store: Store) -> None:
    arm(store, version(0))
    for count in range(3):
        item = claim_one(store)
        assert item.revivals == count
        settle(store, item, GiveUp("no"))
        settle(store, store.fetch([item.id]), Revived(NOW))
    arm(store, version(1))
    assert claim_one(store).revivals == 0


def test_a_key_of_an_item_without_versions_is_refused(store: Store) -> None:
    put(store, key="k")
    with pytest.raises(KeyConflict, match="without a version"):
        arm(store, version(0))
    assert len(claim(store)) == 1


def test_two_who_arm_the_same_keys_at_once_make_each_once(store: Store) -> None:
    hows: list[list[str]] = []

    def go() -> None:
        hows.append(arm(store, *(version(0, key=f"k{n}") for n in range(200))))

    together(*[go] * 4)
    assert sorted(each for some in hows for each in some) == ["known"] * 600 + ["new"] * 200
    assert len(claim(store, share(limit=1_000))) == 200
