"""Schedules as rows: who has them, when they make items, where they sit, and what the ends of their items mean."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from duly.core import advance as advancing
from duly.core.advance import advance_all
from duly.core.decide import Rules
from duly.core.model import (
    Cancel,
    Done,
    Failed,
    Fingerprint,
    GiveUp,
    Item,
    NewAuditLine,
    NewSchedule,
    NotFound,
    Outcome,
    Revision,
    Revived,
    Schedule,
    Skip,
)
from duly.core.policy.recur import Slot
from duly.policy import Backoff
from duly.store import Store
from tests.support import (
    NOW,
    after,
    claim,
    claim_alone,
    claim_one,
    counts,
    decided,
    fetch,
    new,
    opened,
    put,
    query,
    share,
    show,
    together,
)

BREAKER = Rules(retry=Backoff(base=60, tries=10), breaker=3)


def a_new(key: str = "k", **more: Any) -> NewSchedule:
    """On the hour; due at NOW."""
    given = {"task": "ring", "queue": "ring", "args": b"{}", "rule": "0 * * * *", "zone": "UTC", "next_at": NOW}
    return NewSchedule(key=key, **{**given, **more})


def a_member(key: str, slots: int = 24, **more: Any) -> NewSchedule:
    return a_new(key, rule=f"slot 0/{slots}", next_at=None, ring="ring", slots=slots, **more)


def seat(new: NewSchedule, slot: int) -> tuple[str, datetime]:
    assert new.slots is not None
    return str(Slot(slot, new.slots)), after(slot)


def enroll(store: Store, *news: NewSchedule) -> list[int]:
    return [schedule_id for schedule_id, _ in store.enroll(news, seat)]


def enroll_one(store: Store, **more: Any) -> int:
    (schedule_id,) = enroll(store, a_new(**more))
    return schedule_id


def get(store: Store, schedule_id: int) -> Schedule:
    (row,) = store.read("schedules_with_ids", {"ids": f"[{schedule_id}]"})
    return Schedule(*row)


def recur(store: Store, now: datetime = NOW, most: int = 100) -> int:
    return store.revise(None, now, most, partial(advance_all, now))


def act(store: Store, *ids: int, by: Any, now: datetime = NOW, **fields: Any) -> int:
    """Have a person's act done to these."""

    def plan(schedules: Sequence[Schedule], waiting: Mapping[int, list[Item]]) -> list[Revision]:
        return [by(each, waiting.get(each.id, ()), now, "ana", **fields) for each in schedules]

    return store.revise(ids, now, len(ids), plan)


def occurrences(store: Store, schedule_id: int) -> list[datetime]:
    rows = store.read("occurrences", {"schedule_id": schedule_id, "most": 1000})
    return sorted(row[3] for row in rows)


def loads(store: Store) -> dict[int, int]:
    """The load of each slot as it is kept; it must be what the rows say."""
    kept = {slot: members for _, slot, members in store.read("slots", {"ring": None}) if members}
    rows = query(
        store,
        "select slot, count(*) from duly_schedule where ring is not null and paused_at is null and broken_at is null"
        " group by slot",
    )
    assert kept == dict(rows)
    return kept


def audit(store: Store) -> list[tuple[str, str, str]]:
    """What was done, oldest first."""
    rows = store.read("audit", {"subject": None, "before": None, "most": 100})
    return [(row[3], row[4], row[2]) for row in reversed(rows)]


def fail_thrice(store: Store, schedule_id: int) -> None:
    """Break it: one failure a second, each in an item of its own."""
    for now in (after(0), after(1), after(2)):
        act(store, schedule_id, by=advancing.run_now, now=now)
        end(store, claim_one(store, now=now), Failed("busy"), now)
    assert get(store, schedule_id).broken_at == after(2)


def end(store: Store, item: Item, outcome: Outcome, now: datetime = NOW, **more: Any) -> list[int]:
    return store.settle([decided(item, outcome, now, BREAKER)], [item.fence], **more)


# -- joining


