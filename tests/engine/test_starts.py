"""When calls under limits begin: many workers at a distance from the database, in virtual time.

`Fleet` plays a database and its workers from event to event: each message takes its own random time on each of its
ways, clocks start anywhere and drift, claims wait for each other's locks, and calls begin late. The meters, the
arithmetic of grants and the permits are the real ones. What counts is when calls begin, by a clock that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random

import pytest

from duly import Duly
from duly.core.model import Ask, Grant, Item, Meter, Share
from duly.core.policy.limits import tokens
from duly.core.shown import MeterRow
from duly.engine.starts import DatabaseTime, Permit, Recent, Starts
from duly.engine.work import Work
from duly.store.granting import MeterBudget, grant_calls
from tests.core.test_decide import an_item
from tests.support import NOW, after, share

# How many calls of one claim could begin, as far as a worker's slots go.
SLOTS = 200


class Worker:
    """A worker that claims as long as there is something to claim, and the events of its life."""

    def __init__(self, fleet: Fleet, random: Random) -> None:
        self.fleet = fleet
        self.random = random
        self.at = 0.0  # the true time at which it acts
        self.epoch, self.drift = random.uniform(0, 1e6), random.uniform(-1e-4, 1e-4)
        self.starts = Starts(self.read, clock=self.clock)

    def clock(self) -> float:
        return self.epoch + self.at * (1 + self.drift)

    def way(self) -> float:
        """How long a message takes, one way."""
        return self.fleet.round_trip / 2 * self.random.uniform(0.6, 1.4)

    def read(self) -> datetime:
        self.at += self.way()
        theirs = after(self.at)
        self.at += self.way()
        return theirs

    def claim(self, at: float) -> None:
        self.at = at
        timing = self.starts.timing([self.fleet.ask])
        sent, asked = self.at, self.clock()
        # The transaction begins, and takes the lock.
        arrives = sent + sum(self.way() for _ in range(5))

        def locked(at: float) -> None:
            if at < self.fleet.locked_until:
                self.fleet.plan(self.fleet.locked_until, locked)
                return
            budget = MeterBudget([self.fleet.ask], self.fleet.rows(), {}, after(at), timing)

            def pick(shares: list[Share]) -> list[list[Item]]:
                return [[an_item(id=n, started_at=after(at)) for n in range(each.limit)] for each in shares]

            (grant,) = grant_calls([self.fleet.ask], budget, SLOTS, 1, pick)
            self.fleet.hits.update(dict(budget.hits()))
            # It picks, writes and commits.
            self.fleet.locked_until = at + sum(self.way() for _ in range(5))
            self.fleet.plan(self.fleet.locked_until + self.way(), lambda at: self.granted(grant, sent, asked, at))

        self.fleet.plan(arrives, locked)

    def granted(self, grant: Grant, sent: float, asked: float, at: float) -> None:
        self.at = at
        self.starts.took(at - sent)
        if not grant.items:
            wait = 0.005 if grant.until is None else (grant.until - after(at)).total_seconds()
            error = self.random.uniform(-0.5, 0.5) * self.fleet.round_trip
            self.fleet.plan(at + max(wait + error, 0.005), self.claim)
            return
        for permit in self.starts.permits(grant, asked):
            begins = (max(permit.at, self.clock()) - self.epoch) / (1 + self.drift)
            self.fleet.plan(begins + self.fleet.lateness(self.random), lambda at, permit=permit: self.begin(permit, at))
        self.fleet.granted += grant.calls
        self.fleet.plan(at, self.claim)

    def begin(self, permit: Permit, at: float) -> None:
        self.at = at  # whatever else this worker waits for
        if permit.begin():
            self.fleet.begun.append(at)
            return
        gone = permit.hits

        def give_back(_: float) -> None:
            for hit in gone:
                self.fleet.hits[hit.name].remove(hit.at)
            self.fleet.given_back += 1

        self.fleet.plan(at + self.way(), give_back)


class Fleet:
    def __init__(self, meter: Meter, round_trip: float, workers: int, late: float, seed: int) -> None:
        random = Random(seed)
        self.ask = Ask(share(limit=10_000), (meter,))
        self.round_trip, self.late = round_trip, late
        self.hits: dict[str, list[datetime]] = {}
        self.begun: list[float] = []
        self.granted = self.given_back = 0
        self.locked_until = 0.0
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        for _ in range(workers):
            worker = Worker(self, Random(random.random()))
            self.plan(random.uniform(0, 0.1), worker.claim)

    def rows(self) -> list[MeterRow]:
        return [MeterRow(name, None, None, hits) for name, hits in self.hits.items()]

    def lateness(self, random: Random) -> float:
        """How late a call begins: hardly, or as on a machine that computes something else."""
        return self.late * (random.random() ** 3) + 0.0005

    def plan(self, at: float, event: Callable[[float], None]) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, event))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] < until:
            at, _, event = heappop(self._events)
            event(at)


def assert_at_most(begun: list[float], meter: Meter) -> None:
    """No window has more calls than the limit."""
    begun = sorted(begun)
    assert meter.per is not None
    for first, beyond in zip(begun, begun[meter.most :], strict=False):
        assert beyond - first >= meter.per


def share_of(begun: list[float], meter: Meter, since: float, until: float) -> float:
    """The part of what the limit allows that really began in this time."""
    assert meter.per is not None
    return sum(since <= at < until for at in begun) / (meter.most * (until - since) / meter.per)


DISTANCES = (0.0005, 0.003, 0.012, 0.05, 0.2)


def live(meter: Meter, round_trip: float, workers: int = 1, late: float = 0.004, seed: int = 0) -> tuple[Fleet, float]:
    """Twenty windows of a fleet in which nothing exceeded the limit, and how much of it was used after the start."""
    assert meter.per is not None
    fleet, begin = Fleet(meter, round_trip, workers, late, seed), 4 * meter.per + 4
    fleet.run(begin + 20 * meter.per)
    assert_at_most(fleet.begun, meter)
    return fleet, share_of(fleet.begun, meter, begin, begin + 20 * meter.per)


@pytest.mark.parametrize("round_trip", DISTANCES)
@pytest.mark.parametrize(("most", "per"), [(10, 1.0), (100, 1.0), (2, 6.0), (5, 0.5)])
def test_a_limit_is_used_up_at_any_distance_and_never_exceeded(most: int, per: float, round_trip: float) -> None:
    fleet, used = live(Meter("x", most, per=per), round_trip, seed=most)
    assert used >= 0.9
    assert fleet.given_back <= fleet.granted / 50


@pytest.mark.parametrize("round_trip", DISTANCES)
def test_a_machine_that_is_busy_uses_its_limit_too(round_trip: float) -> None:
    fleet, used = live(Meter("x", 10, per=1.0), round_trip, late=0.1)
    assert used >= 0.85
    assert fleet.given_back <= fleet.granted / 10


@pytest.mark.parametrize("round_trip", DISTANCES)
def test_many_workers_share_a_limit_and_never_exceed_it(round_trip: float) -> None:
    """What moves from one worker to another costs what they do not know of the database's clock: a round trip."""
    _, used = live(Meter("x", 10, per=1.0), round_trip, workers=4)
    assert used >= 0.9 - round_trip


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_on_the_way_no_window_has_more_calls_than_the_limit(seed: int) -> None:
    random = Random(seed)
    meter = Meter("x", random.choice([1, 2, 7, 30]), per=random.choice([0.2, 0.5, 1.0, 3.0, 40.0]))
    fleet, _ = live(meter, random.choice(DISTANCES), random.choice([1, 2, 5]), random.choice([0.01, 0.2, 1.0]), seed)
    assert fleet.begun, "and some begin"


