from __future__ import annotations

import time

import pytest

from duly import Duly
from duly.core.model import Cancel, Failed, Item, Released, Revived
from duly.engine.calls import Verdicts
from duly.engine.keeper import Keeper, Watchdog
from duly.engine.work import InFlight, Work
from duly.store import Store
from tests.support import NOW, after, claim, claim_one, fetch, leases, put, settle, show


def holding(store: Store, count: int = 1) -> tuple[InFlight, list[Work]]:
    app = Duly(store=store)

    @app.task(deadline=30)
    def ring() -> None: ...

    put(store, count)
    items = claim(store)
    in_flight = InFlight()
    in_flight.lease(items, time.monotonic() + 20)
    works = [Work(ring, [item]) for item in items]
    in_flight.hold(works)
    return in_flight, works


def keeper_at(store: Store, in_flight: InFlight, passed: float) -> Keeper:
    """A keeper when so many seconds have passed since the leases were taken."""
    (began,) = {lease.ends - 20 for lease in in_flight.held().values()}
    return Keeper(store, in_flight, lease=20, beat=5, ticks=lambda: began + passed)


def test_it_beats_when_a_beat_is_due_and_not_before(store: Store) -> None:
    in_flight, (work,) = holding(store)
    fence = work.items[0].fence
    began = in_flight.held()[fence].ends - 20
    keeper_at(store, in_flight, 4).tick(after(4))
    assert leases(store)[fence][1] == after(20)
    keeper_at(store, in_flight, 5).tick(after(5))
    assert leases(store)[fence][1] == after(25)
    assert in_flight.held()[fence].ends == began + 25


def test_a_database_clock_that_is_set_neither_stops_the_beats_nor_hurries_them(store: Store) -> None:
    in_flight, (work,) = holding(store)
    fence = work.items[0].fence
    keeper_at(store, in_flight, 4).tick(after(3600))
    assert leases(store)[fence][1] == after(20)
    keeper_at(store, in_flight, 5).tick(after(-3600))
    assert leases(store)[fence][1] == after(-3580)
    keeper = keeper_at(store, in_flight, 1)
    assert keeper.tick(after(-3599)) <= after(-3598), (
        "it comes back by the time that passes, not by what the clock says"
    )


def test_a_new_try_of_a_cancelled_item_outlives_the_old_one(store: Store) -> None:
    in_flight, (old,) = holding(store)
    stopped: list[str] = []
    old.stop = lambda _: stopped.append("old")
    settle(store, old.items, Cancel())
    settle(store, fetch(store, old.items[0].id), Revived(NOW))
    again = claim_one(store)
    in_flight.lease([again], in_flight.held()[old.items[0].fence].ends)
    new = Work(old.task, [again])
    new.stop = lambda _: stopped.append("new")
    in_flight.hold([new])
    keeper_at(store, in_flight, 5).tick(after(5))
    assert stopped == ["old"]
    assert in_flight.works() == [new]
    assert list(in_flight.held()) == [again.fence]
    assert leases(store)[again.fence][1] == after(25)


def test_what_an_old_try_reports_does_not_hide_what_the_new_one_does(store: Store) -> None:
    in_flight, (old,) = holding(store)
    settle(store, old.items, Cancel())
    settle(store, fetch(store, old.items[0].id), Revived(NOW))
    again: Item = claim_one(store)
    keeper = keeper_at(store, in_flight, 0)
    keeper.report(again, b"2")
    keeper.report(old.items[0], b"1")
    keeper.tick(NOW)
    assert show(store, again.id)["progress"] in (b"2", "2")


def test_a_cancelled_item_has_its_handler_stopped_at_the_next_beat(store: Store) -> None:
    in_flight, (one, two) = holding(store, 2)
    stopped: list[str] = []
    one.stop = lambda _: stopped.append("one")
    two.stop = lambda _: stopped.append("two")
    settle(store, one.items, Cancel())
    keeper_at(store, in_flight, 5).tick(after(5))
    assert stopped == ["one"]
    assert in_flight.works() == [two]


def test_a_keeper_that_is_told_of_something_looks_before_the_next_beat_but_not_all_the_time(store: Store) -> None:
    in_flight, (one, two, three) = holding(store, 3)
    begun = time.monotonic()
    seconds = 0.0
    keeper = Keeper(store, in_flight, lease=20, beat=5, ticks=lambda: begun + seconds)
    settle(store, one.items, Cancel())
    keeper.tick(NOW)
    assert len(in_flight.works()) == 3, "nobody told it"
    keeper.look_soon()
    keeper.tick(NOW)
    assert in_flight.works() == [two, three]
    settle(store, [*two.items, *three.items], Cancel())
    keeper.look_soon()
    seconds = 0.1
    assert NOW < keeper.tick(NOW) <= after(0.4)
    assert in_flight.works() == [two, three], "it looked a moment ago"
    seconds = 0.5
    keeper.tick(NOW)
    assert in_flight.works() == []
    assert list(in_flight.to_close) == [one.items[0].fence], "what is left of the lease is nothing"
    assert leases(store)[one.items[0].fence][1] == after(20), "a look prolongs nothing"


