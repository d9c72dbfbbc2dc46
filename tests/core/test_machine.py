"""A store against a dict: hypothesis drives both through the same life, and they must agree after every step.

`make chaos` looks at ten times as many lives. DULY_TEST_SOAK=1 looks much longer, starts from another place each time,
and shrinks what it finds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
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

from duly.core.decide import Rules, decide
from duly.core.errors import KeyConflict, WrongState
from duly.core.model import (
    LIVE,
    Armed,
    Cancel,
    Change,
    Crashed,
    Done,
    Failed,
    GiveUp,
    Item,
    Lane,
    Lost,
    NotFound,
    Outcome,
    Released,
    Revived,
    Skip,
    Snooze,
    Throttled,
)
from duly.policy import Backoff
from duly.store import Store
from tests.support import CHAOS, NOW, heads, leases_on, new, opened, query, share

SOAK = os.environ.get("DULY_TEST_SOAK") == "1"
BUDGET = settings(
    derandomize=not SOAK,
    max_examples=3_000 if SOAK else 400 if CHAOS else 40,
    stateful_step_count=100 if SOAK else 40,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink) if SOAK else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
RULES = Rules(retry=Backoff(base=10, tries=3), crash_limit=2, loss_limit=4)
LEASE = timedelta(seconds=20)
TASKS = ("mail", "ring")
LANES: tuple[Lane, ...] = ("main", "retry")

tasks = st.sampled_from(TASKS)
places = st.integers(0, 40)  # which of what there is: taken modulo
seconds = st.sampled_from([0, 1, 5, 10, 19, 20, 21, 60, 500])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from([Done(), Done(b'{"n":1}'), Failed("busy"), Failed("no", ("ValueError", "Exception"))]),
    st.sampled_from([Skip("off"), NotFound(), Released(), GiveUp("no"), Crashed("9"), Cancel("stop")]),
    st.builds(Snooze, seconds),
    st.builds(Throttled, seconds),
)


class Life(RuleBasedStateMachine):
    fences: set[int] = set()  # noqa: RUF012 - of all lives together: a fence is never used twice

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.now = NOW
        self.items: dict[int, Item] = {}
        self.ended: dict[int, datetime] = {}
        self.leases: dict[int, tuple[datetime, list[int]]] = {}
        self.tries: Counter[int] = Counter()
        self.versions: dict[tuple[str, str], tuple[int, int]] = {}  # id and version by task and key
        self.paused: set[str] = set()
        self.claims: list[Item] = []
        self.accepted: Counter[tuple[int, int]] = Counter()
        for table in ("duly_attempt", "duly_item", "duly_lease", "duly_queue"):
            with store.transaction() as connection:
                connection.execute(f"delete from {table}")

    # -- in

    @rule(task=tasks, key=st.sampled_from([None, None, "a", "b"]), n=st.integers(0, 1), delay=seconds,
          rank=st.integers(0, 1), most=st.sampled_from([None, 1, 2]))  # fmt: skip
    def put(self, task: str, key: str | None, n: int, delay: int, rank: int, most: int | None) -> None:
        due_at = self.now + timedelta(seconds=delay)
        item = new(task, key=key, args={"n": n}, due_at=due_at, rank=rank, max_attempts=most)
        holder = self.holder(task, key)
        if holder and (holder.args, holder.planned_at) != (item.args, due_at):
            with pytest.raises(KeyConflict) as refused:
                self.store.put([item])
            assert refused.value.item_id == holder.id
            return
        (placed,) = self.store.put([item])
        assert placed.fresh is (holder is None)
        if holder:
            assert (placed.id, placed.execution_key) == (holder.id, holder.execution_key)
            return
        assert placed.id not in self.items
        self.items[placed.id] = Item(
            placed.id, task, task, "main", rank, "waiting", due_at, due_at, key, placed.execution_key, item.args, 0,
            most, 0, 0, 0, 0, None, None, None,
        )  # fmt: skip

    @initialize(count=st.integers(2, 6))
    def begin(self, count: int) -> None:
        self.load_some("ring", count, 0)

    @rule(task=tasks, count=st.integers(0, 4), delay=seconds)
    def load(self, task: str, count: int, delay: int) -> None:
        self.load_some(task, count, delay)

    def load_some(self, task: str, count: int, delay: int) -> None:
        due_at = self.now + timedelta(seconds=delay)
        assert self.store.load(new(task, due_at=due_at) for _ in range(count)) == count
        known = max(self.items, default=0)
        loaded = [row[0] for row in query(self.store, f"select id from duly_item where id > {known} order by id")]
        assert len(loaded) == count
        for item in self.store.fetch(loaded):
            assert (item.task, item.state, item.due_at, item.attempt) == (task, "waiting", due_at, 0)
            self.items[item.id] = item

    @rule(task=tasks, key=st.sampled_from(["x", "y"]), version=st.integers(0, 4), delay=seconds)
    def arm(self, task: str, key: str, version: int, delay: int) -> None:
        """A key for good: the row, if there is one, begins anew for a higher version, and for any once it is done."""
        due_at = self.now + timedelta(seconds=delay)
        item_id, held = self.versions.get((task, key), (0, -1))
        before = self.items.get(item_id)
        item = new(task, key=key, args={"v": version}, due_at=due_at, version=version)
        (armed,) = self.store.arm([item], lambda _, newer: newer)
        if before is None:
            assert armed.how == "new"
            (self.items[armed.id],) = self.store.fetch([armed.id])
        else:
            is_again = version > held or before.state == "done"
            is_begun = before.state in LIVE and before.started_at is not None
            assert armed == Armed(item_id, "again" if is_again else "known", is_begun and not is_again)
            if not is_again:
                return
            version = max(version, held + 1)
            self.items[item_id] = replace(
                before, state="waiting", lane="main", rank=0, planned_at=due_at, due_at=due_at, args=item.args,
                attempt=0, failures=0, crashes=0, losses=0, revivals=0, max_attempts=None, started_at=None,
            )  # fmt: skip
            self.tries[item_id] += before.state in ("running", "done")
            self.ended.pop(item_id, None)
        self.versions[task, key] = (armed.id, version)

    # -- the engine

    @precondition(lambda self: self.any_in("waiting"))
    @rule(worker=st.sampled_from(["w1", "w2"]), limit=st.integers(1, 4), patient=st.booleans(),
          known=st.sampled_from([TASKS, TASKS, TASKS[:1], TASKS[1:]]))  # fmt: skip
    def claim(self, worker: str, limit: int, known: tuple[str, ...], patient: bool) -> None:
        if patient:
            self.now = max(self.now, min(item.due_at for item in self.items.values() if item.state == "waiting"))
        shares = [share(task, lane, (0, 1), limit) for task in known for lane in LANES]
        expected = [item for each in shares for item in self.due(each.line.queue, each.lane)[:limit]]
        claimed = self.store.claim(shares, worker, self.now, LEASE)
        assert {item.id for item in claimed} == {item.id for item in expected}
        if not claimed:
            return
        (fence,) = {item.fence for item in claimed}
        assert fence not in self.fences
        self.fences.add(fence)
        for item in claimed:
            was = self.items[item.id]
            assert item == replace(
                was, state="running", attempt=was.attempt + 1, fence=fence, claimed_by=worker, started_at=self.now
            )
            self.items[item.id] = item
        self.leases[fence] = (self.now + LEASE, sorted(item.id for item in claimed))
        self.claims.extend(claimed)

    @precondition(lambda self: self.claims)
    @rule(which=st.lists(st.tuples(places, outcomes), min_size=1, max_size=4), close=st.booleans())
    def settle(self, which: list[tuple[int, Outcome]], close: bool) -> None:
        """Workers end their tries: those they still hold and those they lost long ago."""
        chosen = {self.claims[-1 - place % len(self.claims)]: outcome for place, outcome in which}
        changes = [decide(item, outcome, self.now, RULES) for item, outcome in chosen.items()]
        self.apply(changes, self.empty_after(changes) if close else [])

    @precondition(lambda self: self.any_in("waiting"))
    @rule(ends=st.lists(outcomes, min_size=1, max_size=4))
    def work(self, ends: list[Outcome]) -> None:
        """A worker that does nothing wrong: waits, claims, settles all, closes."""
        self.claim("w3", len(ends), TASKS, True)
        held = [item for item in self.claims if self.is_running(item.id, item.fence) and item.claimed_by == "w3"]
        changes = [decide(item, end, self.now, RULES) for item, end in zip(held, ends, strict=False)]
        self.apply(changes, self.empty_after(changes))

    @precondition(lambda self: self.claims)
    @rule(place=places, delay=st.sampled_from([0, 5]))
    def extend(self, place: int, delay: int) -> None:
        fence = self.claims[-1 - place % len(self.claims)].fence
        held = [item.id for item in self.claims if item.fence == fence]
        _, items = self.leases.get(fence, (self.now, []))
        holds = fence in self.leases  # also one that ran out unnoticed
        kept = [one for one in held if holds and self.is_running(one, fence)]
        later = self.now + LEASE + timedelta(seconds=delay)
        lost = [(one, fence) for one in sorted(set(held) - set(kept))]
        assert sorted(self.store.extend({fence: held}, self.now, later)) == lost
        if holds:
            self.leases[fence] = (later, items)

    @precondition(lambda self: self.items)
    @rule(by=seconds)
    def time_passes(self, by: int) -> None:
        self.now += timedelta(seconds=by, microseconds=1)

    @precondition(lambda self: self.leases)
    @rule(patient=st.booleans())
    def rescue(self, patient: bool) -> None:
        if patient:
            self.now = max(self.now, min(until for until, _ in self.leases.values()) + timedelta(microseconds=1))
        found, empty = self.store.expired(self.now, 100)
        over = {fence: ids for fence, (until, ids) in self.leases.items() if until < self.now}
        expected = {one for fence, ids in over.items() for one in ids if self.is_running(one, fence)}
        assert {item.id for item in found} == expected
        assert all(item == self.items[item.id] for item in found)
        assert empty == sorted(set(over) - {item.fence for item in found})
        self.apply([decide(item, Lost(), self.now, RULES) for item in found], empty)

    @precondition(lambda self: self.claims)
    @rule(place=places)
    def rescue_by_an_old_look(self, place: int) -> None:
        """The worker may have extended or settled since."""
        self.apply([decide(self.claims[-1 - place % len(self.claims)], Lost(), self.now, RULES)])

    # -- people

    @precondition(lambda self: self.items)
    @rule(place=places, wish=st.sampled_from(["cancel", "revive"]), delay=seconds)
    def wish(self, place: int, wish: str, delay: int) -> None:
        (item,) = self.store.fetch([sorted(self.items)[place % len(self.items)]])
        outcome: Outcome = Cancel("enough") if wish == "cancel" else Revived(self.now + timedelta(seconds=delay))
        try:
            change = decide(item, outcome, self.now, RULES)
        except WrongState:
            return
        holder = self.holder(item.task, item.key)
        if item.state not in LIVE and holder:
            with pytest.raises(WrongState):
                self.store.settle([change])
            return
        self.apply([change])

    @precondition(lambda self: self.claims and not self.paused)
    @rule(queue=tasks)
    def pause(self, queue: str) -> None:
        self.store.pause(queue, self.now)
        self.paused.add(queue)

    @precondition(lambda self: self.paused)
    @rule(queue=tasks)
    def resume(self, queue: str) -> None:
        self.store.resume(queue)
        self.paused.discard(queue)

    @precondition(lambda self: self.ended)
    @rule(age=seconds, most=st.integers(1, 50))
    def prune(self, age: int, most: int) -> None:
        before = self.now - timedelta(seconds=age)
        old = {one for one, at in self.ended.items() if at < before and self.items[one].state in ("done", "cancelled")}
        looked = sorted(self.items)[:most]
        gone = old & set(looked)
        assert self.store.prune(before, 0, most)[0] == len(gone)
        left = {row[0] for row in query(self.store, "select id from duly_item")}
        assert set(self.items) - left == gone
        for one in gone:
            del self.items[one], self.ended[one]
            self.tries.pop(one, None)

    # -- what must hold

    @invariant()
    def the_store_and_the_model_agree(self) -> None:
        with self.store.transaction() as connection:
            ids = [row[0] for row in connection.execute("select id from duly_item")]
            tries = dict(connection.execute("select item_id, count(*) from duly_attempt group by item_id").fetchall())
            found = leases_on(connection)
        assert {item.id: item for item in self.store.fetch(ids)} == self.items, "nothing is lost or made up"
        assert tries == {one: count for one, count in self.tries.items() if count}
        assert {fence: (until, ids) for fence, (_, until, ids) in found.items()} == self.leases
        for item in self.items.values():
            if item.state == "running":
                assert item.id in self.leases[item.fence][1], "a running item has its one lease"

    @invariant()
    def heads_are_the_earliest_of_open_queues(self) -> None:
        earliest: dict[tuple[str, str, int], datetime] = {}
        for item in self.items.values():
            if item.state == "waiting" and item.queue not in self.paused:
                place = (item.queue, item.lane, item.rank)
                earliest[place] = min(item.due_at, earliest.get(place, item.due_at))
        assert {(head.line.queue, head.lane, head.rank): head.due_at for head in heads(self.store)} == earliest

    @invariant()
    def tries_are_bounded(self) -> None:
        for item in self.items.values():
            assert item.attempt <= (item.max_attempts or RULES.retry.tries_for(()))
            assert item.crashes <= RULES.crash_limit
            assert item.losses <= RULES.loss_limit

    # -- the model

    def any_in(self, state: str) -> bool:
        return any(item.state == state for item in self.items.values())

    def holder(self, task: str, key: str | None) -> Item | None:
        live = (item for item in self.items.values() if item.state in LIVE)
        return next((item for item in live if key is not None and (item.task, item.key) == (task, key)), None)

    def due(self, queue: str, lane: str) -> list[Item]:
        """What a claim may take here, in its order."""
        found = [
            item
            for item in self.items.values()
            if item.state == "waiting" and (item.queue, item.lane) == (queue, lane) and item.due_at <= self.now
        ]
        return [] if queue in self.paused else sorted(found, key=lambda item: (item.rank, item.due_at, item.id))

    def is_running(self, item_id: int, fence: int) -> bool:
        item = self.items.get(item_id)
        return item is not None and item.state == "running" and item.fence == fence

    def empty_after(self, changes: list[Change]) -> list[int]:
        """The leases that hold nothing more once these changes are made."""
        over = {(change.id, change.fence) for change in changes}
        return [
            fence
            for fence, (_, ids) in self.leases.items()
            if not any(self.is_running(one, fence) and (one, fence) not in over for one in ids)
        ]

    def takes(self, change: Change) -> bool:
        item = self.items.get(change.id)
        if item is None or (item.state, item.fence) != (change.was, change.fence):
            return False
        lease = self.leases.get(change.fence)
        return change.expired_at is None or lease is None or lease[0] < change.expired_at

    def apply(self, changes: list[Change], closed: list[int] = []) -> None:  # noqa: B006
        refused = self.store.settle(changes, closed)
        assert sorted(refused) == sorted(change.id for change in changes if not self.takes(change))
        for change in changes:
            if not self.takes(change):
                continue
            item = self.items[change.id]
            self.items[change.id] = replace(
                item, state=change.state, lane=change.lane, due_at=change.due_at, attempt=change.attempt,
                failures=change.failures, crashes=change.crashes, losses=change.losses,
                revivals=item.revivals + (change.outcome == "revived"),
            )  # fmt: skip
            self.ended.pop(change.id, None)
            if change.finished_at:
                self.ended[change.id] = change.finished_at
            self.tries[change.id] += change.tried is not None
            if change.was == "running":
                self.accepted[change.id, change.fence] += 1
                assert self.accepted[change.id, change.fence] == 1, "one accepted settle per fence"
        for fence in closed:
            self.leases.pop(fence, None)


@pytest.fixture
def quick_store(database_url: str) -> Iterator[Store]:
    """Power loss is not what this is about."""
    with opened(database_url + ("?synchronous=off" if database_url.startswith("sqlite") else "")) as store:
        yield store


def test_a_store_lives_as_the_model_does(quick_store: Store) -> None:
    Life.fences = set()
    run_state_machine_as_test(partial(Life, quick_store), settings=BUDGET)
    assert len(Life.fences) > 100, "the machine did claim"
