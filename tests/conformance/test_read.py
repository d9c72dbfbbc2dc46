"""The read sections: pages, single rows, timelines and depth, the same from both databases."""

from datetime import datetime, timedelta

from duly.core.model import Cancel, Done, Failed, GiveUp
from duly.store import Store
from tests.support import NOW, after, claim, fetch, new, put, put_and_claim, settle, show, tries

EVERYTHING = {"owner": None, "before": 2**62, "state": None, "task": None, "queue": None, "key": None, "most": 100}


def page(store: Store, **filters: object) -> list[int]:
    return [row[0] for row in store.read("page", {**EVERYTHING, **filters})]


def depth(store: Store, now: datetime = NOW) -> dict[tuple[str, str, str], tuple[int, int, datetime | None, bool]]:
    return {(q, lane, state): (n, due, oldest, paused) for q, lane, state, n, due, oldest, paused in
            store.read("depth", {"now": now})}  # fmt: skip


def test_pages_are_newest_first_complete_and_disjoint(store: Store) -> None:
    ids = put(store, 25)
    seen: list[int] = []
    before = 2**62
    while some := page(store, before=before, most=10):
        seen += some
        before = some[-1]
        put(store)  # new rows between two pages disturb neither
    assert seen == sorted(ids, reverse=True)


def test_pages_can_be_narrowed(store: Store) -> None:
    done, running = put_and_claim(store, 2)
    settle(store, done, Done())
    mail, keyed = (placed.id for placed in store.put([new("mail", queue="post"), new(key="k", due_at=after(9))]))
    assert page(store, state="done") == [done.id]
    assert page(store, state="waiting") == [keyed, mail]
    assert page(store, task="mail") == page(store, queue="post") == [mail]
    assert page(store, key="k") == page(store, key="k", task="ring", queue="ring", state="waiting") == [keyed]
    assert page(store, task="ring", state="running") == [running.id]
    assert page(store, key="no such key") == []


def test_a_page_row_and_a_shown_row_say_the_same(store: Store) -> None:
    (item,) = put_and_claim(store, args={"a": 1}, key="k")
    settle(store, item, Done(b'{"b":2}'), now=after(2))
    (row,) = store.read("page", EVERYTHING)
    assert list(row) == list(show(store, item.id).values())[:-1]


def test_a_shown_row_has_aware_times_and_raw_json(store: Store) -> None:
    (item,) = put_and_claim(store, args={"a": 1})
    before = show(store, item.id)
    assert before["lease_until"] == after(20)
    assert (before["result"], before["finished_at"]) == (None, None)
    settle(store, item, Done(b'{"b":2}'), now=after(2))
    row = show(store, item.id)
    assert (row["args"], row["result"], row["lease_until"]) == (b'{"a":1}', b'{"b":2}', None)
    for name in ("planned_at", "due_at", "started_at", "finished_at", "created_at"):
        assert row[name].utcoffset() is not None, name
    assert abs(row["created_at"] - store.now()) < timedelta(minutes=1)
    assert all(type(row[name]) is int for name in ("id", "rank", "attempt", "failures", "crashes", "losses", "fence"))


def test_there_is_no_row_for_an_unknown_item(store: Store) -> None:
    assert store.read("show", {"id": 10**12}) == []
    assert store.read("attempts", {"id": 10**12}) == []


def test_a_timeline_has_aware_times(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Failed("busy"), now=after(2))
    (record,) = tries(store, item.id)
    assert (record["started_at"], record["ended_at"]) == (NOW, after(2))
    assert record["ended_at"].utcoffset() is not None


def test_an_empty_table_has_no_depth(store: Store) -> None:
    assert depth(store) == {}


def test_depth_counts_live_and_reviewable_items_by_queue(store: Store) -> None:
    items = put_and_claim(store, 6)
    settle(store, items[0], Done())
    settle(store, items[1], Cancel())
    settle(store, items[2], GiveUp("no"), now=after(2))
    settle(store, items[3], Failed("busy"), now=after(3))
    put(store, 2, due_at=after(-5))
    put(store, due_at=after(5))
    put(store, task="mail", due_at=after(7))
    assert depth(store) == {
        ("ring", "main", "waiting"): (3, 2, after(-5), False),
        ("ring", "retry", "waiting"): (1, 0, after(63), False),
        ("ring", "main", "running"): (2, 0, NOW, False),
        ("ring", "main", "failed"): (1, 0, after(2), False),
        ("mail", "main", "waiting"): (1, 0, after(7), False),
    }
    assert depth(store, after(63))["ring", "retry", "waiting"][1] == 1


def test_depth_says_which_queues_are_paused_even_empty_ones(store: Store) -> None:
    put(store)
    put(store, task="mail")
    for queue in ("ring", "empty", "opened"):
        store.pause(queue, NOW)
    store.resume("opened")
    found = depth(store)
    assert found["ring", "main", "waiting"] == (1, 1, NOW, True)
    assert found["empty", "main", "waiting"] == (0, 0, None, True)
    assert found["mail", "main", "waiting"] == (1, 1, NOW, False)
    assert len(found) == 3
    assert {type(paused) for *_, paused in found.values()} == {bool}


def test_a_read_sees_what_was_committed_before_it(store: Store, other: Store) -> None:
    (item_id,) = put(store)
    assert page(other) == [item_id]
    claim(other)
    assert fetch(store, item_id).state == "running"
