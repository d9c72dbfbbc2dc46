"""The claimer on a real store, tick by tick, with a pool that only remembers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from duly.core.clock import EPOCH, DatabaseClock
from duly.core.model import ALONE, Ask, Done, Grant, Head, Item, Line, Share
from duly.engine.claimer import Claimer
from duly.engine.metering import Meters
from duly.engine.news import ClaimerInbox
from duly.engine.starts import NO_SEATS, Permit, Seats
from duly.engine.work import InFlight
from duly.store import Store
from duly.store.contract import START
from tests.support import NOW, after, counts, fetch, head, leases, new, put, settle, show

POLL, SWEEP, LEASE = 60.0, 5.0, 20.0


class Basket:
    """A pool that takes what it gets."""

    meters: Meters | None = None
    batch = 1
    suspects = ALONE

    def __init__(self, room: int = 10, tasks: tuple[str, ...] = ("ring",)) -> None:
        self.tasks = list(tasks)
        self.size = room
        self.allowed: dict[str, int] = {}
        self.items: list[Item] = []

    def allowance(self, line: Line) -> int:
        return self.allowed.get(line.queue, self.room())

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        return self.room() if queue is None else self.allowed.get(queue, self.room())

    def busy_queues(self, owner: str) -> list[str]:
        return []

    def busy_owners(self) -> list[str]:
        return []

    def room(self) -> int:
        return self.size - len(self.items)

    def free_calls(self) -> int:
        return -(-self.room() // self.batch)

    def begin(self, items: list[Item], permits: Sequence[Permit] | None = None, seats: Seats = NO_SEATS) -> None:
        self.items.extend(items)


def steady() -> Callable[[], float]:
    """Looks at the database take a millisecond, however busy the machine is."""
    steps = itertools.count()
    return lambda: next(steps) / 1_000


def claimer(store: Store, *pools: Basket, in_flight: InFlight | None = None) -> Claimer:
    return Claimer(
        store, pools, InFlight() if in_flight is None else in_flight, "w1", lease=LEASE, poll=POLL, sweep=SWEEP,
        ticks=steady(),
    )  # fmt: skip


def test_it_takes_what_is_due_and_comes_back_at_the_next_due_time(store: Store) -> None:
    put(store, 3)
    put(store, due_at=after(7.5))
    pool = Basket()
    one = claimer(store, pool)
    soon = one.tick(NOW)
    assert len(pool.items) == 3
    assert soon < after(2), "what comes next in this queue is looked up shortly after"
    assert one.tick(soon) == after(7.5)


def test_a_put_in_between_does_not_make_it_forget_what_was_to_come(store: Store) -> None:
    put(store, due_at=after(5))
    pool = Basket()
    one = claimer(store, pool)
    assert one.tick(NOW) == after(5)
    put(store, due_at=after(1))
    one.inbox.put(head("ring", due_at=after(1)))
    one.tick(after(1))
    one._look_at = after(1000)  # even if nobody looked again
    assert one.tick(after(2)) == after(5)


def test_with_nothing_to_do_it_sleeps_for_a_poll(store: Store) -> None:
    assert claimer(store, Basket()).tick(NOW) == after(POLL)


def test_a_full_pool_is_not_asked_and_wakes_it_itself(store: Store) -> None:
    put(store, 5)
    pool = Basket(room=2)
    one = claimer(store, pool)
    assert one.tick(NOW) == after(POLL)
    assert len(pool.items) == 2
    pool.items.clear()
    one.tick(after(1))
    assert len(pool.items) == 2


def test_news_of_a_put_is_enough_to_claim_it_without_a_survey(store: Store) -> None:
    pool = Basket()
    heard: list[bool] = []
    inbox = ClaimerInbox(pool.tasks, wake=lambda: heard.append(True))
    one = Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, inbox=inbox)
    one.tick(NOW)
    put(store, due_at=after(1))
    one.inbox.put(head("ring", due_at=after(1)))
    assert heard == [True]
    one.tick(after(0.5))
    assert pool.items == []
    one.tick(after(1))
    assert len(pool.items) == 1


def test_news_of_something_unknown_makes_it_look(store: Store) -> None:
    pool = Basket()
    one = claimer(store, pool)
    one.tick(NOW)
    put(store, due_at=NOW)
    assert one.tick(after(1)) == after(POLL), "nobody told it"
    one.inbox.changed()
    one.tick(after(2))
    assert len(pool.items) == 1


def test_polling_alone_finds_what_nobody_announced(store: Store) -> None:
    pool = Basket()
    one = claimer(store, pool)
    one.tick(NOW)
    put(store)
    one.tick(after(POLL))
    assert len(pool.items) == 1


def test_an_item_of_an_unknown_task_is_left_alone_and_asked_for_ever_more_rarely(store: Store) -> None:
    put(store, task="mystery")
    pool = Basket()
    one = claimer(store, pool)
    now, pauses = NOW, []
    for _ in range(40):
        then = one.tick(now)
        pauses.append(then - now)
        now = then
    assert pool.items == []
    assert now - NOW > timedelta(seconds=20), "it would ask for ever at full speed"


def test_pools_do_not_spoil_each_others_outlook(store: Store) -> None:
    put(store, 2, task="ring")
    put(store, 2, task="sing")
    ring, sing = Basket(tasks=("ring",)), Basket(tasks=("sing",))
    claimer(store, ring, sing).tick(NOW)
    assert {item.task for item in ring.items} == {"ring"}
    assert {item.task for item in sing.items} == {"sing"}
    assert (len(ring.items), len(sing.items)) == (2, 2)


def test_a_busy_queue_does_not_starve_a_quiet_one(store: Store) -> None:
    put(store, 100, task="ring")
    put(store, 3, task="sing", due_at=NOW)
    pool = Basket(room=10, tasks=("ring", "sing"))
    claimer(store, pool).tick(NOW)
    assert sum(item.task == "sing" for item in pool.items) == 3
    assert len(pool.items) == 10, "what the quiet queue did not need went to the busy one"


def test_better_ranks_start_first(store: Store) -> None:
    put(store, 3, rank=5)
    put(store, 2, rank=-5)
    pool = Basket(room=3)
    claimer(store, pool).tick(NOW)
    assert [item.rank for item in pool.items] == [-5, -5, 5]


def test_a_paused_queue_starts_nothing_until_it_is_resumed(store: Store) -> None:
    put(store, 2)
    store.pause("ring", NOW)
    pool = Basket()
    one = claimer(store, pool)
    one.tick(NOW)
    assert pool.items == []
    store.resume("ring")
    one.inbox.changed()
    one.tick(after(1))
    assert len(pool.items) == 2


def test_claimed_items_are_held_under_their_lease(store: Store) -> None:
    put(store, 2)
    in_flight = InFlight()
    pool = Basket()
    claimer(store, pool, in_flight=in_flight).tick(NOW)
    (fence,) = {item.fence for item in pool.items}
    assert in_flight.held()[fence].open == {item.id for item in pool.items}
    settle(store, pool.items, Done())
    assert in_flight.closing(pool.items[:1]) == []
    assert in_flight.closing(pool.items) == [fence]
    in_flight.let_go(pool.items)
    assert in_flight.held() == {}


def test_items_that_a_pool_refuses_are_not_kept_alive_by_heartbeats(store: Store) -> None:
    (item_id,) = put(store)

    class Broken(Basket):
        def begin(self, items: list[Item], *more: object) -> None:
            raise RuntimeError("no more threads")

    in_flight = InFlight()
    with pytest.raises(RuntimeError):
        claimer(store, Broken(), in_flight=in_flight).tick(NOW)
    assert in_flight.held() == {}
    items, _ = store.expired(after(LEASE + 1), 10)
    assert [item.id for item in items] == [item_id]


def test_a_stopped_or_swamped_claimer_claims_nothing(store: Store) -> None:
    (item_id,) = put(store)
    pool = Basket()
    one = claimer(store, pool)
    one.stop()
    one.tick(NOW)
    swamped = Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, is_swamped=lambda: True)
    assert swamped.tick(NOW) < after(1)
    assert pool.items == []
    assert fetch(store, item_id).state == "waiting"


def test_what_expired_is_ended_without_being_run(store: Store) -> None:
    (late, *_) = put(store, 2, expires_at=after(-0.000001))
    (just,) = put(store, expires_at=NOW)
    pool = Basket()
    claimer(store, pool).tick(NOW)
    assert [item.id for item in pool.items] == [just]
    row = show(store, late)
    assert (row["state"], row["outcome"], row["attempt"], row["finished_at"]) == ("done", "expired", 0, NOW)
    assert row["last_error"] == f"not started: it expired at {fetch(store, late).expires_at}"
    (fence,) = leases(store)
    assert fence == pool.items[0].fence, "the one that runs keeps the lease"


def test_a_claim_of_what_expired_alone_leaves_no_lease(store: Store) -> None:
    put(store, 3, expires_at=after(-1))
    in_flight = InFlight()
    pool = Basket()
    claimer(store, pool, in_flight=in_flight).tick(NOW)
    assert (pool.items, leases(store), in_flight.held()) == ([], {}, {})
    assert counts(store) == {"done": 3}


def test_what_was_claimed_while_it_was_stopped_is_given_back(store: Store) -> None:
    (item_id,) = put(store)
    pool = Basket()
    one = claimer(store, pool)
    claim = store.claim
    store.claim = lambda *given: (one.stop(), claim(*given))[1]  # type: ignore[method-assign, func-returns-value]
    one.tick(NOW)
    assert (pool.items, leases(store)) == ([], {})
    assert (fetch(store, item_id).state, fetch(store, item_id).attempt) == ("waiting", 0)


def test_fresh_work_is_taken_along_with_a_backlog(store: Store) -> None:
    put(store, 100, due_at=after(-3600))
    fresh = put(store, 3, due_at=after(-1))
    pool = Basket(room=12)
    claimer(store, pool).tick(NOW)
    assert {item.id for item in pool.items} >= set(fresh)
    assert len(pool.items) == 12


def test_a_backlog_is_not_passed_over_for_the_newest(store: Store) -> None:
    old = put(store, 15, due_at=after(-86_400))
    pool = Basket(room=10)
    one = claimer(store, pool)
    one.tick(NOW)
    put(store, due_at=NOW)
    one.inbox.put(head("ring", due_at=EPOCH))
    pool.size = 100
    one.tick(after(0.01))
    one.tick(after(0.2))
    assert {item.id for item in pool.items} >= set(old)
    assert len(pool.items) == 16


def test_a_put_that_is_told_while_a_claim_is_under_way_is_not_forgotten(store: Store, other: Store) -> None:
    put(store)
    pool = Basket()
    one = claimer(store, pool)

    class Late(Basket):
        def begin(self, items: list[Item], *more: object) -> None:
            super().begin(items)
            if len(self.items) == 1:  # after the claim saw the table, before it is over
                put(other, due_at=NOW)
                one.inbox.put(head("ring", due_at=EPOCH))

    pool = Late()
    one = claimer(store, pool)
    one.tick(NOW)
    one.tick(NOW)
    assert len(pool.items) == 2


def test_what_was_claimed_already_is_not_walked_over_again(store: Store) -> None:
    put(store, 3, due_at=after(-30))
    put(store, 3, due_at=after(-20))
    pool = Basket(room=3)
    one = claimer(store, pool)
    shares: list[Share] = []
    claim = store.claim
    store.claim = lambda given, *rest: shares.extend(given) or claim(given, *rest)  # type: ignore[method-assign]
    one.tick(NOW)
    pool.size = 6
    one.tick(NOW)
    assert [share.floors for share in shares] == [(after(-30),), (after(-30),)]
    pool.size = 9
    one.tick(NOW)
    assert shares[-1].floors == (after(-20),)


# -- any number of lines


def test_more_lines_than_one_look_sees_hide_nothing(store: Store) -> None:
    store.load(new(queue=f"far/{n:05}", due_at=after(86_400 + n)) for n in range(2_500))
    (last,) = put(store, queue="zzz", due_at=after(-30))
    pool, steps = Basket(room=100), itertools.count(0, 0.001)  # each look costs a millisecond, however busy we are
    one = Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, ticks=lambda: next(steps))
    one.tick(NOW)
    assert [item.id for item in pool.items] == [last], "what waits longest is seen wherever the walk is"
    (soon,) = put(store, queue="yyy", due_at=after(3))
    one.inbox.changed()
    assert one.tick(after(1)) <= after(3)
    one.tick(after(3))
    assert soon in [item.id for item in pool.items]
    now, ticks = after(4), 0
    while one._place != START or now < after(20):
        now = max(one.tick(now), now + timedelta(milliseconds=100))
        ticks += 1
        assert ticks < 1_000, "the walk comes to its end, and is taken up again"


def test_what_waits_among_very_many_lines_is_found_in_the_first_moment(store: Store) -> None:
    """Nobody announces what was put before a worker starts."""
    store.load(new(queue=f"a/{n:05}", owner="ann", due_at=after(-60 - n / 1000)) for n in range(1_000))
    (bobs,) = put(store, queue="m", owner="bob", due_at=after(-60))
    store.load(new(queue=f"z/{n:05}", owner="cleo", due_at=after(-59 + n / 1000)) for n in range(1_000))
    pool = Shared(room=3, full=("ann", "cleo"))
    one = claimer(store, pool)
    ticks = 1
    while one.tick(NOW) <= NOW:
        ticks += 1
    assert [item.id for item in pool.items] == [bobs]
    assert ticks <= 5, "a look for each portion of 500 lines"


def test_what_falls_due_between_two_walks_over_the_lines_is_known_before(store: Store) -> None:
    store.load(new(queue=f"q{n:05}", due_at=after(86_400)) for n in range(600))
    put(store, queue="q00300/a", due_at=after(75))
    pool, seconds = (
        Basket(),
        itertools.count(0.0),
    )  # each look costs a second, so that the next walk comes after minutes
    one = Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, ticks=lambda: next(seconds))
    one.tick(NOW)
    one.tick(NOW)
    assert (one._place, one._walk_at) == (START, after(80))
    assert one._lines_of[0][1].next_at() == after(75)


def test_due_work_behind_many_due_lines_has_its_turn(store: Store) -> None:
    store.load(new(queue=f"q{n:05}", due_at=after(-60 + n / 100)) for n in range(3_000))
    pool = Basket(room=50)
    one = claimer(store, pool)
    seen: set[str] = set()
    now = NOW
    for _ in range(3_000):
        now = max(one.tick(now), now + timedelta(milliseconds=20))
        seen.update(item.queue for item in pool.items)
        settle(store, pool.items, Done(), closed=[item.fence for item in pool.items])
        pool.items.clear()
        if len(seen) == 3_000:
            break
    assert len(seen) == 3_000


class Shared(Basket):
    """A pool in which some owners have used up their share of the slots."""

    def __init__(self, room: int = 10, full: tuple[str, ...] = ()) -> None:
        super().__init__(room)
        self.full = full

    def allowance(self, line: Line) -> int:
        return 0 if line.owner in self.full else self.room()

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        return 0 if owner in self.full else self.room()


def ready_queues(store: Store, pool: Basket, many: int) -> Claimer:
    """A claimer that knows of this many ready queues of ann, none of which it claimed yet."""
    store.load(new(queue=f"ann/{n:05}", owner="ann", due_at=after(-60 + n / 100)) for n in range(many))
    room, pool.size = pool.size, 0
    one, now = claimer(store, pool), NOW
    while len(one._lines_of[0][1].ready) < many:
        now = one.tick(now)
    pool.size = room
    return one


def hear(one: Claimer, store: Store, owner: str, now: datetime = NOW) -> int:
    (item_id,) = put(store, queue="mail", owner=owner, due_at=now)
    one.inbox.put(Head(Line("mail", "ring", owner), "main", 0, EPOCH))
    return item_id


def claims_of(store: Store) -> list[list[str | None]]:
    """The owners of the shares of each claim from now on."""
    claims: list[list[str | None]] = []
    claim, claim_metered = store.claim, store.claim_metered

    def claimed(shares: Sequence[Share], *rest: Any) -> list[Item]:
        claims.append([share.line.owner for share in shares])
        return claim(shares, *rest)

    def metered(asks: Sequence[Ask], *rest: Any) -> list[Grant]:
        claims.append([ask.share.line.owner for ask in asks])
        return claim_metered(asks, *rest)

    store.claim, store.claim_metered = claimed, metered  # type: ignore[method-assign]
    return claims


def test_who_may_have_a_slot_does_not_wait_behind_thousands_of_queues_that_may_not(store: Store) -> None:
    pool = Shared(full=("ann",))
    one = ready_queues(store, pool, 2_100)
    claims = claims_of(store)
    bobs = hear(one, store, "bob")
    one.tick(one._latest)
    assert [item.id for item in pool.items] == [bobs]
    assert claims == [["bob"]]


def test_a_stranger_has_a_turn_beside_thousands_of_ready_queues(store: Store) -> None:
    pool = Basket(room=2)
    one = ready_queues(store, pool, 600)
    hear(one, store, "bob")
    one.tick(one._latest)
    assert sorted(str(item.owner) for item in pool.items) == ["ann", "bob"]


def test_thousands_of_paused_queues_keep_nobody_waiting(store: Store) -> None:
    pool = Basket(room=4)
    one = ready_queues(store, pool, 600)
    store.pause("ann", NOW)
    claims = claims_of(store)
    bobs = hear(one, store, "bob")
    one.tick(one._latest)
    assert [item.id for item in pool.items] == [bobs]
    assert "bob" in claims[0]


def test_lines_of_unknown_tasks_are_never_asked_for(store: Store) -> None:
    put(store, 500, task="theirs", queue="ring")
    (own,) = put(store, queue="ring", due_at=after(-1))
    shares: list[Share] = []
    claim = store.claim
    store.claim = lambda given, *rest: shares.extend(given) or claim(given, *rest)  # type: ignore[method-assign]
    pool = Basket()
    claimer(store, pool).tick(NOW)
    assert [item.id for item in pool.items] == [own]
    assert {each.line.task for each in shares} == {"ring"}


def test_owners_of_one_queue_have_their_turn(store: Store) -> None:
    put(store, 50, owner="ana", due_at=after(-10))
    put(store, 2, owner="eva")
    pool = Basket(room=10)
    claimer(store, pool).tick(NOW)
    assert sum(item.owner == "eva" for item in pool.items) == 2
    assert len(pool.items) == 10, "what one does not need is the other's"


def test_tasks_of_one_queue_have_their_turn(store: Store) -> None:
    put(store, 50, task="ring", queue="q", due_at=after(-10))
    put(store, 2, task="sing", queue="q")
    pool = Basket(room=10, tasks=("ring", "sing"))
    claimer(store, pool).tick(NOW)
    assert sum(item.task == "sing" for item in pool.items) == 2
    assert len(pool.items) == 10


def test_what_a_pool_does_not_want_is_left_for_others(store: Store) -> None:
    put(store, 20, queue="slow")
    put(store, 3, queue="quick")
    pool = Basket(room=10)
    pool.allowed = {"slow": 0}
    claimer(store, pool).tick(NOW)
    assert [item.queue for item in pool.items] == ["quick"] * 3


def test_a_claim_that_came_a_moment_too_early_is_repeated_at_once(store: Store) -> None:
    """The database's clock decides what is due; ours may be a little ahead."""
    (early,) = put(store, due_at=after(0.004))
    pool = Basket()
    one = claimer(store, pool)
    one.tick(NOW)
    claim = store.claim
    store.claim = lambda given, worker, now, lease: claim(  # type: ignore[method-assign]
        given, worker, now - timedelta(milliseconds=3), lease
    )
    asked = [after(0.004)]
    while not pool.items:
        asked.append(one.tick(asked[-1]))
    assert [item.id for item in pool.items] == [early]
    assert asked[-2] < after(0.03)


def test_without_a_time_of_its_own_nothing_starts_before_the_databases_clock_says_so(store: Store) -> None:
    soon = store.now() + timedelta(seconds=30)
    (item_id,) = put(store, due_at=soon)
    clock = DatabaseClock(lambda: store.now() + timedelta(minutes=5))  # measured wrongly
    pool = Basket()
    one = Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, clock=clock)
    one.tick(clock.now())
    assert pool.items == []
    assert fetch(store, item_id).state == "waiting"
    put(store, due_at=None)
    one.inbox.changed()
    give_up = clock.now() + timedelta(seconds=20)
    while not pool.items and clock.now() < give_up:
        one.tick(clock.now())
    assert [item.due_at < soon for item in pool.items] == [True]


def test_after_the_clock_was_set_back_nobody_waits_for_a_time_of_the_old_one(store: Store) -> None:
    pool = Basket()
    one = claimer(store, pool)
    assert one.tick(after(3_600)) == after(3_600 + POLL)
    (item_id,) = put(store)
    assert one.tick(after(1)) <= after(1 + POLL)
    assert [item.id for item in pool.items] == [item_id]
