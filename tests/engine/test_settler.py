from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from duly import Backoff, Duly
from duly.core.decide import Rules, decide, excuse
from duly.core.errors import StoreUnavailable
from duly.core.model import Change, Done, Failed, Fingerprint, Outcome
from duly.engine.calls import SETTLED
from duly.engine.outages import Outages
from duly.engine.settler import LINGER, Settler
from duly.engine.work import InFlight, Work
from duly.store import Store
from tests.support import NOW, after, claim, counts, fetch, leases, new, put, settle, show


def desk(store: Store, count: int = 1) -> tuple[Settler, InFlight, list[Work]]:
    """A settler with so many claimed works in hand."""
    app = Duly(store=store)

    @app.task(retry=Backoff(base=60, tries=3))
    def ring() -> None: ...

    put(store, count)
    items = claim(store)
    in_flight = InFlight()
    in_flight.lease(items, time.monotonic() + 20)
    works = [Work(ring, [item]) for item in items]
    in_flight.hold(works)
    return Settler(store, app.tasks, in_flight), in_flight, works


def test_the_last_work_in_hand_is_settled_at_once(store: Store) -> None:
    settler, _, (work,) = desk(store)
    settler.finish(work, [Done()])
    settler.tick(NOW)
    assert fetch(store, work.items[0].id).state == "done"
    assert leases(store) == {}, "the lease goes with its last item"


def test_with_others_under_way_a_verdict_waits_for_company_but_not_for_long(store: Store) -> None:
    settler, _, (first, second) = desk(store, 2)
    settler.finish(first, [Done()])
    assert settler.tick(NOW) == NOW + LINGER
    assert fetch(store, first.items[0].id).state == "running"
    settler.tick(NOW + LINGER)
    assert fetch(store, first.items[0].id).state == "done"
    assert len(leases(store)) == 1, "the lease still covers the other"
    settler.finish(second, [Done()])
    settler.tick(NOW + LINGER)
    assert leases(store) == {}


def test_only_the_first_to_speak_for_a_work_is_heard(store: Store) -> None:
    settler, _, (work,) = desk(store)
    settler.finish(work, [Failed("deadline", ("TimeoutError",))])
    settler.finish(work, [Done()])
    settler.tick(NOW)
    assert fetch(store, work.items[0].id).failures == 1


def test_what_was_settled_inside_the_handlers_transaction_is_only_let_go(store: Store) -> None:
    settler, _, (work,) = desk(store)
    settle(store, work.items, Done())
    settler.finish(work, [SETTLED])
    settler.tick(NOW)
    assert leases(store) == {}
    assert len(settler) == 0


def test_verdicts_survive_a_database_that_is_away_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settler, _, (work,) = desk(store)
    settler.finish(work, [Done(b'"kept"')])
    real = store.settle

    def away(*_: Any) -> list[int]:
        raise StoreUnavailable("gone fishing")

    monkeypatch.setattr(store, "settle", away)
    with pytest.raises(StoreUnavailable):
        settler.tick(NOW)
    assert len(settler) > 0
    monkeypatch.setattr(store, "settle", real)
    settler.tick(after(5))
    assert show(store, work.items[0].id)["state"] == "done"


def test_a_result_that_the_database_refuses_goes_to_review_and_holds_nobody_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler, _, (bad, good) = desk(store, 2)
    real = store.settle

    def picky(changes: list[Change], *rest: Any) -> list[int]:
        if any(change.id == bad.items[0].id and change.result is not None for change in changes):
            raise ValueError("unprintable")
        return real(changes, *rest)

    monkeypatch.setattr(store, "settle", picky)
    settler.finish(bad, [Done(b'"strange"')])
    settler.finish(good, [Done()])
    settler.tick(NOW)
    assert fetch(store, good.items[0].id).state == "done"
    assert fetch(store, bad.items[0].id).state == "failed"
    assert leases(store) == {}