def test_a_schedule_is_kept_as_it_was_said(store: Store) -> None:
    said = a_new(
        "birthday", queue="q", args=b'{"n":1}', rule="yearly 02-29 09:00", zone="Europe/Zagreb", rank=7,
        catch_up="all", max_lateness=90.5, overlap="supersede", is_declared=True, next_at=after(0.000001),
    )  # fmt: skip
    before = store.now()
    ((schedule_id, fresh),) = store.enroll([said], seat)
    assert fresh
    found = get(store, schedule_id)
    assert before - timedelta(seconds=5) <= found.created_at <= store.now() + timedelta(seconds=5)
    assert found == Schedule(
        id=schedule_id, task="ring", key="birthday", queue="q", rank=7, args=b'{"n":1}', rule="yearly 02-29 09:00",
        zone="Europe/Zagreb", catch_up="all", max_lateness=90.5, overlap="supersede", ring=None, slot=None,
        is_declared=True, next_at=after(0.000001), paused_at=None, broken_at=None, failures=0, last_at=None,
        last_item=None, last_success_at=None, last_error=None, fingerprint=None, unchanged=0, skipped=0, keep=None,
        created_at=found.created_at,
    )  # fmt: skip
    assert found.is_active


def test_a_key_that_is_taken_answers_the_schedule_that_has_it_and_changes_nothing(store: Store) -> None:
    ((first, _),) = store.enroll([a_new("a")], seat)
    answers = store.enroll([a_new("b"), a_new("a", rule="daily 09:00"), a_new("a", task="sing")], seat)
    assert [fresh for _, fresh in answers] == [True, False, True]
    assert answers[1] == (first, False)
    assert get(store, first).rule == "0 * * * *"


def test_a_key_that_comes_twice_in_one_call_is_one_schedule_as_it_was_said_first(store: Store) -> None:
    answers = store.enroll([a_new("b"), a_new("a", rank=1), a_new("a", rank=2)], seat)
    assert [fresh for _, fresh in answers] == [True, True, False]
    assert answers[1][0] == answers[2][0]
    assert get(store, answers[1][0]).rank == 1


def test_all_join_or_none(store: Store) -> None:
    def full(new: NewSchedule, slot: int) -> tuple[str, datetime]:
        if new.key == "c":
            raise OSError("no seat")
        return seat(new, slot)

    with pytest.raises(OSError, match="no seat"):
        store.enroll([a_new("a"), a_member("b"), a_member("c")], full)
    assert query(store, "select count(*) from duly_schedule") == [(0,)]
    assert loads(store) == {}


def test_a_schedule_joins_with_the_slot_and_the_past_that_another_system_knows(store: Store) -> None:
    past: dict[str, Any] = {
        "failures": 2, "fingerprint": "v1", "keep": b'{"price":"1.5"}', "last_error": "busy", "last_success_at": NOW,
    }  # fmt: skip
    chosen, broken, *others = enroll(
        store, a_member("a", 3, slot=1, **past), a_member("b", 3, slot=1, broken_at=NOW, **past),
        *(a_member(key, 3) for key in "cde"),
    )  # fmt: skip
    assert [get(store, each).slot for each in others] == [0, 2, 0], "the emptiest ones beside the chosen one"
    assert loads(store) == {0: 2, 1: 1, 2: 1}
    for schedule_id, is_active in ((chosen, True), (broken, False)):
        found = get(store, schedule_id)
        assert {name: getattr(found, name) for name in past} == past
        assert (found.slot, found.rule, found.is_active) == (1, "slot 1/3", is_active)
        assert found.next_at == (after(1) if is_active else None)


def test_what_is_done_on_a_transactions_connection_is_seen_there_and_goes_with_it(store: Store) -> None:
    schedule_id = enroll_one(store)

    def pause_and_add(outcome: Exception | None) -> None:
        def plan(schedules: Sequence[Schedule], _: Mapping[int, list[Item]]) -> list[Revision]:
            return [advancing.run_now(each, (), NOW, "ana") for each in schedules]

        with store.transaction() as connection:
            ((added, _),) = store.enroll([a_member("other")], seat, connection)
            assert store.revise([schedule_id, added], NOW, 2, plan, connection) == 2
            store.pause("ring", NOW, connection)
            assert store.read("schedules_with_ids", {"ids": f"[{added}]"}, connection)[0][2] == "other"
            if outcome is not None:
                raise outcome

    with pytest.raises(RuntimeError, match="no"):
        pause_and_add(RuntimeError("no"))
    assert query(store, "select key from duly_schedule") == [("k",)]
    assert (counts(store), loads(store), audit(store)) == ({}, {}, [])
    assert query(store, "select count(*) from duly_queue where paused_at is not null") == [(0,)]
    pause_and_add(None)
    assert counts(store) == {"waiting": 2}
    with store.transaction() as connection:
        store.resume("ring", connection)
    assert query(store, "select count(*) from duly_queue where paused_at is not null") == [(0,)]


