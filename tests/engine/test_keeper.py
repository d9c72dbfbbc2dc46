from __future__ import annotations

import time

from duly import Duly
from duly.engine.calls import Verdicts
from duly.engine.keeper import Guard, Keeper
from duly.engine.work import Hands, Work
from duly.model import Cancel, Failed
from duly.store import Store
from tests.support import NOW, after, claim, leases, put, settle, show


def holding(store: Store, count: int = 1) -> tuple[Hands, list[Work]]:
    app = Duly(store=store)

    @app.task(deadline=30)
    def ring() -> None: ...

    put(store, count)
    items = claim(store)
    hands = Hands()
    hands.lease(items, NOW, time.monotonic() + 20)
    works = [Work(ring, [item]) for item in items]
    hands.hold(works)
    return hands, works


def test_it_beats_when_a_beat_is_due_and_not_before(store: Store) -> None:
    hands, (work,) = holding(store)
    keeper = Keeper(store, hands, lease=20, beat=5)
    keeper.tick(after(4))
    assert leases(store)[work.items[0].fence][1] == after(20)
    keeper.tick(after(5))
    assert leases(store)[work.items[0].fence][1] == after(25)
    assert hands.held()[work.items[0].fence].beaten_at == after(5)


def test_a_cancelled_item_has_its_handler_stopped_at_the_next_beat(store: Store) -> None:
    hands, (one, two) = holding(store, 2)
    stopped: list[str] = []
    one.stop = lambda _: stopped.append("one")
    two.stop = lambda _: stopped.append("two")
    settle(store, one.items, Cancel())
    Keeper(store, hands, lease=20, beat=5).tick(after(5))
    assert stopped == ["one"]
    assert hands.works() == [two]


def test_a_keeper_that_is_told_of_something_looks_before_the_next_beat_but_not_all_the_time(store: Store) -> None:
    hands, (one, two, three) = holding(store, 3)
    closed: list[int] = []
    hands.emptied = closed.append
    keeper = Keeper(store, hands, lease=20, beat=5)
    settle(store, one.items, Cancel())
    keeper.tick(after(0.1))
    assert len(hands.works()) == 3, "nobody told it"
    keeper.look_soon()
    keeper.tick(after(0.2))
    assert hands.works() == [two, three]
    settle(store, [*two.items, *three.items], Cancel())
    keeper.look_soon()
    assert after(0.3) < keeper.tick(after(0.3)) <= after(0.7)
    assert hands.works() == [two, three], "it looked a moment ago"
    keeper.tick(after(0.7))
    assert hands.works() == []
    assert closed == [one.items[0].fence], "what is left of the lease is nothing"
    assert leases(store)[one.items[0].fence][1] == after(20), "a look prolongs nothing"


def test_progress_is_shown_with_the_last_word_only(store: Store) -> None:
    hands, (work,) = holding(store)
    keeper = Keeper(store, hands, lease=20, beat=5)
    keeper.report(work.items[0], b'{"done":1}')
    keeper.report(work.items[0], b'{"done":2}')
    keeper.tick(after(1))
    progress = show(store, work.items[0].id)["progress"]
    assert (progress if isinstance(progress, str) else progress.decode()).replace(" ", "") == '{"done":2}'


def guard(hands: Hands, ended: list[tuple[Work, Verdicts]], hung: list[Work]) -> Guard:
    def finish(work: Work, verdicts: Verdicts, *, stop: bool) -> bool:
        if not hands.take(work):
            return False
        if stop and work.stop is not None:
            work.stop(work)
        ended.append((work, verdicts))
        return True

    return Guard(hands, lease=20, finish=finish, hung=hung.append)


def test_a_work_past_its_deadline_fails_and_is_stopped(store: Store) -> None:
    hands, (work,) = holding(store)
    ended: list[tuple[Work, Verdicts]] = []
    hung: list[Work] = []
    stopped: list[bool] = []
    work.stop = lambda _: stopped.append(True)
    work.deadline = time.monotonic() - 1
    guard(hands, ended, hung).tick(after(1))
    ((who, (verdict,)),) = ended
    assert who is work
    assert isinstance(verdict, Failed)
    assert verdict.classes == ("duly.DeadlineExceeded", "TimeoutError")
    assert stopped == [True]
    assert hung == [work]


def test_handlers_are_stopped_before_a_lease_that_could_not_be_prolonged_ends(store: Store) -> None:
    hands, (work,) = holding(store)
    stopped: list[bool] = []
    work.stop = lambda _: stopped.append(True)
    one = guard(hands, [], [])
    (lease,) = hands.held().values()
    lease.ends = time.monotonic() + 10
    one.tick(after(600))
    assert stopped == [], "a database clock that jumps ends nothing"
    lease.ends = time.monotonic() + 1
    one.tick(after(1))
    assert stopped == [True]
    assert hands.works() == []
    assert hands.held() == {}


def test_it_comes_back_in_time_for_the_nearest_deadline(store: Store) -> None:
    hands, (work,) = holding(store)
    work.deadline = time.monotonic() + 0.2
    assert guard(hands, [], []).tick(NOW) <= after(0.2)
    work.deadline = float("inf")
    assert guard(hands, [], []).tick(NOW) == after(0.5)


def test_with_nothing_in_hand_they_rest_until_someone_fills_it(store: Store) -> None:
    hands = Hands()
    assert guard(hands, [], []).tick(NOW) > after(600)
    assert Keeper(store, hands, lease=20, beat=5).tick(NOW) > after(600)
    woken: list[bool] = []
    hands.filled = lambda: woken.append(True)
    put(store)
    hands.lease(claim(store), NOW, time.monotonic() + 20)
    assert woken == [True]
