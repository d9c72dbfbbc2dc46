"""Claim: due items of the named tasks, within shares, under one new fence."""

import threading
from functools import partial

import pytest

from duly.core.model import Done, Failed, Released, Share
from duly.store import Store
from tests.support import (
    LEASE,
    NOW,
    after,
    claim,
    claim_one,
    counts,
    fetch,
    leases,
    new,
    opened,
    put,
    settle,
    share,
    show,
    together,
)


def test_only_what_is_due_is_claimed(store: Store) -> None:
    past, now, _ = (put(store, due_at=after(seconds))[0] for seconds in (-1, 0, 0.000001))
    assert [item.id for item in claim(store)] == [past, now]
    assert counts(store) == {"running": 2, "waiting": 1}


def test_only_named_tasks_are_claimed(store: Store) -> None:
    store.put([new("ring", queue="q"), new("mail", queue="q"), new("fax", queue="q")])
    claimed = store.claim([share("q", task="ring"), share("q", task="fax")], "w1", NOW, LEASE)
    assert [item.task for item in claimed] == ["ring", "fax"]


def test_only_named_queues_and_lanes_are_claimed(store: Store) -> None:
    put(store)
    settle(store, claim_one(store), Failed("busy"))
    put(store, 2)
    put(store, queue="elsewhere")
    assert len(claim(store, share(lane="main"), now=after(60))) == 2
    assert len(claim(store, share(lane="retry"), now=after(60))) == 1
    assert counts(store) == {"running": 3, "waiting": 1}


def test_a_claimed_item_is_answered_as_it_now_is(store: Store) -> None:
    (item_id,) = put(store, args={"a": 1}, key="k", max_attempts=4, trace="t", due_at=after(-5))
    item = claim_one(store, worker="host:42")
    assert item == fetch(store, item_id)
    assert (item.state, item.attempt, item.claimed_by, item.started_at) == ("running", 1, "host:42", NOW)
    assert item.fence > 0


def test_the_best_rank_starts_first_then_the_earliest_then_the_oldest(store: Store) -> None:
    order = [(1, 0), (0, 20), (0, 10), (-1, 30), (0, 10)]
    ids = [put(store, rank=rank, due_at=after(seconds))[0] for rank, seconds in order]
    claimed = claim(store, share(ranks=(-1, 0, 1)), now=after(60))
    assert [item.id for item in claimed] == [ids[place] for place in (3, 2, 4, 1, 0)]


def test_a_share_takes_the_earliest_of_its_best_rank_first(store: Store) -> None:
    late, early, low = (put(store, rank=r, due_at=after(s))[0] for r, s in ((0, 9), (0, 1), (1, 0)))
    assert [item.id for item in claim(store, share(ranks=(0, 1), limit=1), now=after(60))] == [early]
    assert [item.id for item in claim(store, share(ranks=(0, 1), limit=1), now=after(60))] == [late]
    assert [item.id for item in claim(store, share(ranks=(0, 1), limit=1), now=after(60))] == [low]


def test_ranks_are_taken_in_the_order_of_the_share(store: Store) -> None:
    put(store, 2, rank=0)
    (urgent,) = put(store, rank=5)
    claimed = claim(store, share(ranks=(5, 0), limit=2))
    assert len(claimed) == 2
    assert urgent in [item.id for item in claimed]


def test_several_ranks_share_one_limit(store: Store) -> None:
    for rank in (0, 1, 2):
        put(store, 3, rank=rank)
    claimed = claim(store, share(ranks=(0, 1, 2), limit=5))
    assert [item.rank for item in claimed] == [0, 0, 0, 1, 1]


def test_every_queue_and_lane_has_its_own_limit(store: Store) -> None:
    put(store, 3)
    settle(store, claim(store), Failed("busy"))
    put(store, 5)
    put(store, 5, task="mail")
    shares = [share("ring", "main", limit=2), share("ring", "retry", limit=1), share("mail", limit=3)]
    claimed = store.claim(shares, "w1", after(60), LEASE)
    taken = [(item.queue, item.lane) for item in claimed]
    assert {each: taken.count(each) for each in taken} == {
        ("ring", "main"): 2,
        ("ring", "retry"): 1,
        ("mail", "main"): 3,
    }
    assert len({item.fence for item in claimed}) == 1