def test_nobody_joining_is_fine(store: Store) -> None:
    assert store.enroll([], seat) == []


def test_the_same_keys_from_two_processes_are_one_schedule_each(store: Store, other: Store) -> None:
    start = threading.Barrier(2)
    answers: list[tuple[int, bool]] = []

    def join(mine: Store, order: int) -> None:
        start.wait()
        for n in range(5):
            keys = [f"{n}-{m}" for m in range(20)][::order]
            answers.extend(mine.enroll([a_new(key) for key in keys] + [a_member(f"m{key}") for key in keys], seat))

    together(partial(join, store, 1), partial(join, other, -1))
    assert len({schedule_id for schedule_id, _ in answers}) == 200
    assert sum(fresh for _, fresh in answers) == 200
    assert max(loads(store).values()) - min(loads(store).values()) <= 1


# -- even slots


def test_whoever_joins_gets_the_emptiest_slot_for_good(store: Store) -> None:
    enroll(store, *(a_member(f"m{n}") for n in range(30)))
    assert loads(store) == {slot: 1 + (slot < 6) for slot in range(24)}
    (late,) = enroll(store, a_member("late"))
    schedule = get(store, late)
    assert (schedule.slot, schedule.rule, schedule.next_at) == (6, "slot 6/24", after(6))


def test_counts_differ_by_at_most_one_whoever_joins_at_the_same_time(store: Store, other: Store) -> None:
    def join(mine: Store, name: str) -> None:
        for n in range(10):
            enroll(mine, *(a_member(f"{name}{n}-{m}", slots=7) for m in range(n % 3 + 1)))

    together(*(partial(join, mine, f"{mine is store}{n}-") for mine in (store, other) for n in range(2)))
    found = loads(store)
    assert sum(found.values()) == 4 * sum(n % 3 + 1 for n in range(10))
    assert len(found) == 7
    assert max(found.values()) - min(found.values()) <= 1


def test_rings_do_not_know_each_other(store: Store) -> None:
    ids = enroll(store, a_member("a"), a_new("b", ring="east", slots=2), a_new("c", ring="east", slots=2))
    assert [get(store, schedule_id).slot for schedule_id in ids] == [0, 0, 1]
    assert [row for row in store.read("slots", {"ring": "east"}) if row[2]] == [("east", 0, 1), ("east", 1, 1)]


def test_the_load_follows_who_is_active_and_the_seat_stays(store: Store) -> None:
    ids = enroll(store, *(a_member(f"m{n}", slots=3) for n in range(6)))
    assert loads(store) == {0: 2, 1: 2, 2: 2}
    act(store, ids[0], ids[3], by=advancing.paused)
    assert loads(store) == {1: 2, 2: 2}
    act(store, ids[0], by=advancing.paused)
    assert loads(store) == {1: 2, 2: 2}, "paused once is paused"
    enroll(store, a_member("new", slots=3))
    assert loads(store) == {0: 1, 1: 2, 2: 2}
    act(store, ids[0], ids[3], by=advancing.resumed)
    assert loads(store) == {0: 3, 1: 2, 2: 2}
    assert {get(store, schedule_id).slot for schedule_id in (ids[0], ids[3])} == {0}, "it comes back to its own"
    act(store, ids[1], ids[0], by=advancing.removed)
    assert loads(store) == {0: 2, 1: 1, 2: 2}
    act(store, ids[2], by=advancing.changed, slot=1, rule="slot 1/3")
    assert loads(store) == {0: 2, 1: 2, 2: 1}
    act(store, ids[3], by=advancing.paused)
    act(store, ids[3], by=advancing.removed)
    assert loads(store) == {0: 1, 1: 2, 2: 1}


def test_a_broken_member_leaves_its_slot_until_it_is_reactivated(store: Store) -> None:
    (one, _) = enroll(store, a_member("a", slots=2), a_member("b", slots=2))
    fail_thrice(store, one)
    assert loads(store) == {1: 1}
    act(store, one, by=advancing.reactivated, now=after(9))
    assert loads(store) == {0: 1, 1: 1}


# -- falling due


