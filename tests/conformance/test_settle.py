"""Settle: a change is applied if its item is still in the state and under the fence it was decided for."""

import pytest
from msgspec.structs import replace

from duly.core.errors import WrongState
from duly.core.model import (
    Cancel,
    Crashed,
    Done,
    Failed,
    GiveUp,
    Lost,
    NotFound,
    Outcome,
    Released,
    Revived,
    Skip,
    Snooze,
    Throttled,
)
from duly.store import Store
from tests.support import (
    LEASE,
    NOW,
    after,
    claim,
    claim_alone,
    claim_one,
    counts,
    decided,
    fetch,
    leases,
    new,
    put,
    put_and_claim,
    query,
    settle,
    show,
    tries,
)

OUTCOMES = [
    Done(),
    Done(b'{"ok":true}'),
    Failed("busy"),
    GiveUp("no"),
    Skip("off"),
    NotFound("gone"),
    Snooze(5),
    Throttled(7),
    Released(),
    Crashed("signal 9"),
    Cancel("stop"),
]


def names(outcome: Outcome) -> str:
    kind = type(outcome).__name__.lower()
    return f"{kind}-with-result" if outcome == Done(b'{"ok":true}') else kind


@pytest.mark.parametrize("outcome", OUTCOMES, ids=names)
def test_every_outcome_is_stored_as_it_was_decided(store: Store, outcome: Outcome) -> None:
    (item,) = put_and_claim(store)
    change = decided(item, outcome, after(3))
    assert store.settle([change]) == []
    row = show(store, item.id)
    for name in ("state", "outcome", "lane", "due_at", "attempt", "failures", "crashes", "losses", "finished_at"):
        assert row[name] == getattr(change, name), name
    assert row["result"] == change.result
    assert (row["last_error"], row["error_class"]) == (change.error, change.error_class)
    assert (row["fence"], row["planned_at"]) == (item.fence, NOW)
    assert len(tries(store, item.id)) == (change.tried is not None)


def test_plain_successes_are_settled_by_the_hundred(store: Store) -> None:
    put(store, 100)
    items = claim(store)
    assert settle(store, items, Done(), now=after(3)) == []
    assert counts(store) == {"done": 100}
    assert {(row["outcome"], row["finished_at"]) for row in (show(store, item.id) for item in items)} == {
        ("done", after(3))
    }


def test_a_result_survives_byte_for_byte(store: Store) -> None:
    (item,) = put_and_claim(store)
    text = '{ "a" : "tab\\t ž 漢 🙂 \\" \\\\ %s :name $1" }'.encode()
    settle(store, item, Done(text))
    assert show(store, item.id)["result"] == text


def test_an_error_survives_with_any_character(store: Store) -> None:
    (item,) = put_and_claim(store)
    error = "line 1\nline 2\ttab \\ ' \" % ž 漢 🙂 {a,b} NULL"
    settle(store, item, Failed(error, ("my.Error", "Exception")))
    row = show(store, item.id)
    assert (row["last_error"], row["error_class"]) == (error, "my.Error")
    assert tries(store, item.id)[0]["error"] == error


def test_a_failed_try_waits_in_the_retry_lane_with_a_record(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Failed("busy", ("my.Busy",)), now=after(3))
    again = fetch(store, item.id)
    assert (again.state, again.lane, again.due_at, again.attempt) == ("waiting", "retry", after(63), 1)
    assert tries(store, item.id) == [
        {
            "number": 1,
            "attempt_key": item.attempt_key,
            "worker": "w1",
            "started_at": NOW,
            "ended_at": after(3),
            "outcome": "failed",
            "error": "busy",
            "error_class": "my.Busy",
        }
    ]


def test_every_try_leaves_its_own_record_in_order(store: Store) -> None:
    (item_id,) = put(store)
    times = (0, 100, 300)
    for number, seconds in enumerate(times, 1):
        settle(store, claim_one(store, now=after(seconds)), Failed(f"busy {number}"), now=after(seconds))
    records = tries(store, item_id)
    assert [record["number"] for record in records] == [1, 2, 3]
    assert [record["error"] for record in records] == ["busy 1", "busy 2", "busy 3"]
    assert len({record["attempt_key"] for record in records}) == 3
    assert show(store, item_id)["state"] == "failed"


def test_the_database_itself_refuses_a_second_record_of_one_attempt(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Failed("busy"))
    repeat = (
        "insert into duly_attempt (item_id, number, fence, attempt_key, ended_at, outcome)"
        " select item_id, number, fence + 1, attempt_key, ended_at, outcome from duly_attempt"
    )
    with pytest.raises(Exception, match="violates duly_attempt"):
        query(store, repeat)


