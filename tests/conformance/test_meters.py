"""Claims under limits: what a meter has no room for stays where it is, over the whole fleet."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from duly.core.model import (
    Ask,
    Crashed,
    Done,
    Failed,
    Grant,
    Item,
    Lost,
    Meter,
    OwnStart,
    Released,
    Snooze,
    StartTiming,
    Suspects,
    UnusedCall,
)
from duly.store import Store
from tests.process.fleet import until
from tests.support import (
    LEASE,
    NOW,
    after,
    claim,
    counts,
    decided,
    fetch,
    heads,
    leases,
    new,
    put,
    settle,
    share,
    together,
)

MINUTE = Meter("boeing", 2, per=60)
SLOW = timedelta(seconds=61.2)  # a minute and its slack
GPU = Meter("gpu", 2)
WINDOW = Meter("window:ring", 5, since=after(-60), until=after(600))

Got = tuple[list[Item], int, datetime | None]


def take(
    store: Store, *meters: Meter, now: datetime = NOW, calls: int = 100, batch: int = 1, limit: int = 100, **more: Any
) -> Got:
    """What one ask came to: its items, its calls, and when a meter that had no room says to come back."""
    ask = Ask(more.pop("share", share(limit=limit)), meters)
    (grant,) = store.claim_metered([ask], "w1", now, LEASE, calls, batch)
    return grant.items, grant.calls, grant.until


def took(got: Got) -> int:
    items, calls, until = got
    assert calls == len(items)
    assert until is None or not items
    return len(items)


def set_limit(store: Store, name: str, most: int | None, per: float | None = None) -> None:
    store.write("set_meter", {"name": name, "most": most, "per": per})


def hits(store: Store) -> dict[str, Sequence[datetime]]:
    return {row[0]: row[3] for row in store.read("all_meters", {"after": "", "most": 100})}


def test_a_claim_under_a_limit_takes_what_it_has_room_for_and_says_when_to_come_back(store: Store) -> None:
    put(store, 5)
    items, calls, until = take(store, MINUTE)
    assert (len(items), calls, until) == (2, 2, None)
    assert [item.state for item in items] == ["running"] * 2
    assert len({item.fence for item in items}) == 1
    assert take(store, MINUTE, now=after(10)) == ([], 0, NOW + SLOW)
    assert counts(store) == {"running": 2, "waiting": 3}
    assert took(take(store, MINUTE, now=NOW + SLOW - timedelta(microseconds=1))) == 0
    assert took(take(store, MINUTE, now=NOW + SLOW)) == 2
    assert hits(store) == {"boeing": [NOW + SLOW] * 2}, "what no longer counts is not kept"


def test_a_window_slides(store: Store, other: Store) -> None:
    put(store, 10)
    assert took(take(store, MINUTE, limit=1)) == 1
    assert took(take(other, MINUTE, now=after(30), limit=1)) == 1
    assert take(other, MINUTE, now=after(45)) == ([], 0, NOW + SLOW)
    assert took(take(store, MINUTE, now=NOW + SLOW)) == 1, "only the older of the two is back"
    assert take(other, MINUTE, now=NOW + SLOW)[2] == after(30) + SLOW


def test_many_workers_at_once_get_no_more_than_one_limit(store: Store, other: Store) -> None:
    put(store, 60)
    start = threading.Barrier(4)
    got: list[Item] = []

    def work(mine: Store) -> None:
        start.wait()
        for n in range(10):
            got.extend(take(mine, Meter("new", 7, per=60), GPU, now=after(n / 10), limit=1)[0])

    together(*(partial(work, mine) for mine in (store, other) for _ in range(2)))
    assert len(got) == 2, "the other limit is on calls at the same time, and nobody ended"
    settle(store, got, Done(), closed=[item.fence for item in got])
    together(*(partial(take, mine, Meter("new", 7, per=60), now=after(2)) for mine in (store, other)))
    assert counts(store) == {"running": 5, "waiting": 53, "done": 2}
    assert len(hits(store)["new"]) == 7


def test_what_is_not_there_costs_nothing(store: Store) -> None:
    put(store, due_at=after(60))
    assert take(store, MINUTE, GPU, WINDOW) == ([], 0, None)
    assert not any(hits(store).values())
    assert leases(store) == {}


def test_a_limit_on_a_queue_that_is_paused_costs_nothing(store: Store) -> None:
    put(store)
    store.pause("ring", NOW)
    assert take(store, MINUTE) == ([], 0, None)
    assert not any(hits(store).values())


def test_a_batch_is_one_call_and_costs_one_token(store: Store) -> None:
    put(store, 25)
    items, calls, _ = take(store, MINUTE, batch=10)
    assert (len(items), calls) == (20, 2)
    put(store, 1)
    items, calls, _ = take(store, MINUTE, now=NOW + SLOW, batch=10)
    assert (len(items), calls) == (6, 1), "half a batch is a call too"
    assert len(hits(store)["boeing"]) == 1


def test_items_under_suspicion_are_called_alone_and_cost_a_token_each(store: Store) -> None:
    put(store, 4)
    settle(store, claim(store, share(limit=2)), Crashed("9"))
    items, calls, _ = take(store, Meter("x", 10, per=60), batch=10, share=share(lane="retry"))
    assert (len(items), calls) == (2, 2)
    assert len(hits(store)["x"]) == 2


def test_no_more_calls_than_were_asked_for(store: Store) -> None:
    put(store, 9)
    items, calls, _ = take(store, Meter("x", 100, per=60), calls=2, batch=3)
    assert (len(items), calls) == (6, 2)
    assert took(take(store, Meter("x", 100, per=60), limit=1)) == 1
    assert take(store, MINUTE, calls=0) == ([], 0, None)


# -- calls at the same time


def test_calls_at_the_same_time_are_freed_when_they_end(store: Store, other: Store) -> None:
    put(store, 5)
    (one,), _, _ = take(store, GPU, limit=1)
    assert took(take(other, GPU, limit=1)) == 1
    assert take(other, GPU, limit=1) == ([], 0, None), "until something ends"
    settle(store, one, Done(), closed=[one.fence])
    assert took(take(other, GPU, limit=1)) == 1
    assert not any(hits(store).values()), "nothing to count"


def test_calls_at_the_same_time_are_freed_when_their_worker_is_found_dead(store: Store) -> None:
    put(store, 5)
    for _ in range(2):
        take(store, GPU, limit=1)
    late = after(30)
    assert take(store, GPU, now=late, limit=1) == ([], 0, None)
    items, _ = store.expired(late, 10)
    store.settle([decided(item, Lost(), late) for item in items], [item.fence for item in items])
    assert took(take(store, GPU, now=late, limit=1)) == 1


def test_a_lease_counts_until_the_last_of_its_items_is_over(store: Store) -> None:
    put(store, 6)
    items, calls, _ = take(store, Meter("gpu", 1), calls=1, batch=3)
    assert (len(items), calls) == (3, 1)
    settle(store, items[:2], Done())
    assert take(store, Meter("gpu", 1), calls=1, batch=3) == ([], 0, None)
    settle(store, items[2], Snooze(0), closed=[items[2].fence])
    assert len(take(store, Meter("gpu", 1), calls=1, batch=3)[0]) == 3


def test_calls_at_the_same_time_have_a_lease_each(store: Store) -> None:
    put(store, 5)
    items, calls, _ = take(store, GPU)
    assert (len(items), calls) == (2, 2)
    assert len({item.fence for item in items}) == 2
    assert set(leases(store)) == {item.fence for item in items}
    settle(store, items[0], Done(), closed=[items[0].fence])
    assert took(take(store, GPU)) == 1, "one of them ended"


def test_many_that_run_at_the_same_time_are_settled_together(store: Store) -> None:
    put(store, 50)
    items, _, _ = take(store, Meter("gpu", 40))
    assert settle(store, items, Done(), closed=[item.fence for item in items]) == []
    assert settle(store, items[:30], Done()) == [item.id for item in items[:30]], "they are over"
    assert (counts(store), leases(store)) == ({"done": 40, "waiting": 10}, {})


def test_limits_do_not_know_each_other(store: Store) -> None:
    put(store, 5)
    assert took(take(store, Meter("shop:a", 1), limit=1)) == 1
    assert took(take(store, Meter("shop:b", 1), limit=1)) == 1
    assert took(take(store, Meter("shop:a", 1), limit=1)) == 0


# -- windows


def test_a_window_takes_so_many_items_and_then_waits_for_the_next(store: Store) -> None:
    put(store, 20)
    items, calls, _ = take(store, WINDOW, batch=3)
    assert (len(items), calls) == (5, 2), "items count, not calls"
    assert take(store, WINDOW, now=after(599), batch=3) == ([], 0, after(600))
    opened = Meter(WINDOW.name, 5, since=after(600), until=after(1200))
    assert len(take(store, opened, now=after(600), batch=3)[0]) == 5


def test_all_limits_hold_at_once(store: Store) -> None:
    put(store, 20)
    items, calls, _ = take(store, WINDOW, MINUTE, GPU, calls=1, batch=2)
    assert (len(items), calls) == (2, 1)
    items, calls, _ = take(store, WINDOW, MINUTE, batch=2)
    assert (len(items), calls) == (2, 1)
    assert take(store, WINDOW, MINUTE, batch=2) == ([], 0, NOW + SLOW)
    items, _, _ = take(store, WINDOW, MINUTE, now=NOW + SLOW, batch=2)
    assert len(items) == 1, "what is left of the window"
    assert take(store, WINDOW, MINUTE, now=NOW + SLOW, batch=2)[2] == after(600)


# -- people


def test_a_persons_limit_holds_at_once_in_place_of_the_codes(store: Store, other: Store) -> None:
    put(store, 20)
    set_limit(other, "boeing", 4)
    assert took(take(store, MINUTE)) == 4, "raised"
    set_limit(other, "boeing", 6, 60.0)
    assert took(take(store, MINUTE)) == 2
    set_limit(other, "boeing", 3)
    assert take(store, MINUTE)[2] == NOW + SLOW, "lowered: three must be back before the next"
    set_limit(other, "boeing", 10, 1.0)
    assert took(take(store, MINUTE, now=after(2))) == 10, "another window"
    set_limit(other, "boeing", 0)
    assert take(store, MINUTE, now=after(1000)) == ([], 0, None), "nothing at all, until a person says otherwise"
    set_limit(other, "boeing", None)
    assert took(take(store, MINUTE, now=after(1000))) == 2, "what the code says"


def test_a_persons_limit_may_come_before_the_first_claim(store: Store) -> None:
    put(store, 5)
    set_limit(store, "gpu", 1)
    assert took(take(store, GPU, limit=1)) == 1
    assert took(take(store, GPU, limit=1)) == 0
    assert [row[:3] for row in store.read("all_meters", {"after": "", "most": 100})] == [("gpu", 1, None)]


# -- claims are claims


def test_ranks_lanes_and_tasks_are_kept(store: Store) -> None:
    put(store, 2, rank=5)
    put(store, 1, rank=-5)
    put(store, 3, task="sing", queue="ring", rank=-9)
    items, _, _ = take(store, MINUTE, share=share(ranks=(-9, -5, 5)))
    assert [(item.task, item.rank) for item in items] == [("ring", -5), ("ring", 5)]
    assert fetch(store, items[0].id).claimed_by == "w1"
    assert leases(store)[items[0].fence] == ("w1", NOW + LEASE, sorted(item.id for item in items))


@pytest.mark.parametrize("meters", [(MINUTE,), (GPU,), (WINDOW,)])
def test_what_was_claimed_under_a_limit_is_not_claimed_again(store: Store, meters: tuple[Meter, ...]) -> None:
    put(store, 1)
    assert took(take(store, *meters)) == 1
    assert take(store, *meters) == ([], 0, None)


# -- many asks at once


def keyed(count: int, limit: int = 10) -> list[Ask]:
    return [Ask(share(f"ring/{n}", limit=limit, task="ring"), (Meter(f"shop:{n}", 2, per=60),)) for n in range(count)]


def put_keyed(store: Store, count: int, each: int = 3) -> None:
    store.put([new("ring", queue=f"ring/{n}") for n in range(count) for _ in range(each)])


def test_many_keys_are_served_in_one_go(store: Store) -> None:
    put_keyed(store, 100)
    grants = store.claim_metered(keyed(100), "w1", NOW, LEASE, 1_000, 1)
    assert [len(grant.items) for grant in grants] == [2] * 100
    assert {len(log) for log in hits(store).values()} == {2}
    again = store.claim_metered(keyed(100), "w1", after(1), LEASE, 1_000, 1)
    assert {(grant.is_refused, grant.until, len(grant.items)) for grant in again} == {(True, NOW + SLOW, 0)}
    assert counts(store) == {"running": 200, "waiting": 100}


def test_exhausted_keys_do_not_keep_the_others_from_theirs(store: Store) -> None:
    put_keyed(store, 60)
    store.claim_metered(keyed(50), "w1", NOW, LEASE, 1_000, 1)
    grants = store.claim_metered(keyed(60), "w1", after(1), LEASE, 15, 1)
    assert [grant.is_refused for grant in grants] == [True] * 50 + [False] * 10
    assert [len(grant.items) for grant in grants[50:]] == [2] * 7 + [1] + [0] * 2
    assert [grant.is_asked for grant in grants[50:]] == [True] * 8 + [False] * 2


def test_asks_that_share_a_meter_share_its_tokens_and_the_first_is_first(store: Store) -> None:
    put(store, 5)
    settle(store, claim(store, share(limit=2)), Crashed("9"))
    asks = [Ask(share(lane=lane), (MINUTE,)) for lane in ("retry", "main")]
    grants = store.claim_metered(asks, "w1", NOW, LEASE, 10, 1)
    assert [[item.lane for item in grant.items] for grant in grants] == [["retry", "retry"], []]
    assert (grants[1].is_asked, grants[1].is_refused) == (False, False)
    (refused,) = store.claim_metered(asks[1:], "w1", NOW, LEASE, 10, 1)
    assert (refused.is_refused, refused.until) == (True, NOW + SLOW)


def test_the_parts_of_a_backlog_do_not_get_an_item_twice(store: Store) -> None:
    put(store, 3)
    asks = [Ask(share(floors=(after(-60),)), (MINUTE,)), Ask(share(), (Meter("y", 9, per=60),))]
    grants = store.claim_metered(asks, "w1", NOW, LEASE, 10, 1)
    assert sorted(item.id for grant in grants for item in grant.items) == sorted(
        {item.id for grant in grants for item in grant.items}
    )
    assert len(hits(store)["y"]) == len(grants[1].items)


def test_only_what_was_started_since_then_may_be_asked_for(store: Store) -> None:
    put(store, 3, due_at=after(-5))
    settle(store, claim(store, share(limit=1), now=after(-4)), Snooze(1), now=after(-4))
    again = share(started_since=after(-60))
    assert took(take(store, MINUTE, share=again)) == 1
    assert took(take(store, MINUTE, share=again)) == 0


def test_meters_of_one_name_share_a_log_that_the_longest_of_them_needs(store: Store) -> None:
    put(store, 9)
    brief, long = Meter("x", 2, per=1), Meter("x", 3, per=60)
    assert took(take(store, brief, long)) == 2
    assert took(take(store, brief, long, now=after(2))) == 1, "what is left of the minute"
    assert took(take(store, brief, long, now=after(4))) == 0


def test_a_limit_that_a_person_shortened_says_how_soon_its_calls_must_begin(store: Store) -> None:
    put(store, 9)
    set_limit(store, "boeing", 2, 1.0)
    (grant,) = store.claim_metered([Ask(share(), (MINUTE,))], "w1", NOW, LEASE, 9, 1)
    assert (len(grant.items), [start.by for start in grant.starts]) == (2, [after(0.04)] * 2)


def test_what_a_person_shortened_counts_again_when_they_take_it_back(store: Store) -> None:
    put(store, 9)
    assert took(take(store, MINUTE)) == 2
    set_limit(store, "boeing", 1, 1.0)
    assert took(take(store, MINUTE, now=after(5))) == 1
    set_limit(store, "boeing", None)
    assert took(take(store, MINUTE, now=after(10))) == 0


def test_without_a_time_the_databases_own_clock_counts_under_the_lock(store: Store) -> None:
    put(store, 3, due_at=None)
    (grant,) = store.claim_metered([Ask(share(), (MINUTE,))], "w1", None, LEASE, 9, 1)
    assert len(grant.items) == 2
    before = store.now()
    assert before - timedelta(minutes=1) < grant.items[0].started_at <= before
    assert hits(store)["boeing"] == [grant.items[0].started_at] * 2


def test_a_pause_holds_for_the_queues_below(store: Store) -> None:
    put_keyed(store, 2)
    store.put([new("ring", queue="ringing")])
    store.pause("ring", NOW)
    assert [len(grant.items) for grant in store.claim_metered(keyed(2), "w1", NOW, LEASE, 9, 1)] == [0, 0]
    assert claim(store, share("ring/0", task="ring")) == []
    assert [head.line.queue for head in heads(store)] == ["ringing"]
    assert len(claim(store, share("ringing", task="ring"))) == 1
    store.resume("ring")
    assert len(heads(store)) == 2
    store.pause("ring/1", NOW)
    assert [len(grant.items) for grant in store.claim_metered(keyed(2), "w1", NOW, LEASE, 9, 1)] == [2, 0]


# -- what was granted and did not begin


def ask_for(store: Store, *meters: Meter, now: datetime = NOW, batch: int = 1, **more: Any) -> Grant:
    given = {key: more.pop(key) for key in ("timing", "suspects") if key in more}
    (grant,) = store.claim_metered([Ask(share(**more), meters)], "w1", now, LEASE, 100, batch, **given)
    return grant


def unused(grant: Grant, *calls: int) -> list[UnusedCall]:
    """These calls of a grant of single items, as a worker gives them back."""
    found = []
    for place in calls:
        item, hits = grant.items[place], [(hit.name, hit.at) for hit in grant.starts[place].hits]
        seats = [grant.seats[item.id]] if item.id in grant.seats else []
        found.append(UnusedCall(tuple(hits + seats), ((item.id, item.fence),)))
    return found


def test_a_call_that_did_not_begin_is_given_back_to_its_limits_and_its_window(store: Store) -> None:
    put(store, 9)
    window = Meter("window:ring", 3, since=after(-60), until=after(600))
    grant = ask_for(store, Meter("boeing", 3, per=60), window)
    assert [len(log) for log in hits(store).values()] == [3, 3]
    store.give_back(unused(grant, 0, 2))
    assert [len(log) for log in hits(store).values()] == [1, 1]
    assert [fetch(store, item.id).started_at for item in grant.items] == [None, NOW, None]
    settle(store, [grant.items[0], grant.items[2]], Released())
    again = ask_for(store, Meter("boeing", 3, per=60), window, now=after(1))
    assert len(again.items) == 2, "what was given back is granted again"


def test_what_another_worker_was_granted_at_the_same_time_is_not_given_back(store: Store) -> None:
    put(store, 9)
    grant = ask_for(store, Meter("x", 4, per=60), limit=2)
    ask_for(store, Meter("x", 4, per=60), limit=2)
    store.give_back(unused(grant, 0))
    assert hits(store) == {"x": [NOW] * 3}


def test_an_item_that_was_taken_over_meanwhile_keeps_its_start(store: Store) -> None:
    put(store, 1)
    grant = ask_for(store, MINUTE)
    settle(store, grant.items, Released())
    (again,) = claim(store, now=after(1))
    store.give_back(unused(grant, 0))
    assert fetch(store, again.id).started_at == after(1)


def test_a_window_counts_an_item_once_however_often_it_is_started_in_it(store: Store) -> None:
    put(store, 2)
    for second in (0, 10, 20):
        grant = ask_for(store, WINDOW, now=after(second))
        assert len(grant.items) == 2
        settle(store, grant.items, Snooze(0), now=after(second))
    assert len(hits(store)[WINDOW.name]) == 2
    later = Meter(WINDOW.name, 5, since=after(600), until=after(1_200))
    assert set(ask_for(store, later, now=after(600)).seats) == {item.id for item in grant.items}


def test_suspects_come_last_and_take_no_more_calls_than_were_granted(store: Store) -> None:
    put(store, 30)
    settle(store, claim(store, share(limit=20)), Crashed("9"))
    retries = {"lane": "retry", "now": after(1)}
    grant = ask_for(store, MINUTE, batch=10, **retries)
    assert ([start.size for start in grant.starts], len(grant.items)) == ([1, 1], 2), "alone, and only in two calls"
    settle(store, grant.items, Released(), closed=[grant.items[0].fence])
    rules = Suspects(crash_limit=3, tries=10)
    together = ask_for(store, Meter("y", 2, per=60), batch=10, suspects=rules, **retries)
    assert [start.size for start in together.starts] == [10, 10]
    assert len(hits(store)["y"]) == 2


def test_those_that_are_not_suspect_are_called_first(store: Store) -> None:
    ids = put(store, 20)
    settle(store, claim(store, share(limit=10)), Crashed("9"))
    settle(store, claim(store), Failed("busy"), now=after(-60))
    grant = ask_for(store, Meter("x", 1, per=60), batch=10, lane="retry", now=after(120))
    assert sorted(item.id for item in grant.items) == ids[10:], "although they fell due later"


# -- at a distance


def test_calls_are_granted_ahead_of_their_time_and_own_calls_count_from_when_they_began(store: Store) -> None:
    put(store, 9)
    second = Meter("x", 2, per=1)
    timing = StartTiming(
        delay=timedelta(seconds=0.1), spread=timedelta(seconds=0.02), ahead=timedelta(seconds=1.5),
        blur=timedelta(seconds=0.3),
    )  # fmt: skip
    first = ask_for(store, second, limit=2, timing=timing)
    assert [(start.at, start.by) for start in first.starts] == [(NOW, after(0.14))] * 2
    assert hits(store)["x"] == [after(0.4)] * 2, "what others go by: the delay, and what the clocks do not know"
    blind = ask_for(store, second, limit=2, timing=timing)
    assert [start.at for start in blind.starts] == [after(1.45)] * 2
    store.give_back(unused(blind, 0, 1))
    own = {"x": {after(0.4): [OwnStart(after(0.1), after(0.05)), OwnStart(after(0.1))]}}
    knowing = ask_for(store, second, limit=2, timing=replace(timing, own=own))
    assert [start.at for start in knowing.starts] == [after(1.06), after(1.15)]
    assert ask_for(store, second, timing=timing).until is not None


def test_of_a_long_window_nothing_is_granted_ahead(store: Store) -> None:
    put(store, 9)
    timing = StartTiming(ahead=timedelta(seconds=5), spread=timedelta(seconds=0.01))
    assert len(ask_for(store, MINUTE, timing=timing).items) == 2
    refused = ask_for(store, MINUTE, timing=timing, now=after(58))
    assert refused.is_refused
    assert refused.until is not None
    assert refused.until > after(60)


def test_forgetting_meters_and_claiming_under_them_do_not_wait_for_each_other_in_a_ring(
    store: Store, other: Store
) -> None:
    names = ["a", "b", "c"]
    for name in reversed(names):  # so that they lie in the other order in the table
        set_limit(store, name, 1)
        set_limit(store, name, None)

    def is_waiting() -> bool:
        return store.takes_turns or bool(other.query("select 1 from pg_locks where not granted", {}))

    with ThreadPoolExecutor(1) as aside:
        with store._writing() as connection:
            store._meters(["a"], NOW, connection)
            forgotten = aside.submit(other.write, "forget_meters", {"names": encode(names).decode(), "before": NOW})
            until(is_waiting, 20)
            store._meters(["b", "c"], NOW, connection)
        forgotten.result(60)
    assert hits(store) == {}
