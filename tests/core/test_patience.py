"""Questions that may hang or be dear: nobody waits too long, and nobody asks too often."""

from __future__ import annotations

import threading

import pytest

from duly.core import patience
from duly.core.errors import StoreUnavailable
from duly.core.patience import Thrifty


class Time:
    """A clock of our own; asking takes `cost` seconds of it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cost = 0.0
        self.asked = 0

    def monotonic(self) -> float:
        return self.now

    def ask(self) -> int:
        self.asked += 1
        self.now += self.cost
        return self.asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    one = Time()
    monkeypatch.setattr(patience, "time", one)
    return one


def test_a_cheap_answer_is_of_this_moment(clock: Time) -> None:
    thrifty = Thrifty(clock.ask, 5.0)
    clock.cost = 0.02
    assert [thrifty() for _ in range(3)] == [1, 2, 3]


def test_a_dear_answer_is_good_for_fifty_times_what_it_cost(clock: Time) -> None:
    thrifty = Thrifty(clock.ask, 5.0)
    clock.cost = 0.1
    assert thrifty() == 1
    clock.now += 4.9
    assert thrifty() == 1, "for whoever asks"
    clock.now += 0.2
    assert [thrifty(), thrifty()] == [2, 2]
    clock.now += 5.1
    clock.cost = 0.001
    assert [thrifty(), thrifty()] == [3, 4], "cheap again, asked again"


def test_what_changed_is_asked_for_at_once_also_behind_a_question_that_began_before(clock: Time) -> None:
    thrifty = Thrifty(clock.ask, 5.0)
    clock.cost = 1.0
    assert thrifty() == 1
    thrifty.forget()
    assert thrifty() == 2

    def ask_while_it_changes() -> int:
        stale.forget()
        return clock.ask()

    stale = Thrifty(ask_while_it_changes, 5.0)
    assert [stale(), stale()] == [3, 4], "an answer from before the change is not kept"


def test_while_the_next_answer_is_late_the_last_one_is_given_and_without_one_it_says_so() -> None:
    hang, answers = threading.Event(), iter(["first", "second"])

    def ask() -> str:
        assert hang.wait(30)
        return next(answers)

    thrifty = Thrifty(ask, 0.05)
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        thrifty()
    hang.set()
    thrifty._seconds = 30.0
    assert thrifty() == "first", "the question was still open, and is not asked twice"
    hang.clear()
    thrifty._seconds = 0.05
    assert thrifty() == "first"
    hang.set()


def test_an_error_is_an_error_whatever_was_known() -> None:
    answers = iter([1])

    def ask() -> int:
        try:
            return next(answers)
        except StopIteration:
            raise StoreUnavailable("away") from None

    thrifty = Thrifty(ask, 5.0)
    assert thrifty() == 1
    with pytest.raises(StoreUnavailable, match="away"):
        thrifty()
