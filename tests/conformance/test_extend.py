"""Extend: a lease that still holds is prolonged; what is no longer held is told."""

from collections.abc import Sequence

from duly.core.model import Cancel, Done, Failed, Item, Lost
from duly.store import Store
from tests.support import (
    LEASE,
    NOW,
    after,
    claim,
    claim_alone,
    decided,
    fetch,
    leases,
    put,
    put_and_claim,
    settle,
    share,
)


def held(items: Sequence[Item]) -> dict[int, list[int]]:
    by_fence: dict[int, list[int]] = {}
    for item in items:
        by_fence.setdefault(item.fence, []).append(item.id)
    return by_fence


def test_a_lease_that_holds_is_prolonged(store: Store) -> None:
    items = put_and_claim(store, 3)
    assert store.extend(held(items), after(5), after(25)) == []
    assert [until for _, until, _ in leases(store).values()] == [after(25)]


def test_holding_nothing_is_fine(store: Store) -> None:
    assert store.extend({}, NOW, after(20)) == []


def test_several_leases_are_prolonged_together(store: Store) -> None:
    put(store, 4)
    items = claim(store, share(limit=2)) + claim(store, share(limit=2))
    assert store.extend(held(items), after(5), after(25)) == []
    assert [until for _, until, _ in leases(store).values()] == [after(25)] * 2


def test_other_leases_stay_as_they_are(store: Store) -> None:
    put(store, 2)
    mine, theirs = claim(store, share(limit=1)), claim(store, share(limit=1))
    store.extend(held(mine), after(5), after(25))
    assert leases(store)[theirs[0].fence][1] == NOW + LEASE


def test_a_lease_that_ran_out_unnoticed_is_prolonged_all_the_same(store: Store) -> None:
    (item,) = put_and_claim(store)
    assert store.extend({item.fence: [item.id]}, after(30), after(50)) == []
    assert store.expired(after(40), 10) == ([], [])


def test_a_lease_that_was_taken_over_is_not_prolonged(store: Store) -> None:
    (item,) = put_and_claim(store)
    found, _ = store.expired(after(21), 10)
    store.settle([decided(each, Lost(), after(21)) for each in found], [item.fence])
    assert store.extend({item.fence: [item.id]}, after(22), after(42)) == [(item.id, item.fence)]


def test_a_lease_holds_until_its_last_microsecond(store: Store) -> None:
    items = put_and_claim(store)
    assert store.extend(held(items), after(19.999999), after(40)) == []


def test_a_lease_that_is_gone_is_told(store: Store) -> None:
    items = put_and_claim(store)
    store.settle([], closed=[items[0].fence])
    assert store.extend(held(items), after(5), after(25)) == [(items[0].id, items[0].fence)]


def test_settled_and_cancelled_items_are_told_and_the_rest_is_kept(store: Store) -> None:
    kept, done, retried, cancelled = items = put_and_claim(store, 4)
    settle(store, done, Done())
    settle(store, retried, Failed("busy"))
    settle(store, cancelled, Cancel())
    lost = store.extend(held(items), after(5), after(25))
    assert sorted(lost) == [(item.id, item.fence) for item in (done, retried, cancelled)]
    assert store.extend(held([kept]), after(6), after(26)) == []


def test_a_stolen_item_is_told_to_its_old_worker_and_not_to_its_new_one(store: Store, other: Store) -> None:
    old = put_and_claim(store)
    store.settle([decided(old[0], Lost(), after(21))])
    (new,) = claim(other, now=after(22), worker="w2")
    assert store.extend(held(old), after(23), after(43)) == [(old[0].id, old[0].fence)]
    assert other.extend(held([new]), after(23), after(43)) == []
    assert fetch(store, new.id).fence == new.fence


def test_an_unknown_item_is_told(store: Store) -> None:
    item = put_and_claim(store)[0]
    assert store.extend({item.fence: [item.id, 10**12]}, after(5), after(25)) == [(10**12, item.fence)]


def test_the_right_item_under_the_wrong_fence_is_told(store: Store) -> None:
    put(store, 2)
    first, second = claim_alone(store), claim_alone(store)
    assert store.extend({first.fence: [second.id], second.fence: []}, after(5), after(25)) == [(second.id, first.fence)]


def test_heartbeats_write_the_lease_and_never_the_item(store: Store) -> None:
    (item,) = put_and_claim(store)
    before = fetch(store, item.id)
    store.extend({item.fence: [item.id]}, after(5), after(25))
    assert fetch(store, item.id) == before


def test_what_runs_is_told_with_the_fence_that_it_runs_under(store: Store) -> None:
    one, two, three = put_and_claim(store, 3)
    settle(store, [two], Cancel())
    settle(store, [three], Done())
    assert store.running([one.id, two.id, three.id, 10**9]) == [(one.id, one.fence)]
    assert store.running([]) == []
