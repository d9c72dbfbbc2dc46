"""Sources that are down, on both databases: who writes it, who is not blamed, and what a whole worker makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest

from duly import Backoff, Duly, Every, Source
from duly.core.clock import ManualClock
from duly.core.model import Ask, Done, Failed, Outcome, Share
from duly.engine.calls import SETTLED, Settled
from duly.engine.outages import Outages
from duly.engine.recurrer import Recurrer
from duly.engine.settler import Settler
from duly.engine.watch import Watch
from duly.engine.work import InFlight, Work
from duly.store import Store
from duly.verbs.read import Read
from tests.engine.test_watch import LATE, Ear
from tests.process.fleet import until
from tests.support import LEASE, NOW, after, claim, fetch, put, settle, share, tries

TOWER = Source("tower", tries=3)
GONE = Failed("ConnectionError: no route", ("ConnectionError", "OSError"))


class Desk:
    """A settler with what its process knows of the tower, and the works that it has in hand."""

    def __init__(self, store: Store) -> None:
        self.app = Duly(store=store)
        self.app.internals.database._clock = ManualClock(NOW)
        self.store = store

        @self.app.task(source=TOWER, retry=Backoff(base=60, tries=3), breaker=5)
        def ring(n: int = 0) -> None: ...

        self.ring = ring
        self.outages = Outages(self.app.tasks)
        self.in_flight = InFlight()
        self.settler = Settler(store, self.app.tasks, self.in_flight, self.outages)

    def claim(self, now: datetime = NOW, *shares: Share) -> list[Work]:
        items = claim(self.store, *shares, now=now)
        self.in_flight.lease(items, time.monotonic() + 20)
        works = [Work(self.ring, [item]) for item in items]
        self.in_flight.hold(works)
        return works

    def end(self, work: Work, outcome: Outcome | Settled, now: datetime = NOW) -> None:
        self.settler.finish(work, [outcome])
        self.settler._flush(now)

    def take_down(self) -> None:
        put(self.store, 3)
        for work in self.claim():
            self.end(work, GONE)
        assert self.outages.is_down(TOWER)


def details(store: Store) -> dict[str, Any]:
    return {alert.name: alert.details for alert in Read(store, ManualClock(NOW)).alerts()}


def blame(store: Store, ids: Sequence[int]) -> list[tuple[int, int]]:
    return [(item.attempt, item.failures) for item in (fetch(store, each) for each in ids)]


def test_failures_that_the_source_explains_are_taken_back(store: Store) -> None:
    desk = Desk(store)
    ids = put(store, 3)
    first, second, third = desk.claim()
    desk.end(first, GONE)
    desk.end(second, GONE)
    assert blame(store, ids) == [(1, 1), (1, 1), (1, 0)]
    desk.end(third, GONE, after(5))
    assert desk.outages.is_down(TOWER)
    for each in ids:
        item = fetch(store, each)
        assert (item.state, item.lane, item.attempt, item.failures, item.due_at) == ("waiting", "main", 0, 0, after(65))
    assert [len(tries(store, each)) for each in ids] == [1, 1, 0], "what had been written of them is still told"


def test_those_that_ended_in_the_same_batch_are_not_even_written_as_failures(store: Store) -> None:
    desk = Desk(store)
    ids = put(store, 4)
    for work in desk.claim():
        desk.settler.finish(work, [GONE])
    desk.settler._flush(NOW)
    assert blame(store, ids) == [(0, 0)] * 4
    assert [tries(store, each) for each in ids] == [[]] * 4


def test_schedules_get_their_failures_back(store: Store) -> None:
    desk = Desk(store)
    for n in range(3):
        desk.ring.every(Every("1h"), key=f"k{n}").put()
    desk.app.schedules.reconcile()
    Recurrer(store, sweep=60).tick(after(3_600))
    works = desk.claim(after(3_600))
    desk.end(works[0], GONE, after(3_600))
    desk.end(works[1], GONE, after(3_600))
    assert [each.failures for each in desk.app.schedules.page()] == [1, 1, 0]
    (again,) = desk.claim(after(3_660), share(lane="retry", limit=1))
    desk.end(again, GONE, after(3_660))
    assert sorted(each.failures for each in desk.app.schedules.page()) == [0, 1, 2]
    desk.end(works[2], GONE, after(3_661))
    assert [each.failures for each in desk.app.schedules.page()] == [0, 0, 0]
    assert blame(store, [work.items[0].id for work in works]) == [(0, 0)] * 3


def test_the_rows_of_a_job_wait_again(store: Store) -> None:
    desk = Desk(store)
    job = desk.app.job(desk.ring, ({"n": n} for n in range(3))).counts()
    works = desk.claim(NOW, share(job.rows_queue, task="ring"))
    for work in works:
        desk.end(work, GONE)
    ids = [work.items[0].id for work in works]
    assert blame(store, ids) == [(0, 0)] * 3
    assert [fetch(store, each).status for each in ids] == ["PENDING"] * 3


def test_an_item_that_went_on_meanwhile_is_left_alone(store: Store) -> None:
    desk = Desk(store)
    ids = put(store, 3)
    first, second, third = desk.claim()
    desk.end(first, GONE)
    desk.end(second, GONE)
    other = claim(store, share(lane="retry", limit=1), now=after(60))
    settle(store, other, Done(), after(60))
    (again,) = desk.claim(after(60))
    desk.end(third, GONE, after(61))
    assert [fetch(store, each).state for each in ids] == ["done", "running", "waiting"]
    desk.end(again, GONE, after(62))
    assert blame(store, ids)[1:] == [(0, 0), (0, 0)], "it is taken back when its next try has failed"


def test_a_success_in_the_handlers_own_transaction_brings_it_back(store: Store) -> None:
    desk = Desk(store)
    put(store, 4)
    *bad, good = desk.claim()
    for work in bad:
        desk.end(work, GONE)
    assert desk.outages.is_down(TOWER)
    settle(store, good.items, Done())
    desk.end(good, SETTLED)
    assert not desk.outages.is_down(TOWER)


def test_one_row_tells_that_it_is_down_then_back_and_then_it_is_over(store: Store) -> None:
    ear, desks = Ear(), (Desk(store), Desk(store))
    one, two = (Watch(store, f"w{n}", ["ring"], LATE, post=ear, outages=desk.outages) for n, desk in enumerate(desks))
    for desk in desks:
        desk.take_down()
    one.tick(NOW)
    two.tick(after(1))
    assert [body["alert"] for body in ear.heard] == ["source:tower"]
    assert details(store)["source:tower"] == {
        "source": "tower", "tasks": ["ring"], "queues": ["ring"], "cause": "no answer",
    }  # fmt: skip
    read = Read(store, ManualClock(after(7_200)))
    assert read.stuck(3_600) == []
    one.tick(after(7_200))
    assert [body["alert"] for body in ear.heard] == ["source:tower"] * 2, "what waits for it is not late beside that"
    desks[1].outages.answered(TOWER, after(7_210))
    two.tick(after(7_211))
    assert "backAt" in details(store)["source:tower"], "there is something to be made up"
    one.tick(after(7_212))
    assert not desks[0].outages.is_down(TOWER)
    settle(store, claim(store, now=after(7_213)), Done(), after(7_213))
    one.tick(after(7_214))
    assert details(store) == {}
    put(store, 1, due_at=NOW)
    assert len(read.stuck(3_600)) == 1, "without an alert it is stuck"
    desks[0].outages.learn({"source:tower": {}})
    desks[0].outages.answered(TOWER, after(7_215))  # a call that had begun before ends well
    one.tick(after(7_216))
    assert "source:tower" not in details(store), "nobody is told that it is back who was not told that it is down"


def test_what_was_given_back_goes_on_at_once_when_it_is_back(store: Store) -> None:
    desk = Desk(store)
    desk.take_down()
    ids = [fetch(store, each).id for each in put(store, 2, due_at=after(1))]
    now = 1.0
    for _ in range(3):
        for work in desk.claim(after(now)):
            desk.end(work, GONE, after(now))
        now += 240
    waiting = [fetch(store, each).due_at for each in ids]
    assert min(waiting) > after(now - 240 + 60), "later and later"
    desk.outages.answered(TOWER, after(now - 230))
    assert desk.settler.tick(after(now - 230)) == after(now - 230)
    assert [fetch(store, each).due_at for each in ids] == [after(now - 230)] * 2
    assert blame(store, ids) == [(0, 0)] * 2
    assert [tries(store, each) for each in ids] == [[], []]
    assert {len(desk.claim(after(now - 229)))} == {5}


def test_a_success_while_it_is_being_written_that_it_is_down_ends_the_alert(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store)
    one = Watch(store, "w1", ["ring"], LATE, post=Ear(), outages=desk.outages)
    desk.take_down()
    write = store.write

    def slow_write(name: str, given: Mapping[str, Any]) -> Any:
        written = write(name, given)
        if name == "source_down":
            desk.outages.answered(TOWER, NOW)
        return written

    monkeypatch.setattr(store, "write", slow_write)
    one.tick(NOW)
    assert not desk.outages.is_down(TOWER)
    one.tick(after(1))
    assert not desk.outages.is_down(TOWER)
    assert "backAt" in details(store).get("source:tower", {"backAt": "and what had to wait is done"})


def test_whoever_has_a_way_to_the_source_answers_whoever_has_none(store: Store) -> None:
    well, cut_off = Desk(store), Desk(store)
    one, two = (
        Watch(store, f"w{n}", ["ring"], LATE, post=Ear(), outages=each.outages)
        for n, each in enumerate((well, cut_off))
    )
    well.outages.answered(TOWER, NOW)
    cut_off.take_down()
    two.tick(after(1))
    one.tick(after(2))
    assert not well.outages.is_down(TOWER), "it waits for the next end"
    assert "backAt" not in details(store)["source:tower"]
    well.outages.answered(TOWER, after(3))
    one.tick(after(4))
    one.tick(after(5))
    assert "backAt" in details(store).get("source:tower", {"backAt": "and what had to wait is done"})
    two.tick(after(6))
    assert not cut_off.outages.is_down(TOWER)
    put(store, 3, due_at=after(6))
    for work in cut_off.claim(after(7)):
        cut_off.end(work, GONE, after(7))
    assert not cut_off.outages.is_down(TOWER), "now it takes six failures"


def test_it_is_told_anew_if_it_is_down_again_before_all_is_made_up(store: Store) -> None:
    ear, desk = Ear(), Desk(store)
    one = Watch(store, "w1", ["ring"], LATE, post=ear, outages=desk.outages)
    desk.take_down()
    one.tick(NOW)
    desk.outages.answered(TOWER, after(600))
    one.tick(after(601))
    put(store, 3, due_at=after(601))
    for work in desk.claim(after(601)):
        desk.end(work, GONE, after(602))
    one.tick(after(603))
    assert [(body["alert"], body["since"]) for body in ear.heard] == [
        ("source:tower", NOW.isoformat()),
        ("source:tower", after(603).isoformat()),
    ]


def test_probes_are_counted_for_the_whole_fleet(store: Store) -> None:
    desk = Desk(store)
    desk.take_down()
    put(store, 10)
    meters = desk.outages.meter(TOWER)
    asks = [Ask(share(limit=10), meters)]
    granted = [
        len(grant.items)
        for seconds in (0, 1, 30, 62, 63)
        for worker in ("w1", "w2")
        for grant in store.claim_metered(asks, worker, after(seconds), LEASE, 5, 1)
    ]
    assert granted == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_a_whole_worker_waits_for_its_source_and_goes_on(database_url: str) -> None:
    app = Duly(database_url, beat_seconds=0.2, sweep_seconds=0.2, poll_seconds=0.2)
    is_up, calls = threading.Event(), []

    @app.task(source=Source("tower", tries=5, probe=0.5), retry=Backoff(base=0.1, tries=2))
    def ring(n: int) -> None:
        calls.append(n)
        if not is_up.is_set():
            raise ConnectionError("no route")

    with closing(app):
        ids = [ring.put(n=n).id for n in range(60)]
        with app.worker():
            until(app.read.alerts, 20, lambda: calls)
            (alert,) = app.read.alerts()
            assert alert.name == "source:tower"
        begun = len(calls)
        with app.worker():  # another one, after the first has ended
            until(lambda: len(calls) >= begun + 2, 20, lambda: calls)
            assert len(calls) < begun + 20, "it knew of it"
            is_up.set()
            until(lambda: all(app.read.item(each).state == "done" for each in ids), 20, lambda: calls)
            until(lambda: not app.read.alerts(), 20, app.read.alerts)
        assert {(row.attempt, row.failures) for row in app.read.rows(ids)} == {(1, 0)}