def test_what_is_due_becomes_items_that_carry_where_they_came_from(store: Store) -> None:
    one = enroll_one(store, queue="q", args=b'{"n":1}', rank=3, max_lateness=90.5)
    two = enroll_one(store, key="plain", next_at=after(-1), rule="every 1s")
    enroll_one(store, key="later", next_at=after(1))
    assert recur(store) == 2
    (item,) = claim(store, share("q", ranks=(3,), task="ring"))
    assert (item.task, item.args, item.planned_at, item.due_at) == ("ring", b'{"n":1}', NOW, NOW)
    assert (item.schedule_id, item.streak, item.fingerprint, item.expires_at) == (one, 0, None, after(90.5))
    assert (item.key, item.lane, item.rank, item.attempt) == (None, "main", 3, 1)
    plain = claim_one(store)
    assert (plain.schedule_id, plain.expires_at) == (two, None)
    found = get(store, one)
    assert (found.next_at, found.last_at, found.last_item) == (after(3600), NOW, item.id)
    assert recur(store) == 0
    assert fetch(store, item.id) == item


@pytest.mark.parametrize("lateness", [0.0, 0.3, 1.1, 2.3, 90.000001, 86_400.0])
def test_when_an_item_expires_is_exact_to_the_microsecond(store: Store, lateness: float) -> None:
    enroll_one(store, max_lateness=lateness)
    recur(store)
    assert claim_one(store).expires_at == NOW + timedelta(seconds=lateness)