def test_a_short_window_is_used_up_next_to_the_database() -> None:
    assert live(Meter("x", 5, per=0.2), 0.003)[1] >= 0.85


# -- clocks


class Hand:
    """Two clocks that are moved by hand, and a reading that takes a while."""

    def __init__(self) -> None:
        self.here, self.there, self.way = 1_000.0, NOW, 0.01

    def clock(self) -> float:
        return self.here

    def read(self) -> datetime:
        self.pass_by(self.way)
        theirs = self.there
        self.pass_by(self.way)
        return theirs

    def pass_by(self, seconds: float) -> None:
        self.here += seconds
        self.there += timedelta(seconds=seconds)


def test_the_databases_time_is_never_later_than_its_clock_and_at_most_so_much_earlier() -> None:
    hand = Hand()
    time = DatabaseTime(hand.read, hand.clock)
    for way in (0.01, 0.05, 0.002, 0.2):
        hand.way = way
        assert time.renew()
        for _ in range(6):
            hand.pass_by(1.0)
            behind = (hand.there - time.at(hand.here)).total_seconds()
            assert 0 <= behind <= time.blur
            assert time.tick_of(time.at(hand.here)) == pytest.approx(hand.here)


def test_a_database_clock_that_was_set_is_noticed_and_own_calls_are_forgotten() -> None:
    hand = Hand()
    starts = Starts(hand.read, clock=hand.clock)
    ask = Ask(share(), (Meter("x", 5, per=1.0),))
    starts.timing([ask])
    permit = permits(starts, ask, hand.there)[0]
    assert permit.begin()
    assert list(starts.timing([ask]).own) == ["x"]
    hand.pass_by(6)
    hand.there += timedelta(hours=1)
    assert not starts.timing([ask]).own


