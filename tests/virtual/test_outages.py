"""A source that is down for a while: one fact, one alert, a probe a minute, nobody blamed, and on by itself."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

import duly.testing
from duly import Backoff, Duly, GiveUp, InputError, Skip, Snooze, Source, Throttled
from duly.apps.catalog import CatalogTuning, catalog_on
from duly.apps.catalog.supplier import Found, Offer
from duly.core.policy.outage import MERCY
from duly.virtual.story import busiest_minute
from duly.virtual.world import World
from tests.virtual.watching import DAY, START, Ear, Week, watch, week

TOWER = Source("tower", tries=5)
HOUR = timedelta(hours=1)


class Tower:
    """A source that is up or down, and the task that asks it."""

    def __init__(self, source: Source = TOWER) -> None:
        self.app = Duly("sqlite:///unused.db")
        self.is_up = True
        self.calls: list[datetime] = []
        self.tried: list[int] = []
        self.answer: Callable[[int], object] = lambda n: n

        @self.app.task(source=source, retry=Backoff(base=30, tries=3))
        def ring(n: int) -> object:
            self.calls.append(self.app.clock.now())
            self.tried.append(n)
            if not self.is_up:
                raise ConnectionError(f"no route for {n}")
            return self.answer(n)

        self.ring = ring

    def put(self, count: int) -> None:
        self.ring.put_many({"n": n} for n in range(count))

    def blame(self, world: World) -> set[tuple[int, int]]:
        """The tries and failures of all items."""
        return {(item.attempt, item.failures) for item in world.items(most=200)}


def test_while_its_source_is_down_a_task_asks_once_a_minute_and_goes_on_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tower, ear = Tower(), Ear()
    with duly.testing.virtual(tower.app) as world, caplog.at_level(logging.INFO, "duly.engine"):
        one = watch(tower.app, world, ear)
        tower.is_up = False
        tower.put(40)
        world.run()
        assert len(tower.calls) == 6, "the fifth failure is enough, and the first probe follows"
        assert tower.blame(world) == {(0, 0)}, "neither are those to blame that failed before it was clear"
        for _ in range(180):
            world.advance(minutes=1)
            one.tick(world.clock.now())
        assert len(tower.calls) <= 6 + 180
        assert len(tower.calls) >= 170
        assert busiest_minute(tower.calls[6:]) <= 1
        assert tower.blame(world) == {(0, 0)}
        assert ear.names == ["source:tower"]
        assert ear.heard.total() == 3, "it is told again while it stands"
        (alert,) = tower.app.read.alerts()
        assert alert.message.startswith("tower is down: ConnectionError: no route for ")
        assert (alert.details["tasks"], alert.details["queues"]) == (["ring"], ["ring"])
        tower.is_up = True
        world.advance(minutes=2)
        one.tick(world.clock.now())
        assert {item.state for item in world.items(most=100)} == {"done"}
        assert tower.blame(world) == {(1, 0)}
        assert tower.app.read.alerts() == []
    words = [record.getMessage() for record in caplog.records if "tower" in record.getMessage()]
    assert [each.partition(":")[0] for each in words if "still" not in each] == [
        "tower is down",
        "tower is back; items that waited for it are running",
        "alert over",
    ]


def test_another_worker_learns_of_it_and_takes_back_whom_it_had_blamed() -> None:
    tower = Tower()
    with duly.testing.virtual(tower.app) as world:
        there = World(tower.app, world.clock, world._runner)
        here, elsewhere = watch(tower.app, world, Ear()), watch(tower.app, there, Ear(), "w2")
        tower.is_up = False
        tower.put(4)
        there.run()
        assert tower.blame(world) == {(1, 1)}
        assert not there.outages.is_down(TOWER), "four failures are not enough"
        tower.put(5)
        world.run()
        assert world.outages.is_down(TOWER)
        here.tick(world.clock.now())
        elsewhere.tick(world.clock.now())
        assert there.outages.is_down(TOWER)
        there._settler.tick(world.clock.now())
        assert tower.blame(world) == {(0, 0)}
        assert [alert.name for alert in tower.app.read.alerts()] == ["source:tower"]
        tower.is_up = True
        world.advance(minutes=2)
        here.tick(world.clock.now())
        elsewhere.tick(world.clock.now())
        assert not there.outages.is_down(TOWER)


def test_two_workers_that_find_out_at_once_raise_one_alert() -> None:
    tower, ear = Tower(), Ear()
    with duly.testing.virtual(tower.app) as world:
        there = World(tower.app, world.clock, world._runner)
        here, elsewhere = watch(tower.app, world, ear), watch(tower.app, there, ear, "w2")
        tower.is_up = False
        for each in (world, there):
            tower.put(5)
            each.run()
        assert world.outages.is_down(TOWER)
        assert there.outages.is_down(TOWER)
        here.tick(world.clock.now())
        elsewhere.tick(world.clock.now())
        assert ear.heard.total() == 1
        tower.calls.clear()
        for _ in range(20):
            world.advance(seconds=30)
            there.run()
        assert busiest_minute(tower.calls) <= 1, "one probe for the whole fleet"


def test_a_worker_that_starts_while_it_is_down_learns_of_it_first() -> None:
    tower, ear = Tower(), Ear()
    with duly.testing.virtual(tower.app) as world:
        tower.is_up = False
        tower.put(30)
        world.run()
        watch(tower.app, world, ear).tick(world.clock.now())  # and then this worker is killed
        tower.calls.clear()
        fresh = World(tower.app, world.clock, world._runner)
        watch(tower.app, fresh, ear, "w2").learn()
        for _ in range(10):
            fresh.advance(minutes=1)
        assert len(tower.calls) <= 10
        assert tower.blame(world) == {(0, 0)}
        assert ear.heard.total() == 1


def test_a_hiccup_that_is_over_before_anybody_looked_is_no_alert() -> None:
    tower, ear = Tower(Source("tower", tries=3, probe=1)), Ear()
    with duly.testing.virtual(tower.app) as world:
        one = watch(tower.app, world, ear)
        tower.is_up = False
        tower.put(5)
        world.run()
        tower.is_up = True
        world.advance(seconds=5)
        one.tick(world.clock.now())
        assert ear.heard == {}
        assert tower.app.read.alerts() == []
        assert tower.blame(world) == {(1, 0)}


def test_one_that_fails_alone_does_not_take_its_source_down() -> None:
    tower = Tower()
    with duly.testing.virtual(tower.app) as world:
        tower.is_up = False
        tower.put(2)
        world.advance(hours=1)
        assert not world.outages.is_down(TOWER)
        assert tower.blame(world) == {(3, 3)}
        assert {item.state for item in world.items()} == {"failed"}


def test_before_anybody_is_given_up_it_is_asked_whether_all_fail() -> None:
    tower = Tower(Source("tower", tries=100))
    with duly.testing.virtual(tower.app) as world:
        tower.is_up = False
        tower.put(3)
        world.advance(hours=1)
        assert {item.state for item in world.items()} == {"waiting"}
        assert tower.blame(world) == {(0, 0)}


def test_one_that_never_succeeds_is_not_every_probe_however_good_its_rank_is() -> None:
    tower = Tower()
    tower.answer = lambda n: _raise(ConnectionError("no route")) if n < 0 else n
    with duly.testing.virtual(tower.app) as world:
        tower.is_up = False
        tower.ring.options(rank=0).put(n=-1)
        tower.ring.options(rank=5).put_many({"n": n} for n in range(10))
        world.advance(minutes=10)
        assert world.outages.is_down(TOWER)
        tower.is_up = True
        world.advance(minutes=5)
        assert not world.outages.is_down(TOWER)
        world.advance(minutes=30)
        states = Counter(item.state for item in world.items(most=100))
        assert states == {"done": 10, "failed": 1}, "and its failures are its own again"


def test_items_that_are_all_bad_are_given_up_in_the_end() -> None:
    tower = Tower()
    tower.answer = lambda n: _raise(ValueError(f"no such size {n}"))
    with duly.testing.virtual(tower.app) as world:
        tower.put(6)
        world.advance(hours=12)
        assert {item.state for item in world.items(most=100)} == {"failed"}


def test_a_few_bad_items_with_one_try_each_are_given_up_at_once() -> None:
    tower = Tower()
    tower.answer = lambda n: _raise(ValueError(f"no such size {n}"))
    with duly.testing.virtual(tower.app) as world:
        tower.ring.options(tries=1).put_many({"n": n} for n in range(3))
        world.run()
        assert {item.state for item in world.items(most=100)} == {"failed"}
        assert not world.outages.is_down(TOWER)


def test_one_worker_without_a_way_to_the_source_does_not_hold_back_the_others() -> None:
    tower, ear = Tower(), Ear()
    with duly.testing.virtual(tower.app) as world:
        there = World(tower.app, world.clock, world._runner)
        here, elsewhere = watch(tower.app, world, ear), watch(tower.app, there, ear, "w2")
        for _ in range(60):
            tower.is_up = True
            tower.put(3)
            world.run()
            tower.is_up = False
            tower.put(3)
            there.run()
            world.clock.set(world.clock.now() + timedelta(seconds=30))
            elsewhere.tick(world.clock.now())
            here.tick(world.clock.now())
            assert not world.outages.is_down(TOWER)
        assert len(ear.heard) <= 5, "it is found out more and more seldom"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (lambda n: _raise(ConnectionError("no route")) if n % 10 < 3 else n, None),  # 30 % of the calls
        (lambda n: _raise(Throttled(60)), "waiting"),  # 429
        (lambda n: _raise(GiveUp("404")), "failed"),
    ],
)
def test_a_source_that_answers_is_not_down(answer: Callable[[int], object], state: str | None) -> None:
    tower = Tower()
    tower.answer = answer
    with duly.testing.virtual(tower.app) as world:
        tower.put(100)
        world.run()
        assert len(tower.calls) == 100
        assert not world.outages.is_down(TOWER)
        assert state is None or {item.state for item in world.items(most=100)} == {state}


def _raise(error: Exception) -> None:
    raise error


def test_a_source_must_be_one() -> None:
    app = Duly("sqlite:///unused.db")
    assert app.task(name="a", source="tower")(lambda: None).source == Source("tower")
    with pytest.raises(InputError, match="source: must be like Source"):
        app.task(name="b", source=7)(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="source: name: must be"):
        app.task(name="c", source="")(lambda: None)


def test_a_product_whose_own_calls_fail_is_deactivated_while_the_supplier_is_well() -> None:
    app = Duly("sqlite:///unused.db")
    catalog = catalog_on(app, settings=CatalogTuning(batch_size=1))

    def ask(skus: Sequence[str]) -> Found:
        return {sku: TimeoutError("slow") if sku in "ABC" else Offer(sku, Decimal(1), 1, True) for sku in skus}

    catalog.ask = ask
    with duly.testing.virtual(app, START - timedelta(minutes=1)) as world:
        catalog.publish_many({"user_id": "u", "sku": sku} for sku in ("A", "B", "C", *map(str, range(45))))
        world.advance(DAY + 12 * HOUR)
        products = {product.sku: product for product in catalog.products()}
        assert [products[sku].is_active for sku in "ABC"] == [False] * 3
        assert [products[sku].consecutive_failures for sku in "ABC"] == [5] * 3
        assert {product.sync_status for sku, product in products.items() if sku not in "ABC"} == {"success"}
        assert not world.outages.is_down(catalog.task.source or TOWER)


def test_a_small_catalog_is_not_deactivated_hour_by_hour() -> None:
    """Twenty-four products, one in each hour: it takes hours until it is clear that the supplier is to blame."""
    app = Duly("sqlite:///unused.db")
    catalog = catalog_on(app)
    is_up = [False]
    catalog.ask = lambda skus: {sku: Offer(sku, Decimal(1), 1, True) if is_up[0] else OSError("away") for sku in skus}
    with duly.testing.virtual(app, START - timedelta(minutes=1)) as world:
        catalog.publish_many({"user_id": "u", "sku": f"S{n}"} for n in range(24))
        world.advance(DAY)
        assert world.outages.is_down(catalog.task.source or TOWER)
        assert {(product.is_active, product.consecutive_failures) for product in catalog.products()} == {(True, 0)}
        is_up[0] = True
        world.advance(HOUR)
        assert {product.sync_status for product in catalog.products()} == {"success"}


def check_week(found: Week, capacity: timedelta) -> None:
    """All that must hold of a week in which the supplier was down for a day."""
    assert found.story.deactivated == 0
    assert found.blamed == 0
    assert 1_300 <= len(found.calls) <= 1_440
    assert busiest_minute(found.calls) <= 1
    assert found.ear.names == ["source:boeing"], "one alert, and none about what it explains"
    assert found.ear.heard.total() >= 24, "told again until it was over"
    assert found.alerts == 0
    assert found.last_synced >= (START + 6 * DAY).date()
    assert found.caught_up <= capacity


def test_a_supplier_that_is_down_for_a_day_deactivates_no_product() -> None:
    """The capacity is 120 products an hour, of which the slots need 10: what a day holds is made up in three hours."""
    check_week(week(240, CatalogTuning(batch_size=2, calls_per_minute=1)), timedelta(hours=3))


# -- items that hang, and items that are bad


def _deadline(n: int) -> None:
    raise DeadlineExceeded(f"{n} is still running after 30 s")


class DeadlineExceeded(TimeoutError):
    """What the watchdog makes of a handler past its deadline."""


DeadlineExceeded.__module__ = "duly"


def states_of(world: World) -> Counter[str]:
    return Counter(item.state for item in world.items(most=1_000))


def worst(tower: Tower) -> int:
    """The most tries of one item."""
    return max(Counter(tower.tried).values())


def test_items_that_hang_reach_review_though_nothing_else_answers() -> None:
    tower = Tower()
    tower.answer = _deadline
    with duly.testing.virtual(tower.app) as world:
        tower.put(20)
        world.run()
        assert world.outages.is_down(TOWER), "others fail alike"
        world.advance(days=3)
        assert states_of(world) == {"failed": 20}
        assert worst(tower) <= MERCY + 3


def test_mercy_has_an_end_also_if_each_try_is_in_another_worker() -> None:
    """As if each worker had to replace itself after its first try."""
    tower = Tower()
    tower.answer = _deadline
    with duly.testing.virtual(tower.app) as world:
        tower.put(20)
        world.run()
        watch(tower.app, world, Ear()).tick(world.clock.now())
        for _ in range(200):
            world.clock.set(world.clock.now() + timedelta(minutes=20))
            fresh = World(tower.app, world.clock, world._runner)
            watch(tower.app, fresh, Ear(), "w2").learn()
            fresh.run()
        assert states_of(world) == {"failed": 20}
        assert worst(tower) <= MERCY + 3


def test_one_item_that_hangs_takes_no_source_down_and_is_no_probe_again() -> None:
    tower = Tower()
    tower.answer = lambda n: _deadline(n) if n == 0 else n
    with duly.testing.virtual(tower.app) as world:
        tower.put(100)
        world.run()
        assert not world.outages.is_down(TOWER)
        world.advance(hours=1)
        assert states_of(world) == {"failed": 1, "done": 99}
        assert worst(tower) == 3


def test_the_next_probe_is_another_item_than_the_one_that_hung() -> None:
    tower = Tower()
    tower.answer = lambda n: _deadline(n) if n == 0 else _raise(ConnectionError("no route"))
    with duly.testing.virtual(tower.app) as world:
        tower.ring.options(rank=0).put(n=0)
        tower.ring.options(rank=5).put_many({"n": n} for n in range(1, 12))
        world.advance(minutes=90)
        assert world.outages.is_down(TOWER)
        assert 0 in tower.tried
        assert all(one != two for one, two in pairwise(tower.tried) if one == 0)


@pytest.mark.parametrize("error", [ConnectionError("no route"), ValueError("no such size"), DeadlineExceeded("30 s")])
def test_bad_items_reach_review_though_their_source_is_found_down_again_and_again(error: Exception) -> None:
    tower = Tower()
    tower.answer = lambda n: _raise(error) if n else n
    with duly.testing.virtual(tower.app) as world:
        tower.ring.put_many({"n": n} for n in range(1, 9))
        for _ in range(40):  # of which each shows that it answers
            tower.ring.put(n=0)
            world.advance(minutes=20)
        assert states_of(world) == {"failed": 8, "done": 40}
        del tower.tried[:]
        tower.ring.put(n=0)
        world.run()
        assert tower.tried == [0]


@pytest.mark.parametrize("answer", [Skip("off"), GiveUp("404"), Snooze(3_600)], ids=["skip", "give up", "snooze"])
def test_a_source_that_answers_is_back_however_the_tries_end(answer: Exception) -> None:
    tower = Tower()
    tower.answer = lambda n: _raise(answer)
    with duly.testing.virtual(tower.app) as world:
        tower.is_up = False
        tower.put(20)
        world.run()
        assert world.outages.is_down(TOWER)
        tower.is_up = True
        world.advance(minutes=2)
        assert not world.outages.is_down(TOWER)
        assert len(tower.calls) >= 20 + 5, "all that waited went on"