def test_an_item_knows_what_its_schedule_last_saw_and_how_often_it_failed(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    end(store, claim_one(store), Fingerprint("v1"))
    recur(store, after(3600))
    second = claim_one(store, now=after(3600))
    assert (second.fingerprint, second.streak) == ("v1", 0)
    end(store, second, Failed("busy"), after(3600))
    act(store, one, by=advancing.run_now, now=after(3601))
    third = claim_one(store, now=after(3601))
    assert (third.fingerprint, third.streak) == ("v1", 1)
    assert get(store, one).last_item == third.id


def test_several_occurrences_of_one_schedule_are_made_in_order(store: Store) -> None:
    one = enroll_one(store, catch_up="all", next_at=after(-3 * 3600))
    two = enroll_one(store, key="two", catch_up="all", next_at=after(-2 * 3600))
    assert recur(store) == 2
    assert occurrences(store, one) == [after(-3600 * n) for n in (3, 2, 1, 0)]
    rows = query(store, "select schedule_id, planned_at from duly_item order by id")
    assert [row[1] for row in rows] == sorted(row[1] for row in rows), "the oldest first, whoever they belong to"
    newest = max(claim(store), key=lambda item: (item.schedule_id == two, item.planned_at))
    assert get(store, two).last_item == newest.id


def test_an_occurrence_is_made_once_whatever_happens(store: Store) -> None:
    one = enroll_one(store)

    def plan(schedules: Sequence[Schedule], _: object) -> list[Revision]:
        return [Revision(each, (NOW, after(5))) for each in schedules]

    for _ in range(2):
        assert store.revise([one], NOW, 1, plan) == 1
    assert occurrences(store, one) == [NOW, after(5)]
    last = get(store, one).last_item
    assert fetch(store, last).planned_at == after(5), "a second go finds nothing newer"


def test_the_fresh_are_not_late_because_of_a_backlog(store: Store) -> None:
    old = enroll(store, *(a_new(f"old{n}", next_at=after(-86_400 + n)) for n in range(10)))
    fresh = enroll(store, *(a_new(f"fresh{n}", next_at=after(-n)) for n in range(10)))
    seen: list[int] = []

    def plan(schedules: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
        seen.extend(each.id for each in schedules)
        return advance_all(NOW, schedules, live)

    assert store.revise(None, NOW, 6, plan) == 6
    assert seen == [*fresh[:-4:-1], *old[:3]], "some of both, each in order"
    while store.revise(None, NOW, 6, plan):
        pass
    assert sorted(seen) == sorted(old + fresh)


def test_two_workers_make_every_occurrence_once(store: Store, other: Store) -> None:
    ids = enroll(store, *(a_new(f"k{n}", rule="* * * * *", catch_up="all") for n in range(60)))
    start = threading.Barrier(4)

    def work(mine: Store) -> None:
        start.wait()
        for minute in range(10):
            while recur(mine, after(60 * minute), most=7):
                pass

    together(*(partial(work, mine) for mine in (store, other) for _ in range(2)))
    while recur(store, after(540)):
        pass
    for schedule_id in ids:
        assert occurrences(store, schedule_id) == [after(60 * minute) for minute in range(10)]


def test_a_paused_or_broken_schedule_makes_nothing(store: Store) -> None:
    one, two, _ = enroll(store, a_new("a"), a_new("b"), a_new("c"))
    act(store, one, by=advancing.paused)
    fail_thrice(store, two)
    assert recur(store, after(3)) == 1
    assert occurrences(store, one) == []
    assert len(occurrences(store, two)) == 3


def test_a_plan_that_fails_changes_nothing(store: Store) -> None:
    one = enroll_one(store)

    def plan(*_: object) -> list[Revision]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.revise(None, NOW, 10, plan)
    assert get(store, one).next_at == NOW
    assert recur(store) == 1


def test_one_that_is_not_understood_here_stays_due_and_the_others_go_on(store: Store) -> None:
    strange, good = enroll(store, a_new("a", rule="when the moon is full"), a_new("b"))
    before = get(store, strange)
    assert recur(store) == 2
    assert get(store, strange) == before
    assert occurrences(store, good) == [NOW]
    assert recur(store) == 1, "it is there for whoever understands it"
    assert store.revise(None, NOW, 100, partial(advance_all, NOW), without=[strange]) == 0
    assert store.read("next_schedule", {"without": f"[{strange}]"}) == [(after(3600),)]


@pytest.mark.parametrize("overlap", ["allow", "skip", "supersede"])
def test_a_persons_act_is_told_of_what_runs_where_there_may_be_one_only(store: Store, overlap: Any) -> None:
    one = enroll_one(store, overlap=overlap)
    recur(store)
    item = claim_one(store)
    told: list[dict[int, list[Item]]] = []

    def plan(schedules: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
        told.append({key: [(each.id, each.state) for each in some] for key, some in live.items()})
        return []

    store.revise([one], NOW, 1, plan)
    assert told == [{} if overlap == "allow" else {one: [(item.id, "running")]}]


# -- one at a time


def test_a_newer_occurrence_supersedes_one_that_waits(store: Store) -> None:
    one = enroll_one(store, overlap="supersede")
    recur(store)
    end(store, claim_one(store), Failed("busy"))
    recur(store, after(3600))
    first, second = sorted(row[0] for row in query(store, "select id from duly_item"))
    assert (show(store, first)["state"], show(store, first)["outcome"]) == ("cancelled", "superseded")
    assert [item.id for item in claim(store, now=after(3600))] == [second]
    assert get(store, one).last_item == second


def test_a_newer_occurrence_is_skipped_beside_one_that_runs(store: Store) -> None:
    one = enroll_one(store, overlap="supersede")
    recur(store)
    claim_one(store)
    recur(store, after(3600))
    assert counts(store) == {"running": 1}
    assert get(store, one).skipped == 1
    assert audit(store) == [("schedule.skipped", f"schedule:{one}", "duly")]


def test_nothing_runs_twice_at_a_time_while_two_workers_claim_and_a_third_makes(store: Store, other: Store) -> None:
    """A claim that comes between the look at the last item and its end must not lead to two of a kind."""
    enroll(store, *(a_new(f"k{n}", rule="every 1s", overlap="supersede") for n in range(20)))
    stop = threading.Event()
    doubled: list[int] = []
    claimed: Counter[int] = Counter()

    def work(mine: Store, name: str) -> None:
        while not stop.is_set():
            for item in claim(mine, worker=name, now=after(1000)):
                claimed[item.schedule_id] += 1
                running = query(mine, "select schedule_id from duly_item where state = 'running'")
                doubled.extend(key for (key,), n in Counter(running).items() if n > 1)
                mine.settle([decided(item, Done(), after(1000), BREAKER)], [])

    def make() -> None:
        try:
            with opened(store.url) as third:
                for n in range(60):
                    recur(third, after(n))
        finally:
            stop.set()

    together(partial(work, store, "w1"), partial(work, other, "w2"), make)
    assert doubled == []
    assert len(claimed) == 20


# -- by id


def test_a_person_is_shown_what_waits_and_no_more(store: Store) -> None:
    one, two = enroll(store, a_new("a", catch_up="all", next_at=after(-7200)), a_new("b"))
    recur(store)
    running = claim_alone(store)
    end(store, claim_alone(store), Done())
    seen: dict[int, list[Item]] = {}

    def plan(schedules: Sequence[Schedule], waiting: Mapping[int, list[Item]]) -> list[Revision]:
        seen.update(waiting)
        return [Revision(each) for each in schedules]

    assert store.revise([two, one, 10**9], NOW, 3, plan) == 2
    assert [item.planned_at for item in seen[one]] == [NOW]
    assert [item.state for item in (*seen[one], *seen[two])] == ["waiting", "waiting"]
    assert running.id not in {item.id for items in seen.values() for item in items}


def test_nothing_to_revise_is_fine(store: Store) -> None:
    def plan(*_: object) -> list[Revision]:
        raise AssertionError

    assert store.revise([], NOW, 0, plan) == 0
    assert store.revise([10**9], NOW, 1, plan) == 0
    assert store.revise(None, NOW, 10, plan) == 0


def test_every_value_can_be_changed(store: Store) -> None:
    one = enroll_one(store)
    fields = {
        "queue": "q", "rank": 4, "args": b'{"n":2}', "rule": "daily 12:00", "zone": "Europe/Zagreb",
        "catch_up": "skip", "max_lateness": 5.0, "overlap": "skip", "is_declared": True,
    }  # fmt: skip
    act(store, one, by=advancing.changed, **fields)
    found = get(store, one)
    assert {name: getattr(found, name) for name in fields} == fields
    assert found.next_at == after(2 * 3600)


def test_a_change_of_rule_supersedes_what_waits_and_a_removal_cancels_it(store: Store) -> None:
    one, two = enroll(store, a_new("a"), a_new("b"))
    recur(store)
    assert act(store, one, by=advancing.changed, rule="daily 12:00") == 1
    assert act(store, two, by=advancing.removed) == 1
    ends = dict(query(store, "select schedule_id, outcome from duly_item"))
    assert ends == {one: "superseded", two: "cancelled"}
    assert store.read("schedules_with_ids", {"ids": f"[{two}]"}) == []
    assert [what for what, _, _ in audit(store)] == ["schedule.changed", "schedule.removed"]
    assert act(store, two, by=advancing.removed) == 0


def test_the_item_of_a_removed_schedule_ends_like_any_other(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    item = claim_one(store)
    act(store, one, by=advancing.removed)
    assert end(store, item, Failed("busy")) == []
    assert fetch(store, item.id).state == "waiting"


def test_a_change_waits_for_an_item_that_ends_at_this_moment_and_loses_nothing(store: Store, other: Store) -> None:
    """People and workers at the same schedules from both ends: nobody waits for the other for ever."""
    ids = enroll(store, *(a_member(f"k{n}", slots=5, overlap="supersede") for n in range(20)))
    start = threading.Barrier(4)

    def work(mine: Store, order: int) -> None:
        start.wait()
        for n in range(12):
            now = after(86_400 * n)
            recur(mine, now)
            items = sorted(claim(mine, now=now), key=lambda item: item.id * order)
            mine.settle([decided(item, Failed("busy"), now, BREAKER) for item in items], list({i.fence for i in items}))

    def person(mine: Store, order: int) -> None:
        start.wait()
        for _ in range(12):
            act(mine, *ids[::order], by=advancing.paused)
            act(mine, *ids[::order], by=advancing.resumed)

    together(*(partial(job, mine, order) for job in (work, person) for mine, order in ((store, 1), (other, -1))))
    loads(store)


# -- the ends of items


def test_failures_in_a_row_are_counted_over_tries_and_days_and_a_success_ends_the_row(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    end(store, claim_one(store), Failed("busy\nline 2"), after(1))
    assert (get(store, one).failures, get(store, one).last_error) == (1, "busy\nline 2")
    recur(store, after(3600))
    (retry, today) = sorted(claim(store, now=after(3600)), key=lambda item: item.id)
    assert (retry.streak, retry.failures, today.streak) == (0, 1, 1)
    end(store, today, Failed("again"), after(3600))
    assert get(store, one).failures == 2
    end(store, retry, Done(), after(3601))
    found = get(store, one)
    assert (found.failures, found.last_success_at, found.last_error) == (0, after(3601), "again")


@pytest.mark.parametrize("outcome", [Skip("off"), NotFound("gone"), Cancel("stop")])
def test_what_is_neither_success_nor_failure_leaves_the_row_alone(store: Store, outcome: Outcome) -> None:
    one = enroll_one(store)
    recur(store)
    end(store, claim_one(store), Failed("busy"))
    item = claim_one(store, now=after(60))
    before = get(store, one)
    end(store, item, outcome, after(61))
    assert get(store, one) == before


def test_too_many_failures_in_a_row_deactivate_and_leave_a_note(store: Store) -> None:
    one, two = enroll(store, a_new("a"), a_new("b"))
    now = NOW
    for failure in range(1, 4):
        act(store, one, by=advancing.run_now, now=now)
        end(store, claim_one(store, now=now), Failed("busy\nTraceback"), now)
        found = get(store, one)
        assert (found.failures, found.is_active) == (failure, failure < 3)
        now += timedelta(seconds=1)
    assert (found.broken_at, found.next_at) == (after(2), None)
    (last,) = store.read("audit", {"subject": f"schedule:{one}", "before": None, "most": 1})
    assert (last[1], last[2], last[3]) == (after(2), "duly", "schedule.deactivated")
    assert msgspec.json.decode(last[5]) == {"failures": 3, "error": "busy"}
    assert get(store, two).is_active
    act(store, one, by=advancing.reactivated, now=after(9))
    found = get(store, one)
    assert (found.failures, found.broken_at, found.next_at) == (0, None, after(3600))


def test_what_ends_after_the_last_straw_does_not_move_when_it_broke(store: Store) -> None:
    one = enroll_one(store)
    for n in range(4):
        act(store, one, by=advancing.run_now, now=after(n / 10))
    items = claim(store, now=after(1))
    for n, item in enumerate(items):
        end(store, msgspec.structs.replace(item, streak=n), Failed("busy"), after(2 + n))
    assert (get(store, one).broken_at, get(store, one).failures) == (after(4), 4)


def test_ends_of_several_items_of_one_schedule_count_each(store: Store) -> None:
    one, two = enroll(store, a_new("a"), a_new("b"))
    for n in range(5):
        act(store, one, by=advancing.run_now, now=after(n / 10))
    act(store, two, by=advancing.run_now, now=after(1))
    *items, other = claim(store, now=after(1))
    assert other.schedule_id == two
    outcomes = [Done(), Failed("first"), Fingerprint("v1", keep=b"1"), Failed("busy"), Failed("again")]
    changes = [decided(item, outcome, after(2)) for item, outcome in zip(items, outcomes, strict=True)]
    assert store.settle([*changes, decided(other, Failed("no"), after(2))], [other.fence]) == []
    found = get(store, one)
    assert (found.failures, found.last_error, found.fingerprint, found.keep) == (2, "again", "v1", b"1")
    assert get(store, two).failures == 1


def test_a_fingerprint_is_kept_and_an_unchanged_one_counted(store: Store) -> None:
    one = enroll_one(store, rule="every 1s")
    for second, (value, keep) in enumerate([("v1", b'{"etag":"x"}'), ("v1", None), ("v1", None), ("v2", b"[2]")]):
        recur(store, after(second))
        end(store, claim_one(store, now=after(second)), Fingerprint(value, keep=keep), after(second))
    found = get(store, one)
    assert (found.fingerprint, found.unchanged, found.keep) == ("v2", 2, b"[2]")
    rows = store.read("occurrences", {"schedule_id": one, "most": 10})
    assert [row[2] for row in rows] == ["done", "unchanged", "unchanged", "done"], "newest first"


def test_a_stale_end_means_nothing_to_the_schedule(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    item = claim_one(store)
    end(store, item, Done(), after(1))
    before = get(store, one)
    assert end(store, item, Fingerprint("v9", then=(new("index"),)), after(2)) == [item.id]
    assert get(store, one) == before
    assert counts(store) == {"done": 1}


# -- what follows


def test_a_revived_item_begins_a_new_row_of_failures(store: Store) -> None:
    one = enroll_one(store)
    with store.transaction() as connection:
        connection.execute("update duly_schedule set failures = 2")
    recur(store)
    item = claim_one(store)
    assert item.failures_in_a_row == 2
    end(store, item, GiveUp("no"))
    store.settle([decided(fetch(store, item.id), Revived(NOW))])
    assert fetch(store, item.id).failures_in_a_row == 0
    assert get(store, one).failures == 3


def test_what_follows_is_put_with_the_end_of_its_item(store: Store) -> None:
    (item,) = _claimed(store)
    follow = [new("index", args={"n": n}, due_at=after(n)) for n in range(3)]
    assert end(store, item, Fingerprint("v1", result=b"7", then=follow)) == []
    assert fetch(store, item.id).state == "done"
    assert show(store, item.id)["result"] == b"7"
    assert sorted(found.args for found in claim(store, tasks=["index"], now=after(2))) == [
        b'{"n":0}', b'{"n":1}', b'{"n":2}',
    ]  # fmt: skip


def test_what_follows_may_be_due_in_years(store: Store) -> None:
    (item,) = _claimed(store)
    assert end(store, item, Fingerprint("v1", then=[new("index", due_at=datetime(2099, 1, 1, tzinfo=UTC))])) == []
    assert counts(store) == {"done": 1, "waiting": 1}


def test_what_follows_under_a_key_with_other_content_is_left_out(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    item = claim_one(store)
    put(store, task="index", key="taken", args={"n": 1})
    end(store, item, Fingerprint("v1", then=(new("index"), new("index", key="taken", args={"n": 2}))))
    assert fetch(store, item.id).state == "done"
    assert get(store, one).fingerprint == "v1"
    assert counts(store) == {"done": 1, "waiting": 2}


def test_what_follows_under_a_key_that_lives_is_there_already(store: Store) -> None:
    (item,) = _claimed(store)
    put(store, task="index", key="taken")
    assert end(store, item, Fingerprint("v1", then=(new("index", key="taken"),))) == []
    assert counts(store) == {"done": 1, "waiting": 1}


def test_ends_and_what_follows_are_rolled_back_with_the_handlers_transaction(store: Store) -> None:
    one = enroll_one(store)
    recur(store)
    item = claim_one(store)
    with pytest.raises(OSError), store.transaction() as connection:  # noqa: PT012
        end(store, item, Fingerprint("v1", then=(new("index"),)), connection=connection)
        raise OSError
    assert (get(store, one).fingerprint, counts(store)) == (None, {"running": 1})
    with store.transaction() as connection:
        assert end(store, item, Fingerprint("v1", then=(new("index"),)), connection=connection) == []
    assert (get(store, one).fingerprint, counts(store)) == ("v1", {"done": 1, "waiting": 1})


def _claimed(store: Store) -> list[Item]:
    put(store)
    return claim(store)


# -- looks


def test_the_next_schedule_is_the_earliest_that_has_something_to_come(store: Store) -> None:
    assert store.read("next_schedule", {"without": "[]"}) == [(None,)]
    enroll(store, a_new("a", next_at=after(90)), a_new("b", next_at=after(30)), a_new("c", next_at=None))
    first = enroll_one(store, key="b")
    assert store.read("next_schedule", {"without": "[]"}) == [(after(30),)]
    act(store, first, by=advancing.paused)
    assert store.read("next_schedule", {"without": "[]"}) == [(after(90),)]


def test_schedules_are_found_by_whatever_is_known_of_them(store: Store) -> None:
    a, b, c = enroll(store, a_new("a"), a_new("b", task="sing"), a_member("c"))
    act(store, b, by=advancing.paused)

    def page(**filters: Any) -> list[int]:
        given = dict.fromkeys(("owner", "task", "key", "state", "ring", "slot"))
        return [row[0] for row in store.read("schedules", {**given, "after": 0, "most": 100, **filters})]

    assert page() == [a, b, c]
    assert (page(task="sing"), page(key="a"), page(ring="ring"), page(slot=0)) == ([b], [a], [c], [c])
    assert (page(state="active"), page(state="paused"), page(state="broken")) == ([a, c], [b], [])
    assert (page(after=a, most=1), page(after=c)) == ([b], [])
    assert [row[0] for row in store.read("schedules_with_ids", {"ids": f"[{c},{a},999999]"})] == [a, c]
    assert [row[0] for row in store.read("schedule", {"task": "sing", "key": "b"})] == [b]


def test_the_audit_log_is_read_from_its_newest_line(store: Store) -> None:
    for n in range(4):
        details = {
            "now": after(n),
            "actor": "ana",
            "action": f"a{n}",
            "subjects": f'["s{n % 2}"]',
            "details": f'{{"n":{n}}}',
        }
        assert store.write("note_each", details) == []
    rows = store.read("audit", {"subject": "s1", "before": None, "most": 10})
    assert [(row[1], row[2], row[3], row[4], row[5]) for row in rows] == [
        (after(3), "ana", "a3", "s1", b'{"n":3}'),
        (after(1), "ana", "a1", "s1", b'{"n":1}'),
    ]
    older = store.read("audit", {"subject": None, "before": rows[0][0], "most": 2})
    assert [row[3] for row in older] == ["a2", "a1"]


def test_notes_go_with_what_they_are_about(store: Store) -> None:
    one = enroll_one(store)

    def plan(schedules: Sequence[Schedule], _: object) -> list[Revision]:
        return [Revision(each, notes=(NewAuditLine("ana", "looked", "x", b"[1]"),)) for each in schedules]

    store.revise([one], after(5), 1, plan)
    (row,) = store.read("audit", {"subject": "x", "before": None, "most": 10})
    assert row[1:] == (after(5), "ana", "looked", "x", b"[1]")