def test_an_item_that_cannot_be_written_at_all_keeps_its_lease_and_is_rescued(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler, in_flight, (bad, good) = desk(store, 2)
    real = store.settle

    def stubborn(changes: list[Change], *rest: Any) -> list[int]:
        if any(change.id == bad.items[0].id for change in changes):
            raise ValueError("never")
        return real(changes, *rest)

    monkeypatch.setattr(store, "settle", stubborn)
    settler.finish(bad, [Done(b'"strange"')])
    settler.finish(good, [Done()])
    settler.tick(NOW)
    assert in_flight.held() == {}, "nobody prolongs its lease"
    items, _ = store.expired(after(21), 10)
    assert [item.id for item in items] == [bad.items[0].id]


def test_what_was_settled_inside_is_let_go_even_if_the_database_goes_away_then(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler, in_flight, (inside, other) = desk(store, 2)
    settler.finish(inside, [SETTLED])
    real = store.settle

    def away(*_: Any) -> list[int]:
        raise StoreUnavailable("gone fishing")

    monkeypatch.setattr(store, "settle", away)
    with pytest.raises(StoreUnavailable):
        settler.tick(settler.tick(NOW))
    monkeypatch.setattr(store, "settle", real)
    settler.finish(other, [Done()])
    settler.tick(after(5))
    settler.tick(after(5))
    assert in_flight.held() == {}


def test_a_retry_policy_that_raises_sends_the_item_to_review(store: Store) -> None:
    class Moody:
        has_windows = False

        def tries_for(self, classes: tuple[str, ...]) -> int:
            return 3

        def next_at(self, now: datetime, failures: int, classes: tuple[str, ...], seed: str) -> datetime:
            raise ZeroDivisionError

    app = Duly(store=store)

    @app.task(retry=Moody())
    def ring() -> None: ...

    put(store)
    items = claim(store)
    in_flight = InFlight()
    in_flight.lease(items, time.monotonic() + 20)
    work = Work(ring, items)
    in_flight.hold([work])
    settler = Settler(store, app.tasks, in_flight)
    outcome: Outcome = Failed("no", ("ValueError",))
    settler.finish(work, [outcome])
    settler.tick(NOW)
    row = show(store, items[0].id)
    assert row["state"] == "failed"
    assert "ZeroDivisionError" in row["last_error"]


def test_an_end_whose_follow_up_cannot_be_put_goes_to_review_and_holds_nobody_back(store: Store) -> None:
    settler, _, (good, bad) = desk(store, 2)
    follow = replace(new("index"), queue=None)
    settler.finish(good, [Fingerprint("v1")])
    settler.finish(bad, [Fingerprint("v1", then=[follow])])
    settler.tick(NOW)
    assert fetch(store, good.items[0].id).state == "done"
    row = show(store, bad.items[0].id)
    assert (row["state"], row["outcome"]) == ("failed", "gave_up")
    assert row["last_error"].startswith("its result could not be written: ")
    assert counts(store) == {"done": 1, "failed": 1}
    assert leases(store) == {}


class Owing(Outages):
    """Has one failure to take back."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.changes = [change]

    @property
    def corrections(self) -> int:
        return len(self.changes)

    def take_back(self, unwritten: list[Change], now: datetime) -> None:
        unwritten += self.changes
        self.changes.clear()


def test_what_takes_failures_back_survives_a_database_that_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    (item,) = claim(store)
    failed = decide(item, Failed("no route"), NOW, Rules())
    store.settle([failed], [item.fence])
    settler = Settler(store, {}, InFlight(), Owing(excuse(item, failed, after(60), is_written=True)))
    with monkeypatch.context() as patch:
        patch.setattr(store, "settle", _unavailable)
        with pytest.raises(StoreUnavailable):
            settler.tick(NOW)
    assert len(settler) == 1, "it has something left to write"
    settler.tick(after(1))
    assert (fetch(store, item.id).attempt, len(settler)) == (0, 0)


def _unavailable(*_: Any) -> Any:
    raise StoreUnavailable("away")
