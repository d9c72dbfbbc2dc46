"""Which leases are dead, told from looks at them: no database, no waiting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.engine.rescuer import RECONNECT, Detector
from tests.support import NOW, after

LEASE = 20.0


class Watch:
    """A detector that looks every five seconds at one lease."""

    def __init__(self, lease: float = LEASE) -> None:
        self.detector = Detector(lease)
        self.at = 1000.0
        self.until = after(LEASE)
        self.clock = NOW

    def look(self, passed: float = 5, *, waited: float = 0) -> bool:
        """Whether the lease is dead when so many seconds have passed, and the answer took so long."""
        asked = self.at + passed
        self.at = asked + waited
        self.clock += timedelta(seconds=passed + waited)
        return bool(self.detector.look([(1, self.until)], self.clock, asked, self.at))

    def beat(self, lease: float = LEASE) -> None:
        self.until = self.clock + timedelta(seconds=lease)

    def set_clock(self, by: float) -> None:
        self.clock += timedelta(seconds=by)

    def looks_until_dead(self, passed: float = 5, most: int = 1000) -> int:
        for look in range(1, most):
            if self.look(passed):
                return look
        pytest.fail("it is never dead")


def test_a_lease_that_is_prolonged_lives(watch: Watch) -> None:
    for _ in range(100):
        watch.beat()
        assert not watch.look()


def test_a_dead_worker_is_known_as_such_within_a_lease_and_a_look(watch: Watch) -> None:
    watch.look()
    watch.beat()
    assert [watch.look() for _ in range(5)] == [False, False, False, False, True]


def test_who_has_just_come_watches_for_a_lease_first(watch: Watch) -> None:
    watch.set_clock(3600)
    assert [watch.look() for _ in range(5)] == [False, False, False, False, True]


def test_whoever_has_a_longer_lease_is_given_its_time(watch: Watch) -> None:
    watch.look()
    watch.beat(120)
    assert watch.looks_until_dead() == 120 // 5


def test_a_clock_that_is_set_forward_kills_nobody(watch: Watch) -> None:
    watch.beat()
    watch.look()
    watch.set_clock(3600)
    for _ in range(100):  # its worker has not noticed, and writes what is long over by the new time
        watch.until += timedelta(seconds=5)
        assert not watch.look()


def test_a_clock_that_is_set_back_keeps_no_dead_worker_alive(watch: Watch) -> None:
    watch.beat()
    watch.look()
    watch.set_clock(-3600)
    assert watch.looks_until_dead() <= 5


def test_who_comes_after_the_clock_was_set_back_does_not_wait_for_an_hour(watch: Watch) -> None:
    watch.beat()
    watch.set_clock(-3600)
    assert watch.looks_until_dead() <= 10 * LEASE // 5 + 1


@pytest.mark.parametrize("how", ["failed", "waited", "stood still"])
def test_after_an_outage_everybody_has_a_lease_to_come_back(watch: Watch, how: str) -> None:
    watch.look()
    watch.beat()
    for _ in range(3):
        watch.look()
    if how == "failed":
        watch.detector.interrupt()
        assert not watch.look(60)
    else:
        assert not watch.look(60 if how == "stood still" else 5, waited=60 if how == "waited" else 0)
    assert [watch.look() for _ in range(4)] == [False, False, False, True]


def test_after_an_outage_short_leases_leave_time_to_reconnect() -> None:
    watch = Watch(lease=2)
    watch.look(0.5)
    watch.detector.interrupt()
    watch.look(0.5)
    assert watch.looks_until_dead(0.5) >= RECONNECT / 0.5
    watch = Watch(lease=2)
    watch.set_clock(60)
    assert watch.looks_until_dead(0.5) <= 5, "who was there all along does not wait for that"


def test_it_says_when_the_next_look_is_worth_while(watch: Watch) -> None:
    assert watch.detector.next_after(watch.at) == float("inf")
    watch.look()
    watch.beat()
    watch.look()
    assert watch.detector.next_after(watch.at) == watch.at + LEASE
    assert watch.detector.next_after(watch.at + LEASE) == float("inf"), "what is dead already needs no look"


def test_a_short_hitch_is_no_outage(watch: Watch) -> None:
    watch.look()
    watch.beat()
    assert [watch.look(), watch.look(11), watch.look(), watch.look()] == [False, False, False, True]


@pytest.fixture
def watch() -> Watch:
    return Watch()
