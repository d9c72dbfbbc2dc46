"""Rescuer, pruner and the loop that runs them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from duly import Backoff, Duly
from duly.core import advance
from duly.core.clock import ManualClock
from duly.core.errors import StoreUnavailable
from duly.core.model import Ask, Cancel, Done, GiveUp, Item, Meter, NewSchedule
from duly.core.policy.recur import parse
from duly.engine import pruner as pruning
from duly.engine import recurrer
from duly.engine.loop import Loop
from duly.engine.pruner import BREATH, EVERY, PORTION, STEP, Pruner
from duly.engine.recurrer import Recurrer
from duly.engine.rescuer import PORTION as PORTION_OF_LEASES
from duly.engine.rescuer import Detector, Rescuer
from duly.engine.work import InFlight
from duly.store import Store
from tests.process.fleet import until
from tests.support import (
    LEASE,
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
    scaled,
    settle,
    share,
)


class Sweeps:
    """A rescuer whose time passes only when told, from NOW on."""

    def __init__(self, store: Store, swept: Callable[[], None] = lambda: None, **more: Any) -> None:
        app = Duly(store=store)

        @app.task(retry=Backoff(base=60, tries=3))
        def ring() -> None: ...

        self.now = NOW
        ticks = lambda: (self.now - NOW).total_seconds()  # noqa: E731
        self._rescuer = Rescuer(store, app.tasks, Detector(20), sweep=5, swept=swept, ticks=ticks, **more)

    def at(self, seconds: float) -> datetime:
        """Sweep at this time."""
        self.now = after(seconds)
        return self._rescuer.tick(self.now)

    def to(self, seconds: float) -> None:
        """Sweep every five seconds until then."""
        while self.now < after(seconds):
            self.now = self._rescuer.tick(self.now)
        self._rescuer.tick(self.now)


def test_the_work_of_a_dead_worker_is_given_back_and_says_what_happened(store: Store) -> None:
    (item,) = put_and_claim(store)
    swept: list[bool] = []
    one = Sweeps(store, swept=lambda: swept.append(True))
    one.to(10)
    assert one.at(10) == after(15)
    one.to(15)
    assert fetch(store, item.id).state == "running"
    one.to(20)
    row = fetch(store, item.id)
    assert (row.state, row.lane, row.attempt, row.crashes) == ("waiting", "retry", 1, 1)
    assert swept, "the claimer looks again after every sweep"
    assert leases(store) == {}


def test_an_empty_lease_that_ran_out_is_swept_away(store: Store) -> None:
    (item,) = put_and_claim(store)
    settle(store, item, Done())
    Sweeps(store).to(20)
    assert leases(store) == {}


def test_two_rescuers_at_once_count_one_crash(store: Store, other: Store) -> None:
    (item,) = put_and_claim(store)
    one, two = Sweeps(store), Sweeps(other)
    one.to(15)
    two.to(15)
    one.at(20)
    two.at(20)
    assert fetch(store, item.id).crashes == 1


def test_what_tasks_unknown_here_left_is_for_those_who_know_them(store: Store) -> None:
    put(store, task="mystery", max_attempts=1)
    item = claim_one(store, tasks=("mystery",))
    Sweeps(store).to(100)
    assert fetch(store, item.id) == item
    assert list(leases(store)) == [item.fence], "whoever knows the task finds it here"


def test_of_a_lease_with_known_and_unknown_tasks_the_known_come_back(store: Store) -> None:
    (known,), (unknown,) = put(store), put(store, task="mystery")
    (fence,) = {item.fence for item in claim(store, tasks=("ring", "mystery"))}
    Sweeps(store).to(100)
    assert fetch(store, known).state == "waiting"
    assert fetch(store, unknown).state == "running"
    assert list(leases(store)) == [fence]


def test_a_pile_of_what_is_unknown_here_hides_nothing_and_is_swept_when_it_is_over(store: Store) -> None:
    put(store, 2 * PORTION_OF_LEASES + 5, task="mystery")
    strange = [claim(store, share("mystery", limit=1), tasks=("mystery",))[0] for _ in range(2 * PORTION_OF_LEASES + 5)]
    put(store)
    known = claim_alone(store)
    one = Sweeps(store)
    one.to(20)
    assert fetch(store, known.id).state == "waiting"
    assert len(leases(store)) == len(strange)
    settle(store, strange, Cancel())
    one.to(40)
    assert leases(store) == {}


def test_a_mass_crash_comes_back_in_portions_without_waiting_for_the_next_sweep(store: Store) -> None:
    put(store, 25)
    for _ in range(25):
        claim_alone(store)
    one = Sweeps(store)
    one.to(15)
    assert one.at(20) == after(20)
    one.at(20)
    assert counts(store) == {"waiting": 25}


def test_a_worker_that_comes_after_the_clock_was_set_forward_robs_nobody(store: Store) -> None:
    (item,) = put_and_claim(store)
    one = Sweeps(store)
    for sweep in range(20):
        one.at(3600 + 5 * sweep)
        assert fetch(store, item.id).state == "running", "its worker has not noticed the new time yet, and beats"
        store.extend({item.fence: [item.id]}, after(5 * sweep), after(5 * sweep + 20))


def test_a_dead_worker_is_found_although_the_clock_was_set_back(store: Store) -> None:
    put(store)
    item = claim_one(store, now=after(3600))
    Sweeps(store).to(10 * 20)
    assert fetch(store, item.id).state == "waiting"


def test_a_lease_that_is_dead_just_after_a_sweep_does_not_wait_for_the_next(store: Store) -> None:
    (item,) = put_and_claim(store)
    one = Sweeps(store)
    real = store.leases

    def slowly() -> list[tuple[int, str, datetime]]:
        one.now += timedelta(seconds=0.1)
        return real()

    store.leases = slowly  # type: ignore[method-assign]
    one.at(0)
    store.leases = real  # type: ignore[method-assign]
    for seconds in (5, 10, 15):
        one.at(seconds)
    again = one.at(20)
    assert fetch(store, item.id).state == "running", "seen for 19.9 s only"
    assert after(20.1) < again < after(20.2)
    one.at((again - NOW).total_seconds())
    assert fetch(store, item.id).state == "waiting"


def test_while_writers_wait_nobody_is_judged(store: Store) -> None:
    (item,) = put_and_claim(store)
    one = Sweeps(store)
    one.to(15)
    real = store.leases

    def waits() -> list[tuple[int, str, datetime]]:
        one.now += timedelta(seconds=60)
        return real()

    store.leases = waits  # type: ignore[method-assign]
    one.at(20)
    store.leases = real  # type: ignore[method-assign]
    one.to(80 + 15)
    assert fetch(store, item.id).state == "running"
    one.to(80 + 20)
    assert fetch(store, item.id).state == "waiting"


def test_after_the_database_was_away_nobody_is_judged_at_once(store: Store) -> None:
    (item,) = put_and_claim(store)
    one = Sweeps(store)
    one.to(15)
    real = store.leases

    def away() -> list[tuple[int, str, datetime]]:
        raise StoreUnavailable("away")

    store.leases = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        one.at(20)
    store.leases = real  # type: ignore[method-assign]
    one.at(21)
    one.to(36)
    assert fetch(store, item.id).state == "running"
    one.to(41)
    assert fetch(store, item.id).state == "waiting"


def test_a_worker_that_prolongs_at_the_last_moment_keeps_its_work(store: Store, other: Store) -> None:
    (item,) = put_and_claim(store)
    one = Sweeps(store)
    one.to(15)
    real = store.under

    def late(fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        other.extend({item.fence: [item.id]}, after(20), after(40))
        return real(fences)

    store.under = late  # type: ignore[method-assign]
    one.at(20)
    assert fetch(store, item.id).state == "running"
    assert list(leases(store)) == [item.fence]


# -- leases in our own name


def test_what_a_claim_took_whose_answer_was_lost_is_given_back_untouched(store: Store) -> None:
    item, kept = put_and_claim(store, max_attempts=1), put_and_claim(store)
    in_flight = InFlight()
    in_flight.lease(kept, float("inf"))
    one = Sweeps(store, worker="w1", in_flight=in_flight)
    one.at(0)
    assert fetch(store, item[0].id).state == "running", "its answer may be on the way"
    one.at(5)
    row = fetch(store, item[0].id)
    assert (row.state, row.attempt, row.crashes, row.losses) == ("waiting", 0, 0, 0)
    one.to(100)
    assert list(leases(store)) == [kept[0].fence], "what is in hand is the keeper's business"
    assert fetch(store, kept[0].id).state == "running"


def test_an_answer_that_comes_after_all_begins_nothing(store: Store) -> None:
    items = put_and_claim(store)
    in_flight = InFlight()
    one = Sweeps(store, worker="w1", in_flight=in_flight)
    one.to(5)
    assert not in_flight.lease(items, float("inf"))
    assert in_flight.held() == {}


def test_what_could_not_be_written_at_all_is_not_given_back_but_runs_out(store: Store) -> None:
    (item,) = put_and_claim(store)
    in_flight = InFlight()
    in_flight.leave([item.fence])
    one = Sweeps(store, worker="w1", in_flight=in_flight)
    one.to(15)
    assert fetch(store, item.id).state == "running"
    one.to(20)
    assert (fetch(store, item.id).state, fetch(store, item.id).losses) == ("waiting", 1)


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


def note(store: Store, at: datetime) -> None:
    line = {"actor": "ana", "action": "limit.set", "subjects": '["limit:a"]', "details": "{}"}
    store.write("note_each", {**line, "now": at})


def notes(store: Store) -> list[datetime]:
    return [row[1] for row in store.read("audit", {"subject": None, "before": None, "most": 10_000})]


def test_old_lines_of_the_audit_log_are_forgotten_portion_by_portion(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PORTION", 3)
    for second in range(8):
        note(store, after(second))
    pruner = Pruner(store, keep=0, audit_keep=100)
    assert pruner.tick(after(100)) == after(100) + EVERY
    assert len(notes(store)) == 8, "none is older than that"
    ticks, now = 0, after(160)
    while (back := pruner.tick(now)) - now < EVERY:
        ticks, now = ticks + 1, back
    assert (ticks, notes(store)) == (3, []), "three portions, one soon after the other"
    note(store, now)
    note(store, now - timedelta(seconds=200))
    pruner.tick(back)
    assert notes(store) == [now], "also where the lines are not in order"


def test_the_audit_log_may_be_kept_for_ever(store: Store) -> None:
    note(store, NOW)
    Pruner(store, keep=0, audit_keep=0).tick(after(1e9))
    assert notes(store) == [NOW]


WINDOWED = {
    "window:sync cron 30 2-22/4 * * *": timedelta(days=5),
    "window:a queue of words daily 09:00": timedelta(days=6),
    "window:sync/7 yearly 12-30 09:00": timedelta(days=366),  # two days before NOW
    "window:sync as an older version named it": timedelta(days=369),
    "window:sync": timedelta(days=369),
    "api": timedelta(days=33),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_a_meter_is_forgotten_when_what_it_counted_counts_no_more(store: Store, name: str) -> None:
    grant(store, name, NOW)
    pruner = Pruner(store, keep=0)
    pruner.tick(NOW + WINDOWED[name] - timedelta(days=3))
    assert meters(store) == [name]
    pruner.tick(NOW + WINDOWED[name])
    assert meters(store) == []


def test_meters_that_someone_set_stay_and_the_others_go_by_the_portion(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PORTION", 10)
    for n in range(25):
        grant(store, f"window:sync/{n} cron 30 2-22/4 * * *", NOW)
    store.write("set_meter", {"name": "set", "most": 5, "per": None})
    store.write("set_meter", {"name": "unset", "most": None, "per": None})
    grant(store, "api", NOW)
    pruner, now, ticks = Pruner(store, keep=0), NOW + timedelta(days=5), 1
    while (back := pruner.tick(now)) == now + BREATH:
        now, ticks = back, ticks + 1
    assert ticks == 3
    assert meters(store) == ["api", "set"]


def grant(store: Store, name: str, at: datetime) -> None:
    """Something was granted under this meter."""
    put(store)
    meter = Meter(name, 100, since=at - timedelta(hours=1), until=at + timedelta(hours=1))
    (grant,) = store.claim_metered([Ask(share(limit=1), (meter,))], "w1", at, LEASE, 1, 1)
    assert len(grant.items) == 1


def meters(store: Store) -> list[str]:
    return [row[0] for row in store.read("all_meters", {"after": "", "most": 100})]


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
        assert enough.wait(60), "a wake during a tick is not lost"
        loop.stop()
        loop.join(60)
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
        loop.join(60)
    assert caplog.text.count("waits for the database: away") == 1
    assert caplog.text.count("test continues after") == 1
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
    loop.join(60)


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

    def slowly(which: Any, now: datetime, most: int, plan: Any, **more: Any) -> int:
        """The other comes between this one's look and its own turn."""
        two.tick(now)
        return revise(which, now, most, plan, **more)

    store.revise = slowly  # type: ignore[method-assign]
    assert after(0) < one.tick(NOW) < after(1)
    assert counts(store) == {"waiting": 1}


