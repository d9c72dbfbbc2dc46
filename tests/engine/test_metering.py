"""Limits in the engine: which meters a claim needs, how the claimer waits for them, and what begins in time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from duly import Backoff, Duly, Limit, Windows
from duly.core.clock import EPOCH, DatabaseClock, ManualClock, ticks
from duly.core.decide import Rules, decide
from duly.core.model import Done, Failed, Item, Line, Lost, Meter, MeterHit, Released, Share, Suspects, Throttled
from duly.engine.calls import Caller, Verdicts
from duly.engine.claimer import Claimer
from duly.engine.coroutines import AsyncPool
from duly.engine.metering import Meters, holds_of, metering_of, meters_of, prefixes_of
from duly.engine.pools import PoolContext
from duly.engine.starts import NO_SEATS, Permit, Seats, Starts
from duly.engine.threads import ThreadPool, ThreadSlot
from duly.engine.work import InFlight, Work
from duly.store import Store
from duly.tasks.task import Task
from tests.core.test_decide import an_item
from tests.engine.test_claimer import LEASE, POLL, SWEEP, Basket, claims_of, hear, steady
from tests.process.fleet import until
from tests.support import NOW, after, claim, counts, head, new, put, settle, share

SLOW = timedelta(seconds=61.2)  # a minute and its slack


class Limited(Basket):
    def __init__(self, *limits: Limit, backlog: Limit | None = None, batch: int = 1, **more: Any) -> None:
        super().__init__(**more)
        self.batch = batch
        self.meters = Meters((limits, backlog, None, None))
        self.granted: list[tuple[int, float]] = []

    def begin(self, items: list[Item], permits: Sequence[Permit] | None = None, seats: Seats = NO_SEATS) -> None:
        super().begin(items)
        assert permits is not None
        self.granted.append((len(permits), min(permit.by for permit in permits)))


def claimer(store: Store, pool: Basket, clock: ManualClock | None = None) -> Claimer:
    return Claimer(store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, clock=clock, ticks=steady())


def tick(one: Claimer, clock: ManualClock, now: datetime) -> datetime:
    clock.set(now)
    return one.tick(now)


def go_on(one: Claimer, clock: ManualClock, is_reached: Callable[[], bool]) -> None:
    """Tick until it is so. How much time that takes follows the machine: the more a look costs, the rarer it is."""
    for _ in range(1_000):
        if is_reached():
            return
        tick(one, clock, clock.now() + timedelta(seconds=0.2))
    raise AssertionError("not reached in 1,000 ticks")


# -- which meters


def test_a_task_without_limits_is_not_metered() -> None:
    app = Duly("sqlite://")

    @app.task
    def ring() -> None: ...

    assert meters_of([ring]) is None


def test_each_lane_has_its_own_meters() -> None:
    app = Duly("sqlite://")

    @app.task(limits=Limit("boeing", 2, per="1m"), retry=Windows("30 2-22/4 * * *", cap=50), backlog="100/s")
    def sync() -> None: ...

    meters = meters_of([sync])
    boeing = Meter("boeing", 2, per=60)
    fresh, late, retry = share("sync", floors=(NOW,)), share("sync", floors=(after(-90),)), share("sync", "retry")
    assert list(meters.of(fresh, NOW)) == [(fresh, (boeing,))]
    assert list(meters.of(late, NOW)) == [(late, (boeing, Meter("backlog:sync", 100, per=1)))]
    window = Meter("window:sync cron 30 2-22/4 * * *", 50, since=after(-9_000), until=after(5_400))
    torn = replace(retry, started_since=after(-9_000))
    assert list(meters.of(retry, NOW)) == [(retry, (boeing, window))]
    assert list(meters.of(retry, NOW, with_torn=True)) == [(retry, (boeing, window)), (torn, (boeing,))]


def test_a_limit_per_value_has_a_queue_and_a_meter_for_each() -> None:
    app = Duly("sqlite://")

    @app.task(limits=[Limit("shop", 2, per="1m", by="shop"), Limit("all", 9)])
    def fetch(shop: str) -> None: ...

    assert prefixes_of([fetch]) == ("fetch/",)
    assert [fetch.queue_for({"shop": shop}) for shop in ("a", "b c", "")] == [
        "fetch/a", "fetch/b c", "fetch/e3b0c44298fc1c149afbf4c8996fb924",
    ]  # fmt: skip
    meters = meters_of([fetch])
    for name, names in (("fetch/a", ["shop:a", "all"]), ("fetch", ["shop", "all"])):
        ((_, found),) = meters.of(share(name, floors=(NOW,)), NOW)
        assert [meter.name for meter in found] == names
    assert metering_of(fetch)[0] == fetch.limits


def test_what_may_hold_back_very_many_queues_is_found_without_a_look_at_every_task_for_each() -> None:
    app = Duly("sqlite://")

    @app.task(limits=Limit("shop", 2, per="1m", by="shop"))
    def fetch(shop: str) -> None: ...

    @app.task
    def ring() -> None: ...

    class Counted(dict[str, Any]):
        looks = 0

        def values(self) -> Any:
            Counted.looks += 1
            return super().values()

    holds = holds_of(Counted(app.tasks))
    for n in range(1_000):
        assert [meter.name for meter in holds(f"fetch/{n}").meters] == [f"shop:{n}"]
        assert holds(f"ring/{n}").meters == ()
    assert holds("unknown").meters == ()
    assert Counted.looks == 1


# -- the claimer


def test_it_claims_what_a_limit_grants_and_comes_back_when_there_is_more(store: Store) -> None:
    put(store, 5)
    pool, clock = Limited(Limit("x", 2, per="1m")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    assert tick(one, clock, NOW) == after(60), "a limit may be raised meanwhile: it asks again within a minute"
    assert len(pool.items) == 2
    assert one.held_until(NOW) == after(60)
    assert tick(one, clock, after(60)) == NOW + SLOW
    assert len(pool.items) == 2
    tick(one, clock, NOW + SLOW)
    assert len(pool.items) == 4
    assert one.held_until(after(1000)) is None


def test_thousands_of_exhausted_keys_keep_nobody_waiting(store: Store) -> None:
    pool = Limited(Limit("shop", 1, per="1h", by="shop"), room=4)
    pool.meters = Meters(((Limit("shop", 1, per="1h", by="shop"),), None, None, None), ("ann/",))
    store.load(new(queue=f"ann/{n}", owner="ann") for n in range(600) for _ in range(2))
    pool.size = 10_000
    one = claimer(store, pool)
    now = NOW
    while len(pool.items) < 600:
        now = max(one.tick(now), now + timedelta(milliseconds=100))
    pool.items.clear()
    pool.size = 4
    claims = claims_of(store)
    now = after(61)  # all of them are asked for again, because a person may have raised their limits
    bobs = hear(one, store, "bob", now)
    one.tick(now)
    assert [item.id for item in pool.items] == [bobs]
    assert "bob" in claims[0]
    assert len(claims[0]) <= 40


def test_who_waits_for_the_end_of_a_call_does_not_wait_longer_for_the_many_lines_of_others(store: Store) -> None:
    pool, clock = Limited(Limit("two", 2), room=1_000), ManualClock(NOW)
    store.load(new(queue=f"ann/{n}", owner="ann") for n in range(1_000))
    one = claimer(store, pool, clock)
    go_on(one, clock, lambda: len(one._lines_of[0][1].held) > 900)
    hear(one, store, "bob")
    tick(one, clock, clock.now())
    (until, _), *_ = one._lines_of[0][1].held[Line("mail", "ring", "bob")].values()
    assert until - clock.now() <= timedelta(seconds=1)


def test_a_raised_limit_is_noticed(store: Store) -> None:
    put(store, 9)
    pool, clock = Limited(Limit("x", 2, per="1h")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    tick(one, clock, NOW)
    store.write("set_meter", {"name": "x", "most": 5, "per": None})
    tick(one, clock, after(60))
    assert len(pool.items) == 5


def test_the_time_that_counts_is_that_of_the_claim(store: Store) -> None:
    """A tick may have begun long before its claim."""
    put(store, 3)
    pool, clock = Limited(Limit("x", 1, per="1m")), ManualClock(NOW)
    clock.set(after(5))
    claimer(store, pool, clock).tick(NOW)
    assert store.read("all_meters", {"after": "", "most": 100})[0][3] == [after(5)]
    assert pool.items[0].started_at == after(5)


def test_without_a_clock_of_its_own_the_tick_is_the_time(store: Store) -> None:
    put(store, 3)
    pool = Limited(Limit("x", 1, per="1m"))
    claimer(store, pool).tick(NOW)
    assert [item.started_at for item in pool.items] == [NOW]


def test_calls_must_begin_within_the_slack_of_their_limit(store: Store) -> None:
    put(store, 2)
    pool = Limited(Limit("x", 1, per="1m"), Limit("y", 5, per="1s"))
    begun = ticks()
    claimer(store, pool, ManualClock(NOW)).tick(NOW)
    ((calls, start_by),) = pool.granted
    assert calls == 1
    assert begun < start_by < ticks() + 0.05
    unhurried = Limited(Limit("gpu", 1))
    claimer(store, unhurried, ManualClock(NOW)).tick(NOW)
    assert unhurried.granted == [(1, float("inf"))]


def test_a_limit_that_a_person_shortened_hurries_its_calls(store: Store) -> None:
    put(store, 9)
    store.write("set_meter", {"name": "x", "most": 2, "per": 1.0})
    pool = Limited(Limit("x", 5, per="1m"))
    claimer(store, pool, ManualClock(NOW)).tick(NOW)
    ((calls, start_by),) = pool.granted
    assert calls == 2
    assert start_by < ticks() + 0.05, "two calls that begin late would meet the next two"


def test_workers_whose_clocks_differ_keep_to_one_limit(store: Store, other: Store) -> None:
    put(store, 9, due_at=store.now() - timedelta(seconds=5))
    pools = [Limited(Limit("x", 2, per="1s")) for _ in range(2)]
    for each, pool, skew in zip((store, other), pools, (0.0, 1.5), strict=True):
        clock = DatabaseClock(lambda skew=skew: store.now() + timedelta(seconds=skew))  # type: ignore[misc]
        Claimer(each, [pool], InFlight(), "w", lease=LEASE, poll=POLL, sweep=SWEEP, clock=clock).tick(clock.now())
    (first, second) = (item.started_at for item in pools[0].items)
    assert first == second
    assert all(item.started_at - first >= timedelta(seconds=1) for item in pools[1].items)


def test_batches_are_claimed_whole(store: Store) -> None:
    put(store, 50)
    pool = Limited(Limit("x", 3, per="1m"), room=47, batch=10)
    claimer(store, pool, ManualClock(NOW)).tick(NOW)
    assert len(pool.items) == 30
    assert pool.granted[0][0] == 3


def test_a_pool_that_can_begin_nothing_claims_nothing(store: Store) -> None:
    put(store, 3)
    pool = Limited(Limit("x", 3, per="1m"))
    pool.free_calls = lambda: 0  # type: ignore[method-assign]
    claimer(store, pool, ManualClock(NOW)).tick(NOW)
    assert pool.items == []


def test_calls_at_the_same_time_are_claimed_one_by_one_and_asked_for_again_soon(store: Store) -> None:
    put(store, 100)
    pool, clock = Limited(Limit("gpu", 2)), ManualClock(NOW)
    one = claimer(store, pool, clock)
    now = NOW
    for _ in range(20):  # long works: it has asked in vain for a while
        now = tick(one, clock, now)
    assert len(pool.items) == 2
    for served in range(3, 8):
        item = pool.items.pop(0)
        settle(store, item, Done(), closed=[item.fence])
        ended = now
        while len(pool.items) < 2:
            now = tick(one, clock, now)
        assert now - ended <= timedelta(seconds=1), f"the {served}th waited for long"


def test_an_empty_queue_under_a_limit_is_asked_ever_more_rarely(store: Store) -> None:
    put(store, task="mystery", queue="ring")
    pool, clock = Limited(Limit("x", 2, per="1m")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    now = NOW
    for _ in range(40):
        now = tick(one, clock, now)
    assert pool.items == []
    assert now - NOW > timedelta(seconds=20)


def test_a_limit_on_one_queue_does_not_hold_the_others(store: Store) -> None:
    put(store, 9, queue="a")
    put(store, 3, queue="b")

    class ByQueue(Meters):
        def of(self, each: Share, *more: Any) -> Iterator[tuple[Share, tuple[Meter, ...]]]:
            return super().of(each, *more) if each.line.queue == "a" else iter([(each, ())])

    pool = Limited()
    pool.meters = ByQueue(((Limit("x", 1, per="1m"),), None, None, None))
    claimer(store, pool, ManualClock(NOW)).tick(NOW)
    assert sorted(item.queue for item in pool.items) == ["a", "b", "b", "b"]


# -- a backlog at its pace


def test_a_paced_backlog_does_not_hold_back_what_is_fresh(store: Store) -> None:
    put(store, 20, due_at=after(-3600))
    put(store, 3, due_at=after(5))
    pool, clock = Limited(backlog=Limit("backlog", 2, per="1m")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    tick(one, clock, NOW)
    assert len(pool.items) == 2, "the backlog has its pace"
    now = after(5)
    while len(pool.items) < 5:
        now = tick(one, clock, now)
    assert now <= after(6), "it waited for the backlog"
    assert one.held_until(now) == after(60)
    now = NOW + SLOW
    while len(pool.items) < 7:
        now = tick(one, clock, now)
    assert now <= NOW + SLOW + timedelta(seconds=2)


def test_beside_a_paced_backlog_nobody_asks_without_a_pause(store: Store) -> None:
    put(store, 20, due_at=after(-3600))
    pool, clock = Limited(backlog=Limit("backlog", 2, per="1m")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    now, ticks = NOW, 0
    while now < after(60):
        now = tick(one, clock, now)
        ticks += 1
    assert ticks < 400
    assert len(pool.items) == 2


def test_a_limit_holds_for_fresh_and_late_together(store: Store) -> None:
    put(store, 20, due_at=after(-3600))
    put(store, 20, due_at=after(-1))
    pool = Limited(Limit("x", 4, per="1m"), backlog=Limit("backlog", 2, per="1m"), room=30)
    one = claimer(store, pool, ManualClock(NOW))
    assert one.tick(NOW) == after(60)
    assert len(pool.items) == 4
    assert any(item.due_at == after(-1) for item in pool.items)


# -- the pools


@pytest.fixture
def app(sqlite_url: str) -> Duly:
    app = Duly(sqlite_url)

    @app.task(limits=Limit("x", 2, per="1m"), retry=Backoff())
    def plain() -> None: ...

    @app.task(limits=Limit("x", 2, per="1m"), batch=5)
    def batched(rows: list[dict[str, Any]]) -> None: ...

    @app.task(limits=Limit("x", 2, per="1m"))
    async def other() -> None: ...

    return app


Ended = queue.SimpleQueue[tuple[Work, Verdicts]]
Make = Callable[..., tuple[Any, Ended]]


@pytest.fixture
def make(app: Duly) -> Iterator[Make]:
    pools: list[Any] = []

    def made(name: str, size: int = 3, isolate: Callable[[list[Work]], None] | None = None) -> tuple[Any, Ended]:
        ended: Ended = queue.SimpleQueue()
        in_flight = InFlight()

        def finish(work: Work, verdicts: Verdicts, at: float | None) -> bool:
            if not in_flight.take(work):
                return False
            ended.put((work, verdicts))
            return True

        tasks: dict[str, Task[..., Any]] = {name: app.tasks[name]}
        context = PoolContext(in_flight=in_flight, finish=finish, wake_claimer=lambda: None, isolate=isolate)
        caller = Caller(app.internals.store, app.clock, app.internals.telemetry, app.settings, lambda *_: None)
        pool = (
            AsyncPool(tasks, size, 100, context, caller)
            if tasks[name].is_async
            else ThreadPool(tasks, size, 100, context, lambda: ThreadSlot(caller))
        )
        pool.start()
        pools.append(pool)
        return pool, ended

    yield made
    for pool in pools:
        pool.close()


def items_of(task: str, count: int, **more: Any) -> list[Item]:
    return [an_item(id=n, task=task, **more) for n in range(1, count + 1)]


def permit(size: int = 1, by: float = 60.0) -> Permit:
    """The permission for a call of so many items to begin, so many seconds from now at the latest."""
    return Permit(Starts(), size, by=ticks() + by, hits=(MeterHit("x", NOW, NOW, 60.0),))


@pytest.mark.parametrize("task", ["plain", "other"])
def test_a_call_that_cannot_begin_in_time_is_given_back(make: Make, task: str) -> None:
    pool, ended = make(task)
    pool.begin(items_of(task, 2), [permit(by=-0.001), permit(by=-0.001)])
    works = [ended.get(timeout=60) for _ in range(2)]
    assert [verdicts for _, verdicts in works] == [[Released("it could not start in the time of its limit")]] * 2
    assert [work.has_begun for work, _ in works] == [False] * 2
    unused = [pool._in_flight.unused.popleft() for _ in range(2)]
    assert sorted(each.items for each in unused) == [((1, 255),), ((2, 255),)]
    assert [each.hits for each in unused] == [(("x", NOW),)] * 2
    pool.begin(items_of(task, 1), [permit()])
    assert ended.get(timeout=60)[1] == [Done()]
    assert not pool._in_flight.unused, "a call that began has used what it was granted"


@pytest.mark.parametrize("task", ["plain", "other"])
def test_a_call_that_was_taken_away_before_it_began_is_given_back(make: Make, task: str) -> None:
    pool, ended = make(task)
    later = permit()
    later.at = ticks() + 3_600
    (item,) = items_of(task, 1)
    pool.begin([item], [later])
    pool._in_flight.drop([(item.id, item.fence)])
    assert [each.items for each in pool._in_flight.unused] == [((item.id, item.fence),)]
    assert ended.empty()


def test_suspects_run_apart_in_the_calls_that_were_granted_for_them(make: Make) -> None:
    apart: list[Work] = []
    pool, ended = make("batched", isolate=apart.extend)
    suspects = [an_item(id=n, task="batched", crashes=1) for n in (101, 102)]
    pool.begin([*items_of("batched", 5), *suspects], [permit(5), permit(2)])
    assert [[item.id for item in work.items] for work in apart] == [[101, 102]]
    work, verdicts = ended.get(timeout=60)
    assert (len(work.items), verdicts) == (5, [Done()] * 5)
    until(lambda: pool.free_calls() == 2)
    apart[0].over(apart[0])
    assert pool.free_calls() == 3, "wherever it runs, it was granted here"


def test_suspects_share_a_call_only_where_they_run_apart(make: Make) -> None:
    assert make("batched")[0].suspects == Suspects()
    assert make("batched", isolate=lambda works: None)[0].suspects == Suspects(crash_limit=3, tries=3)


def test_half_a_batch_takes_a_whole_place(make: Make) -> None:
    pool, _ = make("batched", size=2, isolate=lambda works: None)
    pool.begin([an_item(id=n, task="batched", crashes=1) for n in (1, 2)], [permit(), permit()])
    assert (pool.free_calls(), pool.room()) == (0, 0), "two items, two calls: there is no room for a third"


def test_room_is_for_calls_that_can_begin_at_once(make: Make) -> None:
    pool, _ = make("batched", size=2, isolate=lambda works: None)
    assert (pool.free_calls(), pool.room()) == (2, 10)
    pool.begin([an_item(id=1, task="batched", crashes=1)], [permit()])
    assert (pool.free_calls(), pool.room()) == (1, 5)


# -- all together


def test_a_limit_holds_over_two_workers(store: Store, other: Store) -> None:
    put(store, 30)
    clock = ManualClock(NOW)
    pools = [Limited(Limit("x", 3, per="1m"), room=30) for _ in range(2)]
    claimers = [claimer(each, pool, clock) for each, pool in zip((store, other), pools, strict=True)]
    taken = []
    for second in range(200):
        for one in claimers:
            tick(one, clock, after(second))
        taken.append(sum(len(pool.items) for pool in pools))
    for start in range(140):
        assert taken[start + 60] - taken[start] <= 3
    assert taken[-1] == 12
    assert counts(store) == {"running": 12, "waiting": 18}


# -- many keys


class Keyed(Limited):
    """A pool of a task whose limit is by key."""

    def __init__(self, *limits: Limit, windows: Windows | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.meters = Meters((limits, None, windows, None), ("ring/",))


def counting(store: Store) -> list[int]:
    """How many asks each claim under limits makes from now on."""
    asked: list[int] = []
    claim = store.claim_metered
    store.claim_metered = lambda asks, *more: asked.append(len(asks)) or claim(asks, *more)  # type: ignore
    return asked


def put_keys(store: Store, keys: int, each: int = 3) -> None:
    store.put([new("ring", queue=f"ring/{n}") for n in range(keys) for _ in range(each)])


def test_exhausted_keys_cost_nothing_until_their_time(store: Store) -> None:
    put_keys(store, 300)
    put(store, 1, task="sing")
    pool, other, clock = (
        Keyed(Limit("x", 1, per="1h", by="shop"), room=1_000),
        Basket(tasks=("sing",)),
        ManualClock(NOW),
    )
    one = Claimer(store, [pool, other], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, clock=clock)
    tick(one, clock, NOW)
    while len(pool.items) < 300:
        tick(one, clock, clock.now())
    assert len(other.items) == 1
    asked = counting(store)
    now = clock.now()
    while now < after(600):
        now = max(tick(one, clock, now), now + timedelta(seconds=1))
    assert sum(asked) <= 11 * 2 * 300, "once a minute, for a limit may be raised"
    put(store, 1, task="sing", due_at=now)
    one.inbox.put(head("sing", due_at=EPOCH))
    tick(one, clock, now)
    assert len(other.items) == 2


def test_keys_that_wait_for_a_call_to_end_elsewhere_are_asked_in_turn(store: Store, other: Store) -> None:
    put_keys(store, 600, each=2)
    elsewhere = Keyed(Limit("x", 1, by="shop"), room=1_000)
    mine, clock = Keyed(Limit("x", 1, by="shop"), room=1_000), ManualClock(NOW)
    theirs = claimer(other, elsewhere, clock)
    go_on(theirs, clock, lambda: len(elsewhere.items) == 600)
    one = claimer(store, mine, clock)
    asked = counting(store)
    for _ in range(10):
        tick(one, clock, clock.now() + timedelta(seconds=1))
    assert mine.items == []
    assert sum(asked) <= 6 * 600, "not all of them twice a second"
    for item in elsewhere.items:
        settle(other, item, Done(), closed=[item.fence])
    go_on(one, clock, lambda: len(mine.items) == 600)
    assert len(mine.items) == 600, "and work goes on when they end"


def test_the_end_of_a_call_here_makes_room_at_once(store: Store) -> None:
    put(store, 3)
    pool, clock = Limited(Limit("gpu", 1)), ManualClock(NOW)
    one = claimer(store, pool, clock)
    tick(one, clock, NOW)
    assert len(pool.items) == 1
    settle(store, pool.items[0], Done(), closed=[pool.items[0].fence])
    one.inbox.freed(pool.items)
    tick(one, clock, NOW)
    assert len(pool.items) == 2


def test_a_paused_task_pauses_its_keys(store: Store) -> None:
    put_keys(store, 3)
    store.pause("ring", NOW)
    pool, clock = Keyed(Limit("x", 1, per="1h", by="shop")), ManualClock(NOW)
    one = claimer(store, pool, clock)
    tick(one, clock, NOW)
    assert pool.items == []
    store.resume("ring")
    one.inbox.changed()
    tick(one, clock, after(5))
    assert len(pool.items) == 3


def test_of_a_single_token_stream_retries_have_their_quarter_over_time(store: Store) -> None:
    put(store, 300, due_at=after(-3))
    failing = put(store, 12, due_at=after(-4))
    settle(store, claim(store, share(limit=12)), Failed("busy"), now=after(-60))
    assert len(failing) == 12
    pool, clock = Limited(Limit("x", 2, per="1m"), room=100), ManualClock(NOW)
    one = claimer(store, pool, clock)
    for minute in range(12):
        tick(one, clock, after(minute * 61.3))
    lanes = [item.lane for item in pool.items]
    assert len(lanes) == 24
    assert lanes.count("retry") == 6


WINDOW = Windows("0 * * * *", cap=2)


def test_a_retry_that_was_torn_from_its_worker_in_a_window_goes_on_in_it(store: Store) -> None:
    rules = Rules(retry=WINDOW)
    put(store, 4, due_at=after(-3_000))
    failed = [decide(item, Failed("busy"), after(-2_900), rules) for item in claim(store, now=after(-2_900))]
    store.settle(failed)
    pool, clock = Limited(), ManualClock(NOW)
    pool.meters = Meters(((), None, WINDOW, None))
    one = claimer(store, pool, clock)
    tick(one, clock, after(1))
    tick(one, clock, after(2))
    assert len(pool.items) == 2, "the window has its cap"
    lost, throttled = pool.items
    store.settle([decide(lost, Lost(), after(60), rules), decide(throttled, Throttled(5), after(60), rules)])
    pool.items.clear()
    for second in range(60, 80):
        tick(one, clock, after(second))
    assert sorted(item.id for item in pool.items) == sorted([lost.id, throttled.id])
    for second in range(80, 100):
        tick(one, clock, after(second))
    assert len(pool.items) == 2, "and the cap still holds for the others"


def test_one_queue_does_not_take_all_calls_of_a_window(store: Store) -> None:
    put(store, 50, queue="large")
    put(store, 1, queue="small")
    pool = Limited(Limit("x", 6, per="1m"), room=200)
    one = claimer(store, pool, ManualClock(NOW))
    one.tick(NOW)
    assert len(pool.items) == 6
    assert "small" in {item.queue for item in pool.items}


def test_a_backlog_far_from_its_database_is_not_starved_by_looks_for_what_is_fresh(store: Store) -> None:
    put(store, 20, due_at=after(-3600))
    pool, clock, passed = Limited(Limit("x", 2, per="1m"), room=20), ManualClock(NOW), [0.0]
    claim = store.claim_metered

    def far(*given: Any) -> Any:  # each claim takes longer than a line is known to have nothing fresh
        passed[0] += 0.3
        clock.set(after(passed[0]))
        return claim(*given)

    store.claim_metered = far  # type: ignore[method-assign]
    one = Claimer(
        store, [pool], InFlight(), "w1", lease=LEASE, poll=POLL, sweep=SWEEP, clock=clock, ticks=lambda: passed[0]
    )
    for _ in range(300):
        now = clock.now()
        passed[0] += max((one.tick(now) - now).total_seconds(), 0.1)
        clock.set(after(passed[0]))
        if len(pool.items) >= 8:
            break
    assert len(pool.items) >= 8