def test_progress_is_shown_with_the_last_word_only(store: Store) -> None:
    in_flight, (work,) = holding(store)
    keeper = Keeper(store, in_flight, lease=20, beat=5)
    keeper.report(work.items[0], b'{"done":1}')
    keeper.report(work.items[0], b'{"done":2}')
    keeper.tick(after(1))
    progress = show(store, work.items[0].id)["progress"]
    assert (progress if isinstance(progress, str) else progress.decode()).replace(" ", "") == '{"done":2}'


def watchdog(in_flight: InFlight, ended: list[tuple[Work, Verdicts]], hung: list[Work]) -> Watchdog:
    def finish(work: Work, verdicts: Verdicts, *, stop: bool) -> bool:
        if not in_flight.take(work):
            return False
        if stop and work.stop is not None:
            work.stop(work)
        ended.append((work, verdicts))
        return True

    def blocked_by(work: Work) -> list[Work]:
        hung.append(work)
        return []

    return Watchdog(in_flight, lease=20, finish=finish, hung=blocked_by)


def test_a_work_past_its_deadline_fails_and_is_stopped(store: Store) -> None:
    in_flight, (work,) = holding(store)
    ended: list[tuple[Work, Verdicts]] = []
    hung: list[Work] = []
    stopped: list[bool] = []
    work.stop = lambda _: stopped.append(True)
    work.deadline = time.monotonic() - 1
    watchdog(in_flight, ended, hung).tick(after(1))
    ((who, (verdict,)),) = ended
    assert who is work
    assert isinstance(verdict, Failed)
    assert verdict.classes == ("duly.DeadlineExceeded", "TimeoutError")
    assert stopped == [True]
    assert hung == [work]


def test_handlers_are_stopped_before_a_lease_that_could_not_be_prolonged_ends(store: Store) -> None:
    in_flight, (work,) = holding(store)
    stopped: list[bool] = []
    ended: list[tuple[Work, Verdicts]] = []
    work.over, work.stop = lambda _: None, lambda _: stopped.append(True)  # in a process of its own
    one = watchdog(in_flight, ended, [])
    (lease,) = in_flight.held().values()
    lease.ends = time.monotonic() + 10
    one.tick(after(600))
    assert stopped == [], "a database clock that jumps ends nothing"
    lease.ends = time.monotonic() + 1
    one.tick(after(1))
    assert stopped == [True]
    assert in_flight.works() == []
    assert ended == [(work, [Released("its lease could not be extended in time")])], (
        "the attempt is given back as soon as the database answers"
    )
    assert list(in_flight.held()) == [work.items[0].fence], "nobody else is to take what will be given back"


def test_a_thread_that_nobody_can_stop_keeps_its_say_while_nobody_has_taken_its_lease(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    in_flight, (begun, unbegun) = holding(store, 2)
    begun.stop = lambda _: None
    ended: list[tuple[Work, Verdicts]] = []
    one = watchdog(in_flight, ended, [])
    (lease,) = in_flight.held().values()
    lease.ends = time.monotonic() + 1
    for _ in range(3):
        one.tick(NOW)
    assert ended == [(unbegun, [Released("its lease could not be extended in time")])]
    assert in_flight.works() == [begun]
    assert caplog.text.count("could not extend") == 1, "it is said once, not at every look"
    keeper_at(store, in_flight, 5).tick(after(5))
    lease.ends = time.monotonic() + 1
    one.tick(NOW)
    assert caplog.text.count("could not extend") == 2, "and again when it happens again"


def test_it_comes_back_in_time_for_the_nearest_deadline(store: Store) -> None:
    in_flight, (work,) = holding(store)
    work.deadline = time.monotonic() + 0.2
    assert watchdog(in_flight, [], []).tick(NOW) <= after(0.2)
    work.deadline = float("inf")
    assert watchdog(in_flight, [], []).tick(NOW) == after(0.5)


def test_with_nothing_in_hand_they_rest_until_someone_fills_it(store: Store) -> None:
    woken: list[bool] = []
    in_flight = InFlight(wake_keeper=lambda: woken.append(True))
    assert watchdog(in_flight, [], []).tick(NOW) > after(600)
    assert Keeper(store, in_flight, lease=20, beat=5).tick(NOW) > after(600)
    put(store)
    in_flight.lease(claim(store), time.monotonic() + 20)
    assert woken == [True]