def test_schedules_of_a_newer_version_wait_for_it_and_keep_nobody_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many there are: the older version does not touch them, and none of their occurrences is lost."""
    many = scaled(3_000, 10_000)
    strange = [a_schedule(f"s{n}", rule="when the moon is full") for n in range(many)]
    store.enroll([*strange, a_schedule("good")], lambda *_: pytest.fail("no seats here"))
    older = Recurrer(store, sweep=30)
    ticks, now = 0, after(1)
    while (back := older.tick(now)) <= now:
        ticks += 1
    assert ticks <= many / recurrer.PORTION + 2
    assert back == after(31), "it comes to rest"
    assert counts(store) == {"waiting": 1}
    assert "a rule or time zone that is unknown here" in caplog.text
    assert len(caplog.records) <= ticks, "they are told by the portion"

    told = len(caplog.records)
    assert older.tick(after(3600)) == after(3600)
    while (back := older.tick(after(3600))) <= after(3600):
        pass
    assert counts(store) == {"waiting": 2}, "the others go on when they are due"
    assert len(caplog.records) == told, "and once"

    monkeypatch.setattr(advance, "rule_of", lambda _: parse("0 * * * *"))
    newer = Recurrer(store, sweep=30)
    while newer.tick(after(3600)) <= after(3600):
        pass
    (row,) = store.read("schedules", {**ANY, "key": "s77"})
    made = store.read("occurrences", {"schedule_id": row[0], "most": 10})
    assert [each[3] for each in made] == [after(3600)]
    (note,) = store.read("audit", {"subject": f"schedule:{row[0]}", "before": None, "most": 10})
    assert note[3] == "schedule.skipped", "the one before was missed by its catch-up policy, not lost without a trace"


ANY = {"owner": None, "task": None, "state": None, "ring": None, "slot": None, "after": 0, "most": 10}


def a_schedule(key: str, rule: str = "0 * * * *") -> NewSchedule:
    return NewSchedule(task="ring", queue="ring", args=b"{}", key=key, rule=rule, zone="UTC", next_at=NOW)