@pytest.mark.parametrize("late", OUTCOMES, ids=names)
def test_a_stale_worker_cannot_overwrite_a_newer_attempt(store: Store, other: Store, late: Outcome) -> None:
    (stale,) = put_and_claim(store)
    store.settle([decided(stale, Lost(), after(21))])
    fresh = claim_one(other, now=after(21), worker="w2")
    before = show(store, stale.id)
    assert settle(store, stale, late, now=after(22)) == [stale.id]
    assert show(store, stale.id) == before
    assert len(tries(store, stale.id)) == 1, "only the loss"
    assert settle(other, fresh, Done(), now=after(23)) == []


@pytest.mark.parametrize("late", OUTCOMES, ids=names)
def test_a_settle_is_accepted_once(store: Store, late: Outcome) -> None:
    (item,) = put_and_claim(store)
    assert settle(store, item, Failed("busy")) == []
    before = show(store, item.id), tries(store, item.id)
    assert settle(store, item, late, now=after(9)) == [item.id]
    assert (show(store, item.id), tries(store, item.id)) == before


def test_a_change_decided_for_waiting_is_void_once_the_item_runs(store: Store) -> None:
    (item_id,) = put(store)
    cancel = decided(fetch(store, item_id), Cancel())
    claim_one(store)
    assert store.settle([cancel]) == [item_id]
    assert fetch(store, item_id).state == "running"


def test_an_item_that_was_pruned_refuses_its_change(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Cancel())
    store.prune(after(1), 0, 10)
    assert settle(store, item, Done()) == [item.id]
    assert settle(store, item, Failed("busy")) == [item.id]


def test_a_mixed_batch_tells_exactly_what_it_refused(store: Store) -> None:
    put(store, 8)
    items = claim(store)
    done, stale_done, kept, failed, stale_failed, snoozed, cancelled, left = items
    settle(store, [stale_done, stale_failed], Cancel())
    refused = store.settle(
        [
            decided(done, Done()),
            decided(stale_failed, Failed("busy")),
            decided(kept, Done(b"1")),
            decided(failed, Failed("busy")),
            decided(stale_done, Done()),
            decided(snoozed, Snooze(5)),
            decided(cancelled, Cancel()),
        ]
    )
    assert sorted(refused) == [stale_done.id, stale_failed.id]
    states = {item.id: fetch(store, item.id).state for item in items}
    assert states == {
        done.id: "done",
        stale_done.id: "cancelled",
        kept.id: "done",
        failed.id: "waiting",
        stale_failed.id: "cancelled",
        snoozed.id: "waiting",
        cancelled.id: "cancelled",
        left.id: "running",
    }


def test_successes_of_several_claims_settle_in_one_call(store: Store) -> None:
    put(store, 4)
    items = [claim_alone(store) for _ in range(4)]
    fences = [item.fence for item in items]
    assert settle(store, items[:3], Done(), closed=fences[:3]) == []
    assert counts(store) == {"done": 3, "running": 1}
    assert list(leases(store)) == fences[3:]


@pytest.mark.parametrize("stale", [Done(), Failed("late")], ids=["done", "failed"])
@pytest.mark.parametrize("fresh", [Done(), Failed("again")], ids=["done", "failed"])
def test_a_late_and_a_fresh_change_of_one_item_do_not_mix_in_one_batch(
    store: Store, stale: Outcome, fresh: Outcome
) -> None:
    """One worker may lose an item, claim it again, and settle both tries in one batch."""
    (old,) = put_and_claim(store)
    store.settle([decided(old, Lost(), after(21))])
    new_try = claim_one(store, now=after(21))
    assert store.settle([decided(old, stale, after(22)), decided(new_try, fresh, after(22))]) == [old.id]
    assert show(store, old.id)["outcome"] == ("done" if fresh == Done() else "failed")
    assert [each["outcome"] for each in tries(store, old.id)] == ["lost"] + ["failed"] * (fresh != Done())


def test_settling_nothing_is_fine(store: Store) -> None:
    assert store.settle([]) == []
    assert store.settle([], closed=[10**9]) == []


@pytest.mark.parametrize(
    "outcomes",
    [[], [Done()], [Failed("busy")], [Done(), Failed("busy")], [Done(), Done(), Snooze(1)]],
    ids=["alone", "with-successes", "with-failures", "with-both", "with-more"],
)
def test_closed_leases_are_gone_and_only_those(store: Store, outcomes: list[Outcome]) -> None:
    put(store, len(outcomes) + 2)
    mine = [claim_alone(store) for _ in outcomes]
    empty, theirs = claim_alone(store), claim_alone(store)
    closed = [item.fence for item in (*mine, empty)]
    changes = [decided(item, outcome) for item, outcome in zip(mine, outcomes, strict=True)]
    assert store.settle(changes, closed=closed) == []
    assert list(leases(store)) == [theirs.fence]


def test_a_lease_stays_until_it_is_closed(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Done())
    assert list(leases(store)) == [item.fence]


