"""Put: all or none, and a live key answers the item that has it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from duly.core.errors import KeyConflict
from duly.core.model import Cancel, Done, Failed, GiveUp, Outcome
from duly.store import Store
from tests.support import NOW, after, claim, claim_one, counts, fetch, new, put, settle, show


def test_a_fresh_item_waits_with_everything_it_was_given(store: Store) -> None:
    (placed,) = store.put([new(args={"phone": "1"}, rank=-3, max_attempts=7, trace="00-ab-cd-01", key="k")])
    assert placed.fresh
    item = fetch(store, placed.id)
    assert (item.task, item.queue, item.lane, item.rank, item.state) == ("ring", "ring", "main", -3, "waiting")
    assert (item.args, item.key, item.max_attempts, item.trace) == (b'{"phone":"1"}', "k", 7, "00-ab-cd-01")
    assert (item.planned_at, item.due_at) == (NOW, NOW)
    assert (item.attempt, item.failures, item.crashes, item.losses, item.fence) == (0, 0, 0, 0, 0)
    assert (item.claimed_by, item.started_at) == (None, None)
    assert item.execution_key == placed.execution_key


def test_an_item_without_a_time_is_due_by_the_databases_clock(store: Store) -> None:
    before = store.now()
    many = [new(due_at=None), new(due_at=None)]
    ids = [placed.id for placed in store.put([new(due_at=None)]) + store.put(many)]
    store.load([new(due_at=None)])
    ids.append(max(ids) + 1)
    until = store.now()
    for item_id in ids:
        item = fetch(store, item_id)
        assert before <= item.due_at <= until
        assert item.planned_at == item.due_at


def test_putting_nothing_places_nothing(store: Store) -> None:
    assert store.put([]) == []
    assert counts(store) == {}


def test_many_items_are_answered_in_the_order_they_were_given(store: Store) -> None:
    placed = store.put([new(args={"n": n}) for n in range(50)])
    assert [fetch(store, each.id).args for each in placed] == [b'{"n":%d}' % n for n in range(50)]
    assert len({each.execution_key for each in placed}) == 50
    assert all(each.fresh for each in placed)


def test_an_execution_key_is_a_uuid_of_version_4(store: Store) -> None:
    (placed,) = store.put([new()])
    head, mid, version, variant, tail = placed.execution_key.split("-")
    assert [len(part) for part in (head, mid, version, variant, tail)] == [8, 4, 4, 4, 12]
    assert version[0] == "4"
    assert variant[0] in "89ab"
    assert placed.execution_key == placed.execution_key.lower()


@pytest.mark.parametrize("at", [NOW, None], ids=["the-same-time", "no-time"])
def test_the_same_key_and_content_answers_the_same_item(store: Store, at: datetime | None) -> None:
    (first,) = store.put([new(key="k", args={"a": 1})])
    (again,) = store.put([new(key="k", args={"a": 1}, due_at=at)])
    assert (again.id, again.execution_key) == (first.id, first.execution_key)
    assert (first.fresh, again.fresh) == (True, False)
    assert counts(store) == {"waiting": 1}


def test_a_key_is_its_tasks_own(store: Store) -> None:
    (ring,) = store.put([new("ring", key="k")])
    (mail,) = store.put([new("mail", key="k", args={"other": 1})])
    assert mail.fresh
    assert mail.id != ring.id


def test_a_running_item_still_holds_its_key(store: Store) -> None:
    (item_id,) = put(store, key="k")
    claim_one(store)
    (again,) = store.put([new(key="k")])
    assert (again.id, again.fresh) == (item_id, False)


def test_a_key_holds_by_its_planned_time_even_after_a_retry_moved_the_item(store: Store) -> None:
    (item_id,) = put(store, key="k")
    settle(store, claim_one(store), Failed("busy"))
    assert fetch(store, item_id).due_at != NOW
    assert store.put([new(key="k")])[0].id == item_id


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "among-others"])
def test_a_key_with_other_arguments_is_a_conflict_that_names_the_key(store: Store, count: int) -> None:
    (item_id,) = put(store, key="invoice-7", args={"a": 1})
    others = [new() for _ in range(count - 1)]
    with pytest.raises(KeyConflict, match=f"'invoice-7' belongs to item {item_id} of ring with other arg") as refused:
        store.put([*others, new(key="invoice-7", args={"a": 2})])
    assert refused.value.field == "key"
    assert refused.value.item_id == item_id
    assert counts(store) == {"waiting": 1}, "nothing of a refused put may stay"


def test_a_key_with_another_explicit_time_is_a_conflict_that_names_both_times(store: Store) -> None:
    put(store, key="k")
    with pytest.raises(KeyConflict, match=r"planned for 2026-01-01T09:00:00.*not 2026-01-01T10:00:00"):
        store.put([new(key="k", due_at=after(3600))])


@pytest.mark.parametrize("end", [Done(), GiveUp("no such number"), Cancel()], ids=["done", "failed", "cancelled"])
def test_a_key_is_free_again_when_its_item_has_ended(store: Store, end: Outcome) -> None:
    (first,) = put(store, key="k", args={"a": 1})
    settle(store, claim_one(store), end)
    (second,) = store.put([new(key="k", args={"a": 2})])
    assert second.fresh
    assert second.id != first
    assert show(store, first)["key"] == "k", "history keeps its key"


def test_keyed_and_unkeyed_items_mix_in_one_call(store: Store) -> None:
    (held,) = put(store, key="held", args={"n": 2})
    placed = store.put(
        [
            new(args={"n": 0}),
            new(args={"n": 1}, key="fresh"),
            new(args={"n": 2}, key="held"),
            new(args={"n": 3}),
            new("mail", args={"n": 4}, key="held"),
        ]
    )
    assert [each.fresh for each in placed] == [True, True, False, True, True]
    assert placed[2].id == held
    assert [fetch(store, each.id).args for each in placed] == [b'{"n":%d}' % n for n in range(5)]


def test_the_same_key_twice_in_one_call_makes_one_item(store: Store) -> None:
    first, second, third = store.put([new(key="k"), new(), new(key="k")])
    assert (first.id, first.fresh, third.fresh) == (third.id, True, False)
    assert second.id != first.id
    assert counts(store) == {"waiting": 2}


def test_the_same_key_twice_in_one_call_with_other_content_places_nothing(store: Store) -> None:
    with pytest.raises(KeyConflict):
        store.put([new(), new(key="k", args={"a": 1}), new(key="k", args={"a": 2})])
    assert counts(store) == {}


@pytest.mark.parametrize("count", [1, 2], ids=["one", "many"])
def test_racing_puts_of_one_key_agree_on_one_item(store: Store, other: Store, count: int) -> None:
    def race(mine: Store) -> list[list[int]]:
        return [[each.id for each in mine.put([new(key=f"{n}-{k}") for k in range(count)])] for n in range(40)]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(race, (store, other))
    assert first == second
    assert counts(store) == {"waiting": 40 * count}


@pytest.mark.parametrize("count", [1, 2], ids=["one", "many"])
def test_a_key_that_ends_under_a_put_is_put_again(store: Store, other: Store, count: int) -> None:
    """A put that finds its key taken looks for the holder; when that one ended meanwhile, the put takes the key."""
    stop = threading.Event()

    def finish() -> None:
        while not stop.is_set():
            settle(other, claim(other), Done())

    with ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(finish)
        try:
            fresh = sum(each.fresh for _ in range(100) for each in store.put([new(key=f"k{k}") for k in range(count)]))
        finally:
            stop.set()
        finishing.result()
    assert sum(counts(store).values()) == fresh


def test_text_of_any_script_survives_a_put(store: Store) -> None:
    text = '{"a":"tab\\t line\\n quote\\" back\\\\slash \\u0001 ž 漢 🙂 \'; drop table duly_item; --"}'.encode()
    one, two, three = store.put([new(args=text)]) + store.put([new(args=text), new(args=text, key="ключ 🗝")])
    for placed in (one, two, three):
        assert fetch(store, placed.id).args == text
    assert fetch(store, three.id).key == "ключ 🗝"
