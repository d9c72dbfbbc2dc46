"""Schedules on a store against a dict: joins, people, time and the ends of items in any order, and they must agree.

DULY_TEST_SOAK=1 looks much longer, starts from another place each time, and shrinks what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from duly.core import advance as advancing
from duly.core.decide import Rules, decide
from duly.core.errors import WrongState
from duly.core.model import (
    LIVE,
    Cancel,
    Done,
    Failed,
    Fingerprint,
    Item,
    Member,
    NewSchedule,
    Outcome,
    Revision,
    Schedule,
    Skip,
    Snooze,
)
from duly.core.policy.recur import Slot, parse, zone_named
from duly.policy import Backoff
from duly.store import Store
from duly.store.contract import FRESH
from tests.core.test_machine import BUDGET
from tests.support import NOW, claim, opened, query, share

LIVES = BUDGET.max_examples // 2  # each takes four times as long as one of a store
RULES = Rules(retry=Backoff(base=600, tries=3), breaker=4)
SLOTS = 3
KEYS = ("a", "b", "c", "d", "e", "f")
RULE_TEXTS = ("0 * * * *", "every 20m", "slot 1/48", "daily 10:30")
TABLES = ("duly_attempt", "duly_item", "duly_lease", "duly_audit", "duly_schedule", "duly_slot")

places = st.integers(0, 40)  # which of what there is: taken modulo
minutes = st.sampled_from([0, 1, 10, 20, 60, 300, 1500])
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        *(Done(), Failed("busy"), Failed("no"), Skip(), Snooze(60), Cancel()),
        *(Fingerprint("v1"), Fingerprint("v2", keep=b"[2]")),
    ]
)


class Seasons(RuleBasedStateMachine):
    made = 0  # items, of all lives together

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.now = NOW
        self.schedules: dict[int, Schedule] = {}
        self.items: dict[int, Item] = {}
        self.claims: list[Item] = []
        for table in TABLES:
            with store.transaction() as connection:
                connection.execute(f"delete from {table}")

    # -- joining

    @initialize(overlap=st.sampled_from(["allow", "skip", "supersede"]))
    def begin(self, overlap: str) -> None:
        self.join(["a", "b", "c"], "every 20m", False, None, catch_up="all", overlap=overlap)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), text=st.sampled_from(RULE_TEXTS),
          catch_up=st.sampled_from(["all", "latest", "skip"]), overlap=st.sampled_from(["allow", "skip", "supersede"]),
          lateness=st.sampled_from([None, 1800.0]), in_ring=st.booleans())  # fmt: skip
    def join(self, keys: list[str], text: str, in_ring: bool, lateness: float | None, **more: Any) -> None:
        place = zone_named("UTC")
        news = [
            NewSchedule(
                "ring", key, "ring", b"{}", f"slot 0/{SLOTS}" if in_ring else text, "UTC",
                None if in_ring else parse(text).next(self.now, place), max_lateness=lateness,
                ring="ring" if in_ring else None, slots=SLOTS if in_ring else None, **more,
            )
            for key in keys
        ]  # fmt: skip

        def seat(new: NewSchedule, slot: int) -> tuple[str, datetime]:
            seated = Slot(slot, SLOTS, "1d")
            return str(seated), seated.next(self.now, place)

        taken = {schedule.key: schedule.id for schedule in self.schedules.values()}
        loads = self.loads()
        for new, (schedule_id, fresh) in zip(news, self.store.enroll(news, seat), strict=True):
            assert fresh is (new.key not in taken)
            if not fresh:
                assert schedule_id == taken[new.key]
                continue
            taken[new.key] = schedule_id
            (row,) = self.store.read("schedules_with_ids", {"ids": f"[{schedule_id}]"})
            found = Schedule(*row)
            assert (found.key, found.catch_up, found.overlap) == (new.key, new.catch_up, new.overlap)
            if in_ring:
                assert loads[found.slot] == min(loads[slot] for slot in range(SLOTS)), "the emptiest"
                loads[found.slot] += 1
                assert (found.rule, found.next_at) == seat(new, found.slot)
            self.schedules[schedule_id] = found

    # -- time

    @precondition(lambda self: self.schedules)
    @rule(by=minutes, most=st.integers(1, 5), again=st.booleans())
    def time_passes(self, by: int, most: int, again: bool) -> None:
        self.now += timedelta(minutes=by, seconds=1)
        while self.recur(most) and again:
            pass

    def recur(self, most: int) -> int:
        due = sorted(
            (each for each in self.schedules.values() if each.next_at is not None and each.next_at <= self.now),
            key=lambda each: (each.next_at, each.id),
        )
        fresh = [each for each in due if each.next_at >= self.now - FRESH][: most // 2]
        expected = fresh + [each for each in due if each not in fresh][: most - len(fresh)]

        def plan(some: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
            assert list(some) == expected
            for each in some:
                last = self.items.get(each.last_item or 0)
                assert live.get(each.id, []) == ([last] if last is not None and last.state in LIVE else [])
            return self.remember(advancing.advance_all(self.now, some, live))

        assert self.store.revise(None, self.now, most, plan) == len(expected)
        self.learn()
        return len(expected)

    # -- people

    @precondition(lambda self: self.schedules)
    @rule(which=st.lists(places, min_size=1, max_size=3),
          wish=st.sampled_from(["paused", "resumed", "reactivated", "run_now", "removed", "changed"]),
          text=st.sampled_from(RULE_TEXTS), rank=st.integers(0, 1))  # fmt: skip
    def wish(self, which: list[int], wish: str, text: str, rank: int) -> None:
        ids = sorted({sorted(self.schedules)[place % len(self.schedules)] for place in which})
        self.now += timedelta(seconds=1)

        def plan(some: Sequence[Schedule], waiting: Mapping[int, list[Item]]) -> list[Revision]:
            assert list(some) == [self.schedules[each] for each in ids]
            for each in ids:
                states = ("waiting",) if self.schedules[each].overlap == "allow" else ("waiting", "running")
                held = {item for item in self.items.values() if item.schedule_id == each and item.state in states}
                assert set(waiting.get(each, ())) == held
            act = getattr(advancing, wish)
            if wish == "changed":
                return [self.change(each, waiting, text, rank) for each in some]
            live = waiting if wish == "removed" else {}
            return [act(each, live.get(each.id, ()), self.now, "ana") for each in some]

        try:
            assert self.store.revise(ids, self.now, len(ids), lambda *given: self.remember(plan(*given))) == len(ids)
        except WrongState:
            assert wish == "reactivated"
        self.learn()

    def change(self, each: Schedule, waiting: Mapping[int, list[Item]], text: str, rank: int) -> Revision:
        fields = {"rank": rank} if each.ring is not None else {"rank": rank, "rule": text}
        return advancing.changed(each, waiting.get(each.id, ()), self.now, "ana", **fields)

    # -- workers

    @precondition(lambda self: any(item.state == "waiting" for item in self.items.values()))
    @rule()
    def claim(self) -> None:
        claimed = claim(self.store, share(ranks=(0, 1)), share(lane="retry", ranks=(0, 1)), now=self.now)
        for item in claimed:
            was = self.items[item.id]
            assert item == replace(
                was, state="running", attempt=was.attempt + 1, fence=item.fence, claimed_by="w1", started_at=self.now
            )
            self.items[item.id] = item
        self.claims += claimed

    @precondition(lambda self: self.claims)
    @rule(ends=st.lists(st.tuples(places, outcomes), min_size=1, max_size=6))
    def settle(self, ends: list[tuple[int, Outcome]]) -> None:
        chosen = {self.claims[-1 - place % len(self.claims)]: outcome for place, outcome in ends}
        changes = [decide(item, outcome, self.now, RULES) for item, outcome in chosen.items()]
        stale = [(item.id, item.fence) for item in chosen if self.items[item.id] != item]
        assert self.store.settle(changes) == [item_id for item_id, _ in stale]
        for change in changes:
            if (change.id, change.fence) in stale:
                continue
            self.items[change.id] = replace(
                self.items[change.id], state=change.state, lane=change.lane, due_at=change.due_at,
                attempt=change.attempt, failures=change.failures,
            )  # fmt: skip
            if change.member is not None:
                self.blame(change.member)

    @precondition(lambda self: self.schedules)
    @rule(by=minutes, ends=st.lists(st.tuples(places, outcomes), min_size=1, max_size=6))
    def work(self, by: int, ends: list[tuple[int, Outcome]]) -> None:
        """As it is meant to be: what falls due is made, claimed and done."""
        self.time_passes(by, 5, True)
        self.claim()
        if self.claims:
            self.settle(ends)

    def blame(self, member: Member) -> None:
        was = self.schedules.get(member.schedule_id)
        if was is None:  # removed while it ran
            return
        broken = {"broken_at": was.broken_at or member.at, "next_at": None} if member.is_broken else {}
        end: dict[str, Any] = (
            {"failures": 0, "last_success_at": member.at}
            if member.is_success
            else {"failures": max(was.failures + 1, member.failures), "last_error": member.error}
        )
        self.schedules[was.id] = replace(
            was, **end, **broken, fingerprint=member.fingerprint or was.fingerprint, keep=member.keep or was.keep,
            unchanged=was.unchanged + member.is_unchanged,
        )  # fmt: skip

    # -- the model

    def remember(self, revisions: list[Revision]) -> list[Revision]:
        self.revisions = revisions
        return revisions

    def learn(self) -> None:
        """Apply what was planned, and take the ids of new items from the store: nothing else of them."""
        revisions, self.revisions = self.revisions, []
        for revision in revisions:
            before = self.schedules.pop(revision.schedule.id)
            for change in revision.changes:
                self.items[change.id] = replace(self.items[change.id], state=change.state)
            if revision.is_removed:
                continue
            made = [self.made_at(before, revision.schedule, at) for at in revision.occurrences]
            last = made[-1].id if made else before.last_item
            self.schedules[before.id] = replace(revision.schedule, last_item=last)
            self.items.update({item.id: item for item in made})

    def made_at(self, before: Schedule, after: Schedule, at: datetime) -> Item:
        rows = self.store.read("occurrences", {"schedule_id": after.id, "most": 1_000})
        (item_id,) = [row[0] for row in rows if row[3] == at]
        assert item_id not in self.items, "an occurrence was made twice"
        type(self).made += 1
        (found,) = self.store.fetch([item_id])
        lateness = after.max_lateness
        expected = Item(
            item_id, "ring", "ring", "main", after.rank, "waiting", at, at, None, found.execution_key, b"{}", 0, None,
            0, 0, 0, 0, None, None, None, after.id, before.failures, before.fingerprint,
            None if lateness is None else at + timedelta(seconds=lateness),
        )  # fmt: skip
        assert found == expected
        return found

    def loads(self) -> Counter[int]:
        return Counter(each.slot for each in self.schedules.values() if each.ring is not None and each.is_active)

    revisions: list[Revision] = []  # noqa: RUF012 - replaced, never changed

    # -- what must hold

    @invariant()
    def the_store_and_the_model_agree(self) -> None:
        given: dict[str, Any] = dict.fromkeys(("owner", "task", "key", "state", "ring", "slot"))
        rows = self.store.read("schedules", {**given, "after": 0, "most": 1_000})
        assert {row[0]: Schedule(*row) for row in rows} == self.schedules
        ids = [row[0] for row in query(self.store, "select id from duly_item")]
        assert {item.id: item for item in self.store.fetch(ids)} == self.items

    @invariant()
    def the_load_of_a_slot_is_its_active_members(self) -> None:
        kept = {slot: members for _, slot, members in self.store.read("slots", {"ring": "ring"}) if members}
        assert kept == self.loads()

    @invariant()
    def only_the_active_have_something_to_come(self) -> None:
        assert all(each.next_at is None or each.is_active for each in self.schedules.values())
        (row,) = self.store.read("next_schedule", {"without": "[]"})
        assert row == (min((each.next_at for each in self.schedules.values() if each.next_at), default=None),)

    @invariant()
    def one_at_a_time_is_one_at_a_time(self) -> None:
        live = Counter(
            item.schedule_id
            for item in self.items.values()
            if item.state in LIVE and self.is_one_at_a_time(item) and item.planned_at.second == 0
        )
        assert all(count == 1 for count in live.values()), live

    def is_one_at_a_time(self, item: Item) -> bool:
        schedule = self.schedules.get(item.schedule_id or 0)
        return schedule is not None and schedule.overlap != "allow" and not self.was_run_by_hand(schedule)

    def was_run_by_hand(self, schedule: Schedule) -> bool:
        """What a person asks for comes beside what is under way."""
        return any(item.schedule_id == schedule.id and item.planned_at.second for item in self.items.values())


@pytest.fixture
def quick_store(database_url: str) -> Iterator[Store]:
    """Power loss is not what this is about."""
    with opened(database_url + ("?synchronous=off" if database_url.startswith("sqlite") else "")) as store:
        yield store


def test_schedules_live_as_the_model_does(quick_store: Store) -> None:
    Seasons.made = 0
    run_state_machine_as_test(partial(Seasons, quick_store), settings=settings(BUDGET, max_examples=LIVES))
    assert Seasons.made > 100, "the machine did make items"
