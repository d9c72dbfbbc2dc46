"""Expired, fetch, report and prune: looking after what is under way and what is over."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from duly.core.errors import StoreUnavailable
from duly.core.model import Cancel, Done, Failed, GiveUp, Lost, Revived
from duly.store import Store
from tests.support import (
    after,
    claim,
    claim_alone,
    counts,
    decided,
    exists,
    fetch,
    is_sqlite,
    opened,
    prune,
    put,
    put_and_claim,
    query,
    settle,
    show,
    tries,
)


def test_the_items_of_a_vanished_worker_are_found_as_they_are(store: Store, other: Store) -> None:
    items = put_and_claim(store, 3, key=None, args={"a": 1}, max_attempts=4, trace="t")
    found, empty = other.expired(after(20.000001), 10)
    assert sorted(found, key=lambda item: item.id) == items
    assert empty == []


def test_a_lease_that_still_holds_is_left_alone(store: Store) -> None:
    put_and_claim(store)
    assert store.expired(after(20), 10) == ([], [])


def test_an_expired_lease_with_nothing_left_to_rescue_is_told_as_empty(store: Store) -> None:
    done, stolen = put_and_claim(store, 2)
    settle(store, done, Done())
    store.settle([decided(stolen, Lost(), after(21))])
    (again,) = claim(store, now=after(21))
    assert store.expired(after(22), 10) == ([], [done.fence])
    items, empty = store.expired(after(60), 10)
    assert (items, empty) == ([again], [done.fence])


def test_a_half_settled_lease_gives_its_other_half(store: Store) -> None:
    done, left = put_and_claim(store, 2)
    settle(store, done, Done())
    assert store.expired(after(21), 10) == ([left], [])


def test_items_that_were_pruned_leave_an_empty_lease(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Cancel())
    store.prune(after(1), 0, 10)
    assert store.expired(after(21), 10) == ([], [item.fence])


def test_every_lease_is_told_with_its_worker_and_its_time(store: Store, other: Store) -> None:
    assert store.leases() == []
    put(store, 2)
    one, two = claim_alone(store), claim_alone(other, worker="w2", now=after(3))
    assert sorted(store.leases()) == [(one.fence, "w1", after(20)), (two.fence, "w2", after(23))]
    assert store.under([two.fence]) == ([two], [])
    assert store.under([]) == ([], [])
    settle(store, one, Done())
    assert store.under([one.fence, two.fence, 10**12]) == ([two], [one.fence])


def test_leases_are_not_told_while_heartbeats_could_not_be_written(store: Store) -> None:
    put_and_claim(store)
    with store.transaction() as connection:
        if is_sqlite(store):
            with opened(store.url, timeout=0.05) as impatient, pytest.raises(StoreUnavailable):
                impatient.leases()
            return
        connection.execute("lock table duly_lease in share mode")  # readers may, writers may not
        with ThreadPoolExecutor(1) as pool, opened(store.url) as waiting:
            looking = pool.submit(waiting.leases)
            wait_until_blocked(store)
            assert not looking.done()
            connection.execute("rollback")
            assert len(looking.result()) == 1


def test_the_oldest_leases_come_first_and_no_more_than_asked_for(store: Store) -> None:
    put(store, 3)
    items = [claim_alone(store, now=after(seconds)) for seconds in (2, 0, 1)]
    found, _ = store.expired(after(100), 2)
    assert {item.fence for item in found} == {items[1].fence, items[2].fence}


def test_a_rescued_item_runs_again_and_its_empty_lease_can_be_closed(store: Store) -> None:
    (item,) = put_and_claim(store)
    found, _ = store.expired(after(21), 10)
    assert store.settle([decided(each, Lost(), after(21)) for each in found]) == []
    _, empty = store.expired(after(21), 10)
    store.settle([], closed=empty)
    assert store.expired(after(21), 10) == ([], [])
    (again,) = claim(store, now=after(21))
    assert (again.id, again.attempt, again.losses, again.crashes) == (item.id, 2, 1, 1)
    (record,) = tries(store, item.id)
    assert (record["outcome"], record["worker"], record["attempt_key"]) == ("lost", "w1", item.attempt_key)


def test_fetch_gives_what_exists_in_any_state(store: Store) -> None:
    done, failed, running = put_and_claim(store, 3)
    settle(store, done, Done())
    settle(store, failed, GiveUp("no"))
    (waiting,) = put(store)
    found = {item.id: item.state for item in store.fetch([done.id, failed.id, running.id, waiting, 10**12])}
    assert found == {done.id: "done", failed.id: "failed", running.id: "running", waiting: "waiting"}
    assert store.fetch([]) == []


def test_a_running_item_shows_how_far_it_is(store: Store) -> None:
    (item,) = put_and_claim(store)
    store.report(item.id, item.fence, '{"percent":40,"note":"ž \\"x\\""}'.encode())
    assert show(store, item.id)["progress"] == '{"percent":40,"note":"ž \\"x\\""}'.encode()
    store.report(item.id, item.fence, b'{"percent":80}')
    assert show(store, item.id)["progress"] == b'{"percent":80}'


def test_a_stale_worker_cannot_report(store: Store) -> None:
    (item,) = put_and_claim(store)
    store.report(item.id, item.fence + 1, b"1")
    assert show(store, item.id)["progress"] is None
    settle(store, item, Failed("busy"))
    store.report(item.id, item.fence, b"2")
    assert show(store, item.id)["progress"] is None


def test_prune_forgets_what_is_over_and_keeps_review_and_live_work(store: Store) -> None:
    done, cancelled, failed, running = put_and_claim(store, 4)
    settle(store, done, Done())
    settle(store, cancelled, Cancel())
    settle(store, failed, GiveUp("no"))
    (waiting,) = put(store)
    assert prune(store, after(1)) == 2
    assert not exists(store, done.id)
    assert not exists(store, cancelled.id)
    assert counts(store) == {"failed": 1, "running": 1, "waiting": 1}
    assert fetch(store, running.id)
    assert fetch(store, waiting)


def test_prune_keeps_what_ended_since(store: Store) -> None:
    early, late = put_and_claim(store, 2)
    settle(store, early, Done(), now=after(4.999999))
    settle(store, late, Done(), now=after(5))
    assert prune(store, after(5)) == 1
    assert [item.id for item in store.fetch([early.id, late.id])] == [late.id]


def test_prune_walks_portion_by_portion_and_says_where_to_go_on(store: Store) -> None:
    items = put_and_claim(store, 5)
    settle(store, [items[0], items[3], items[4]], Done())
    later = store.now() + timedelta(days=1)
    assert store.prune(later, 0, 2) == (1, items[1].id)
    assert store.prune(later, items[1].id, 2) == (1, items[3].id)
    assert store.prune(later, items[3].id, 2) == (1, None)
    assert store.prune(later, items[4].id, 2) == (0, None)
    assert counts(store) == {"running": 2}


def test_prune_stops_where_rows_are_younger_than_what_is_to_be_forgotten(store: Store) -> None:
    items = put_and_claim(store, 3)
    settle(store, items, Done())
    assert store.prune(after(1), 0, 2) == (2, None), "these rows were made just now, however old they claim to be"


def test_prune_never_takes_what_was_revived_meanwhile(store: Store, other: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Cancel())
    revived = decided(fetch(store, item.id), Revived(after(9)))
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as connection:
            assert store.settle([revived], connection=connection) == []
            pruning = pool.submit(prune, other, after(1))
            wait_until_blocked(store)
        pruning.result()
    assert fetch(store, item.id).state == "waiting"


def wait_until_blocked(store: Store) -> None:
    """Until another statement waits for a lock of ours; on SQLite it then waits for its turn, sooner or later."""
    if is_sqlite(store):
        return
    with psycopg.connect(store.url, autocommit=True) as connection:
        waiting = (
            "select count(*) from pg_locks join pg_stat_activity using (pid)"
            " where not granted and datname = current_database()"
        )
        while connection.execute(waiting).fetchone() == (0,):
            pass


def test_prune_takes_the_records_of_the_tries_along(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Failed("busy"))
    (again,) = claim(store, now=after(60))
    settle(store, again, Done(), now=after(61))
    assert len(tries(store, item.id)) == 1
    assert store.prune(after(100), 0, 10)[0] == 1
    assert query(store, "select count(*) from duly_attempt") == [(0,)]


def test_an_id_is_never_given_twice(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Done())
    store.prune(after(1), 0, 10)
    assert put(store)[0] > item.id


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_pause_and_resume_can_be_said_any_number_of_times(store: Store, times: int) -> None:
    put(store)
    for n in range(times):
        store.pause("ring", after(n))
    assert claim(store) == []
    paused = query(store, "select count(*), count(distinct paused_at) from duly_queue where paused_at is not null")
    assert paused == [(1, 1)]
    for _ in range(times):
        store.resume("ring")
    assert len(claim(store)) == 1


def test_pausing_again_keeps_the_first_time(store: Store) -> None:
    store.pause("ring", after(0))
    first = query(store, "select paused_at from duly_queue")
    store.pause("ring", after(99))
    assert query(store, "select paused_at from duly_queue") == first


def test_resuming_a_queue_that_nobody_paused_changes_nothing(store: Store) -> None:
    store.resume("ring")
    assert query(store, "select * from duly_queue") == []


def test_what_runs_when_its_queue_is_paused_may_end(store: Store) -> None:
    (item,) = put_and_claim(store)
    store.pause("ring", after(0))
    assert settle(store, item, Done()) == []