def test_a_loss_is_void_when_the_worker_extended_its_lease_meanwhile(store: Store, other: Store) -> None:
    put_and_claim(store)
    items, _ = other.expired(after(21), 10)
    store.extend({items[0].fence: [items[0].id]}, after(19), after(40))
    assert other.settle([decided(items[0], Lost(), after(21))]) == [items[0].id]
    assert fetch(store, items[0].id).state == "running"
    assert tries(store, items[0].id) == []


@pytest.mark.parametrize(("seconds", "refused"), [(19.999999, True), (20, True), (20.000001, False)])
def test_a_loss_counts_only_after_the_lease_has_run_out(store: Store, seconds: float, refused: bool) -> None:
    (item,) = put_and_claim(store)
    assert bool(store.settle([decided(item, Lost(), after(seconds))])) is refused


def test_a_loss_counts_when_the_lease_is_gone(store: Store) -> None:
    (item,) = put_and_claim(store)
    store.settle([], closed=[item.fence])
    assert store.settle([decided(item, Lost(), after(1))]) == []


def test_two_rescuers_rescue_an_item_once(store: Store, other: Store) -> None:
    (item,) = put_and_claim(store)
    loss = decided(item, Lost(), after(21))
    assert [store.settle([loss]), other.settle([loss])] == [[], [item.id]]
    assert len(tries(store, item.id)) == 1


def test_a_revived_item_waits_as_if_it_were_new_and_keeps_its_history(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, GiveUp("no such number"))
    settle(store, fetch(store, item.id), Revived(after(100)))
    row = show(store, item.id)
    assert (row["state"], row["outcome"], row["lane"], row["due_at"]) == ("waiting", "revived", "main", after(100))
    assert (row["attempt"], row["failures"], row["finished_at"]) == (0, 0, None)
    assert (row["last_error"], row["execution_key"]) == ("no such number", item.execution_key)
    assert len(tries(store, item.id)) == 1


def test_hurrying_a_waiting_item_keeps_its_label(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Failed("busy"))
    settle(store, fetch(store, item.id), Revived(NOW))
    row = show(store, item.id)
    assert (row["outcome"], row["due_at"], row["lane"], row["attempt"]) == ("failed", NOW, "retry", 1)


def test_an_item_cannot_be_revived_while_another_has_its_key(store: Store) -> None:
    (item,) = put_and_claim(store, key="k")
    settle(store, item, GiveUp("no"))
    store.put([new(key="k")])
    with pytest.raises(WrongState, match="another live item has its key"):
        settle(store, fetch(store, item.id), Revived(NOW))
    assert counts(store) == {"failed": 1, "waiting": 1}


def test_a_settle_joins_the_callers_transaction_and_commits_with_it(store: Store) -> None:
    done, failed = put_and_claim(store, 2)
    with store.transaction() as connection:
        changes = [decided(done, Done()), decided(failed, Failed("busy"))]
        assert store.settle(changes, closed=[done.fence], connection=connection) == []
        connection.execute("insert into duly_queue (name) values ('effect')")
    assert (counts(store), leases(store)) == ({"done": 1, "waiting": 1}, {})
    assert query(store, "select name from duly_queue") == [("effect",)]


def test_a_settle_joins_the_callers_transaction_and_is_rolled_back_with_it(store: Store) -> None:
    items = put_and_claim(store, 2)

    def act() -> None:
        with store.transaction() as connection:
            changes = [decided(items[0], Done()), decided(items[1], Failed("busy"))]
            assert store.settle(changes, [items[0].fence], connection) == []
            connection.execute("insert into duly_queue (name) values ('effect')")
            raise RuntimeError("the effect failed")

    with pytest.raises(RuntimeError, match="the effect failed"):
        act()
    assert counts(store) == {"running": 2}
    assert leases(store)[items[0].fence][1] == NOW + LEASE
    assert query(store, "select name from duly_queue") == []
    assert settle(store, items, Done()) == []


def test_a_stale_settle_in_the_callers_transaction_is_told(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Cancel())
    with store.transaction() as connection:
        assert settle(store, item, Done(), connection=connection) == [item.id]


def test_a_change_that_minds_the_time_and_rank_is_refused_when_somebody_changed_them(store: Store) -> None:
    (item,) = put_and_claim(store)
    failed = decided(item, Failed("busy"), NOW)
    assert store.settle([failed]) == []
    change = replace(failed, was="waiting", due_at=after(60), tried=None, was_due_at=failed.due_at, was_rank=item.rank)
    assert store.settle([replace(change, was_due_at=after(999))]) == [item.id]
    assert store.settle([replace(change, was_rank=4)]) == [item.id]
    assert fetch(store, item.id).due_at == failed.due_at
    assert store.settle([change]) == []
    assert fetch(store, item.id).due_at == after(60)
