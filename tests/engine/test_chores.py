"""Rescuer, pruner and the loop that runs them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from duly import Backoff, Duly
from duly.clock import Clock, DatabaseClock, ManualClock
from duly.engine import recurrer
from duly.engine.loop import Loop
from duly.engine.pruner import BREATH, EVERY, PORTION, STEP, Pruner
from duly.engine.recurrer import Recurrer
from duly.engine.rescuer import Rescuer
from duly.errors import StoreUnavailable
from duly.model import Done, GiveUp, NewSchedule
from duly.store import Store
from tests.process.fleet import until
from tests.support import (
    NOW,
    after,
    claim,
    claim_alone,
    claim_one,
    counts,
    exists,
    fetch,
    leases,
    put,
    put_and_claim,
    settle,
)


def rescuer(store: Store, clock: Clock | None = None, swept: Callable[[], None] = lambda: None) -> Rescuer:
    app = Duly(store=store)

    @app.task(retry=Backoff(base=60, tries=3))
    def ring() -> None: ...

    return Rescuer(store, app.tasks, clock or ManualClock(NOW), sweep=5, settle_down=80, swept=swept)


def test_the_work_of_a_dead_worker_is_given_back_and_says_what_happened(store: Store) -> None:
    (item,) = put_and_claim(store)
    swept: list[bool] = []
    one = rescuer(store, swept=lambda: swept.append(True))
    assert one.tick(after(10)) == after(15)
    assert fetch(store, item.id).state == "running"
    one.tick(after(21))
    row = fetch(store, item.id)
    assert (row.state, row.lane, row.attempt, row.crashes) == ("waiting", "retry", 1, 1)
    assert swept, "the claimer looks again after every sweep"
    one.tick(after(26))
    assert leases(store) == {}, "an empty lease that ran out is swept away"


def test_two_rescuers_at_once_count_one_crash(store: Store, other: Store) -> None:
    (item,) = put_and_claim(store)
    one, two = rescuer(store), rescuer(other)
    one.tick(after(21))
    two.tick(after(21))
    assert fetch(store, item.id).crashes == 1


def test_items_of_tasks_it_does_not_know_are_given_back_too(store: Store) -> None:
    put(store, task="mystery")
    item = claim_one(store, tasks=("mystery",))
    rescuer(store).tick(after(21))
    assert fetch(store, item.id).state == "waiting"


def test_a_mass_crash_comes_back_in_portions_without_waiting_for_the_next_sweep(store: Store) -> None:
    put(store, 25)
    for _ in range(25):
        claim_alone(store)
    one = rescuer(store)
    assert one.tick(after(21)) == after(21)
    one.tick(after(21))
    assert counts(store) == {"waiting": 25}


def test_after_a_jump_of_the_clock_nobody_is_robbed(store: Store) -> None:
    (item,) = put_and_claim(store)
    times = [NOW, NOW, NOW, after(600), after(600), after(600)]
    clock = DatabaseClock(lambda: times.pop(0))
    clock.now()
    assert clock.measure() > 599
    rescuer(store, clock).tick(after(600))
    assert fetch(store, item.id).state == "running", "its worker has not had a chance to renew by the new time"


def test_finished_items_are_forgotten_after_their_time_and_review_is_kept(store: Store) -> None:
    done, failed = put_and_claim(store, 2)
    settle(store, done, Done())
    settle(store, failed, GiveUp("no"))
    pruner = Pruner(store, keep=100)
    assert pruner.tick(after(50)) == after(50) + EVERY
    assert exists(store, done.id)
    assert pruner.tick(after(101)) == after(101) + BREATH
    assert not exists(store, done.id)
    assert exists(store, failed.id)
    assert pruner.tick(after(102)) == after(102) + EVERY


def test_a_long_history_is_walked_portion_by_portion(store: Store) -> None:
    ids = put(store, PORTION + 1, due_at=after(1e9))
    item_id = put(store)[0]
    settle(store, claim(store), Done())
    pruner = Pruner(store, keep=100)
    now = store.now() + timedelta(days=1)
    assert pruner.tick(now) == now + STEP, "nothing old in the first portion: go on, in no hurry"
    assert pruner.tick(now) == now + BREATH
    assert not exists(store, item_id)
    assert exists(store, ids[0])


def test_keeping_for_ever_prunes_nothing(store: Store) -> None:
    (done,) = put_and_claim(store)
    settle(store, done, Done())
    Pruner(store, keep=0).tick(after(1e9))
    assert exists(store, done.id)


def test_a_loop_goes_on_after_errors_and_stops_when_told(caplog: pytest.LogCaptureFixture) -> None:
    ticks: list[int] = []
    enough = threading.Event()

    def tick(now: datetime) -> datetime:
        ticks.append(1)
        if len(ticks) == 1:
            raise StoreUnavailable("away")
        if len(ticks) == 2:
            raise ValueError("a bug")
        if len(ticks) == 3:
            loop.wake()
            return now + (after(3600) - NOW)
        enough.set()
        return now + (after(3600) - NOW)

    loop = Loop("test", tick, ManualClock())
    with caplog.at_level(logging.WARNING):
        loop.start()
        assert enough.wait(10), "a wake during a tick is not lost"
        loop.stop()
        loop.join(10)
    assert len(ticks) == 4
    assert "away" in caplog.text
    assert "a bug" in caplog.text


def test_a_loop_that_goes_on_failing_tells_now_and_then_and_tries_at_least_every_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ticks: list[float] = []
    is_back = threading.Event()

    def tick(now: datetime) -> datetime:
        ticks.append(time.monotonic())
        if not is_back.is_set():
            raise StoreUnavailable("away")
        return now + timedelta(hours=1)

    loop = Loop("test", tick, ManualClock())
    with caplog.at_level(logging.INFO):
        loop.start()
        until(lambda: len(ticks) == 6)
        assert loop.trouble is not None
        assert loop.stands_still_for() < 1, "an absent database is not its fault"
        is_back.set()
        until(lambda: loop.trouble is None)
        loop.stop()
        loop.join(10)
    assert caplog.text.count("waits for the database: away") == 1
    assert caplog.text.count("test goes on after") == 1
    pauses = [later - earlier for earlier, later in pairwise(ticks)]
    assert max(pauses) < 2.5


def test_a_loop_says_for_how_long_it_has_got_nowhere() -> None:
    gate = threading.Event()

    def tick(now: datetime) -> datetime:
        gate.wait(60)
        raise ValueError("a bug")

    loop = Loop("test", tick, ManualClock())
    assert loop.stands_still_for() == 0
    loop.start()
    until(lambda: loop.stands_still_for() > 0.2)
    gate.set()
    until(lambda: loop.trouble is not None)
    until(lambda: loop.stands_still_for() > 0.4)  # with one failure after the other
    loop.stop()
    loop.join(10)


# -- schedules


def every(store: Store, rule: str, **more: Any) -> int:
    given = {"zone": "UTC", "next_at": NOW, **more}
    new = NewSchedule(task="ring", key=rule, queue="ring", args=b"{}", rule=rule, **given)
    ((schedule_id, _),) = store.enroll([new], lambda *_: ("", NOW))
    return schedule_id


def test_schedules_make_their_items_at_their_times(store: Store) -> None:
    made: list[bool] = []
    one = Recurrer(store, sweep=5, made=lambda: made.append(True))
    assert one.tick(NOW) == after(5), "with nothing planned it looks at every sweep"
    every(store, "every 30s", next_at=after(30))
    assert one.tick(after(28)) == after(30)
    assert made == []
    assert one.tick(after(30)) == after(30), "there may be more"
    assert made == [True], "the claimer is told"
    assert one.tick(after(30)) == after(35), "the next is far: others may plan something sooner"
    assert [item.planned_at for item in claim(store, now=after(30))] == [after(30)]


def test_a_backlog_of_schedules_is_made_in_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrer, "PORTION", 2)
    for n in range(5):
        every(store, f"every {n + 60}s")
    one = Recurrer(store, sweep=5)
    assert [one.tick(NOW) for _ in range(4)] == [NOW, NOW, NOW, after(5)]
    assert counts(store) == {"waiting": 5}


def test_schedules_that_another_worker_has_in_hand_are_left_to_it(store: Store, other: Store) -> None:
    every(store, "every 60s")
    one, two = Recurrer(store, sweep=5), Recurrer(other, sweep=5)
    revise = store.revise

    def slowly(which: Any, now: datetime, most: int, plan: Any) -> int:
        """The other comes between this one's look and its own turn."""
        two.tick(now)
        return revise(which, now, most, plan)

    store.revise = slowly  # type: ignore[method-assign]
    assert after(0) < one.tick(NOW) < after(1)
    assert counts(store) == {"waiting": 1}