def permits(starts: Starts, ask: Ask, at: datetime) -> list[Permit]:
    """Those of a claim of this ask that finds two items."""
    budget = MeterBudget([ask], [], {}, at, starts.timing([ask]))
    (grant,) = grant_calls([ask], budget, 2, 1, lambda _: [[an_item(id=n, started_at=at) for n in (1, 2)]])
    return starts.permits(grant, starts.clock())


def test_what_can_no_longer_count_is_forgotten() -> None:
    hand = Hand()
    starts = Starts(hand.read, clock=hand.clock)
    asks = [Ask(share(), (Meter(f"x{n}", 5, per=1.0),)) for n in range(1_100)]
    for ask in asks:
        permits(starts, ask, hand.there)
    hand.pass_by(60)
    permits(starts, asks[0], hand.there)
    assert set(starts._own) == {"x0"}


def test_the_largest_value_of_late_is_remembered_for_a_while() -> None:
    recent = Recent()
    recent.add(3.0, at=0.0)
    recent.add(1.0, at=5.0)
    assert [recent.get(at) for at in (5.0, 10.5)] == [3.0, 3.0]
    recent.add(2.0, at=12.0)
    assert [recent.get(at) for at in (20.0, 21.0, 35.0, 90.0)] == [3.0, 2.0, 0.0, 0.0]


def test_calls_wait_for_their_time_and_no_longer() -> None:
    hand = Hand()
    starts = Starts(hand.read, clock=hand.clock)
    app = Duly("sqlite://")

    @app.task
    def ring() -> None: ...

    entered: list[Work] = []

    class Pool:
        def enter(self, works: list[Work]) -> None:
            entered.extend(works)

    works = [Work(ring, [an_item(id=n)]) for n in range(4)]
    for work, wait in zip(works, (None, 0.0, 0.5, 2.0), strict=True):
        work.permit = None if wait is None else Permit(starts, at=hand.here + wait)
    assert starts.hold(Pool(), works) == works[:2]
    assert starts.tick(NOW) == after(0.5)
    hand.pass_by(0.5)
    assert starts.tick(NOW) == after(1.5)
    assert entered == [works[2]]
    assert starts.take_all() == [works[3]]
    assert starts.tick(NOW) == after(3_600)


def test_a_late_answer_of_the_database_does_not_lift_the_limit() -> None:
    hand, meter = Hand(), Meter("x", 5, per=1.0)
    starts = Starts(hand.read, clock=hand.clock)
    ask = Ask(share(), (meter,))
    asked_at = hand.there
    budget = MeterBudget([ask], [], {}, asked_at, starts.timing([ask]))
    (grant,) = grant_calls([ask], budget, 2, 1, lambda _: [[an_item(id=n, started_at=asked_at) for n in (1, 2)]])
    hand.pass_by(60)  # so long does the answer take
    starts.permits(grant, starts.clock())
    timing = starts.timing([ask])
    assert timing.delay < timedelta(seconds=3)
    later = MeterBudget([ask], [], {}, hand.there, timing)
    grant_calls([ask], later, 5, 1, lambda _: [[an_item(id=n, started_at=hand.there) for n in range(3, 8)]])
    ((_, hits),) = later.hits()
    assert tokens(meter, hits, 0, hand.there)[0] == 0, "what was granted counts"


def test_a_first_reading_of_the_clock_that_took_long_is_repeated() -> None:
    hand, ways = Hand(), [3.0, 0.0]

    def read() -> datetime:
        hand.pass_by(ways.pop(0) if ways else 0.0)
        return hand.there

    time = DatabaseTime(read, hand.clock)
    time.renew()
    assert (ways, time.blur < 0.1) == ([], True)


def test_calls_that_wait_for_a_time_of_a_clock_that_was_set_are_given_back() -> None:
    hand = Hand()
    starts = Starts(hand.read, clock=hand.clock)
    app = Duly("sqlite://")

    @app.task
    def ring() -> None: ...

    entered: list[Work] = []

    class Pool:
        def enter(self, works: list[Work]) -> None:
            entered.extend(works)

    ask = Ask(share(), (Meter("x", 5, per=1.0),))
    starts.timing([ask])
    work = Work(ring, [an_item(id=1)])
    work.permit = Permit(starts, at=hand.here + 3_600, by=hand.here + 3_601)
    assert starts.hold(Pool(), [work]) == []
    hand.pass_by(6)
    hand.there += timedelta(hours=1)
    starts.timing([ask])
    starts.tick(NOW)
    assert entered == [work]
    assert not work.permit.begin()