def test_a_rank_that_no_share_names_is_left(store: Store) -> None:
    put(store, rank=3)
    assert claim(store, share(ranks=(0, 1, 2))) == []


def test_a_paused_queue_gives_nothing_and_the_others_go_on(store: Store) -> None:
    put(store)
    put(store, task="mail")
    store.pause("ring", NOW)
    assert [item.task for item in claim(store, tasks=("ring", "mail"))] == ["mail"]
    store.resume("ring")
    assert [item.task for item in claim(store, tasks=("ring", "mail"))] == ["ring"]


@pytest.mark.parametrize("shares", [[], [share("nothing here")], [share(limit=5)]], ids=["none", "unknown", "empty"])
def test_a_claim_of_nothing_leaves_no_lease(store: Store, shares: list[Share]) -> None:
    assert store.claim(shares, "w1", NOW, LEASE) == []
    assert leases(store) == {}


def test_a_claim_for_another_task_or_owner_takes_nothing(store: Store) -> None:
    put(store)
    put(store, owner="ana")
    assert claim(store, share(task="mail"), share(owner="eva")) == []
    assert [item.owner for item in claim(store, share(owner="ana"))] == ["ana"]
    assert [item.owner for item in claim(store)] == [None]


def test_one_claim_is_one_lease_over_all_its_items(store: Store) -> None:
    ids = put(store, 3) + put(store, 2, task="mail")
    claimed = claim(store, tasks=("ring", "mail"), worker="host:42")
    (fence,) = {item.fence for item in claimed}
    assert leases(store) == {fence: ("host:42", NOW + LEASE, ids)}


def test_fences_only_grow_and_none_comes_back_when_its_lease_is_gone(store: Store, other: Store) -> None:
    put(store, 6)
    fences = []
    for each in (store, other) * 3:
        (item,) = claim(each, share(limit=1))
        fences.append(item.fence)
        settle(each, item, Done(), closed=[item.fence])
        assert leases(store) == {}
    assert fences == sorted(set(fences))


def test_every_claim_counts_an_attempt(store: Store) -> None:
    put(store)
    for number in (1, 2, 3):
        item = claim_one(store, now=after(number * 1000))
        assert item.attempt == number
        settle(store, item, Failed("busy"), now=after(number * 1000))


def test_a_released_attempt_is_given_back_and_the_item_starts_again_at_once(store: Store) -> None:
    put(store)
    first = claim_one(store)
    settle(store, first, Released())
    second = claim_one(store)
    assert (first.attempt, second.attempt) == (1, 1)
    assert second.fence > first.fence
    assert second.attempt_key != first.attempt_key
    assert second.execution_key == first.execution_key


def test_a_claim_forgets_the_progress_of_the_try_before(store: Store) -> None:
    (item_id,) = put(store)
    item = claim_one(store)
    store.report(item_id, item.fence, b'{"percent":40}')
    settle(store, item, Failed("busy"))
    claim_one(store, now=after(60))
    assert show(store, item_id)["progress"] is None


@pytest.mark.parametrize("apart", [True, False], ids=["two-stores", "one-store"])
def test_two_claimers_never_share_an_item(store: Store, other: Store, apart: bool) -> None:
    put(store, 300)
    claimed: dict[str, list[int]] = {"w1": [], "w2": []}
    start = threading.Barrier(2)

    def work(mine: Store, worker: str) -> None:
        start.wait()
        while items := claim(mine, share(limit=7), worker=worker):
            claimed[worker].extend(item.id for item in items)

    together(partial(work, store, "w1"), partial(work, other if apart else store, "w2"))
    assert len(claimed["w1"] + claimed["w2"]) == len(set(claimed["w1"]) | set(claimed["w2"])) == 300
    for worker, ids in claimed.items():
        assert {fetch(store, item_id).claimed_by for item_id in ids} <= {worker}


def test_a_claim_passes_over_what_another_transaction_has_locked(postgres_url: str) -> None:
    with opened(postgres_url) as store:
        locked, free = put(store, 2)
        with store.transaction() as connection:
            connection.execute(f"select 1 from duly_item where id = {locked} for update")
            assert [item.id for item in claim(store)] == [free]
        assert [item.id for item in claim(store)] == [locked]
