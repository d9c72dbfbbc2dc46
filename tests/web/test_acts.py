"""Acts on all rows of a filter, in virtual time: counted first, done in portions, at a rate, in spite of crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any

import pytest

from duly.core.decide import decide
from duly.core.errors import WrongState
from duly.core.model import Crashed
from duly.verbs import LOCAL, acts
from tests.support import query
from tests.web.conftest import LATER, START, House, unreadable_rows


@pytest.fixture(autouse=True)
def portions_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "PORTION", 3)


def order(house: House, action: str, filter: dict[str, Any], **more: Any) -> int:
    answer = house.ana.post("/api/acts", json={"action": action, "filter": filter, **more})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def told(house: House, act_id: int) -> tuple[str, int, int, int]:
    act = house.ana.get(f"/api/acts/{act_id}").json()
    return act["state"], act["total"], act["seen"], act["changed"]


def states(house: House, ids: list[int]) -> list[str]:
    return [house.world.item(each).state for each in ids]


class Died(BaseException):
    """A process that is gone from one moment to the next."""


def die_after(monkeypatch: pytest.MonkeyPatch, portions: int) -> None:
    """Let the process die while it writes the portion after so many."""
    real, left = acts._apply, [portions]

    def apply(*given: Any) -> None:
        if not left[0]:
            monkeypatch.setattr(acts, "_apply", real)
            raise Died
        left[0] -= 1
        real(*given)

    monkeypatch.setattr(acts, "_apply", apply)


def test_rows_are_counted_before_anything_is_done(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        house.put()
    house.put(house.bob)
    asked = {"action": "cancel", "filter": {"state": "waiting", "task": "echo"}}
    assert house.ana.post("/api/acts/count", json=asked).json() == {"count": 4, "isMore": False}
    assert house.root.post("/api/acts/count", json=asked).json()["count"] == 5
    assert house.root.post("/api/acts/count?userId=bob", json=asked).json()["count"] == 1
    monkeypatch.setattr(acts, "COUNTED", 2)
    assert house.ana.post("/api/acts/count", json=asked).json() == {"count": 2, "isMore": True}


def test_rows_are_counted_while_no_transaction_is_open(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others can write meanwhile, also where there is one writer at a time."""
    house.put()
    opened: list[str] = []
    store, count, transaction = house.app.internals.store, acts.Acts._count, house.app.internals.store.transaction

    @contextmanager
    def noted(*given: Any) -> Iterator[Any]:
        with transaction(*given) as connection:
            opened.append("begun")
            yield connection
        opened.append("over")

    def counting(*given: Any) -> Any:
        opened.append("counted")
        return count(*given)

    monkeypatch.setattr(store, "transaction", noted)
    monkeypatch.setattr(acts.Acts, "_count", counting)
    order(house, "cancel", {"state": "waiting"})
    assert opened.count("counted") == 1
    before = opened[: opened.index("counted")]
    assert before.count("begun") == before.count("over")


def test_an_act_goes_through_all_portions_and_touches_nothing_that_came_later(house: House) -> None:
    ids = [house.put() for _ in range(8)]
    act_id = order(house, "cancel", {"state": "waiting"}, reason="no more")
    assert told(house, act_id) == ("running", 8, 0, 0)
    late = house.put()
    house.world.run()
    assert told(house, act_id) == ("done", 8, 8, 8)
    assert states(house, ids) == ["cancelled"] * 8
    assert states(house, [late]) == ["waiting"]
    (item,) = house.world.items(task="duly.acts")
    assert (item.state, item.result) == ("done", {"seen": 8, "changed": 8})
    assert item.progress["done"] == item.progress["total"] == 8


def test_more_rows_than_are_counted_are_still_all_meant(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "COUNTED", 2)
    ids = [house.put() for _ in range(5)]
    act_id = order(house, "cancel", {"state": "waiting"})
    house.world.run()
    assert states(house, ids) == ["cancelled"] * 5
    assert told(house, act_id) == ("done", 2, 5, 5)


def test_an_act_that_is_cancelled_stops_where_it_stands(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [house.put() for _ in range(7)]
    act_id = order(house, "cancel", {"state": "waiting"})
    real = acts._apply

    def apply(*given: Any) -> None:
        real(*given)
        monkeypatch.setattr(acts, "_apply", real)
        assert house.ana.post(f"/api/acts/{act_id}/cancel").json()["state"] == "cancelled"

    monkeypatch.setattr(acts, "_apply", apply)
    house.world.run()
    assert told(house, act_id) == ("cancelled", 7, 3, 3)
    assert states(house, ids) == ["cancelled"] * 3 + ["waiting"] * 4
    again = house.ana.post(f"/api/acts/{act_id}/cancel")
    assert (again.status_code, again.json()["detail"]) == (409, f"act {act_id} is over")


def test_a_cancel_in_the_middle_of_a_portion_undoes_that_portion(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [house.put() for _ in range(2)]
    act_id = order(house, "cancel", {"state": "waiting"})
    real = acts._apply

    def apply(*given: Any) -> None:
        house.app.internals.verbs.acts.cancel(LOCAL, act_id)
        real(*given)

    monkeypatch.setattr(acts, "_apply", apply)
    house.world.run()
    assert told(house, act_id) == ("cancelled", 2, 0, 0)
    assert states(house, ids) == ["waiting"] * 2


def test_after_a_crash_between_portions_it_goes_on_and_counts_nothing_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [house.put() for _ in range(8)]
    act_id = order(house, "cancel", {"state": "waiting"})
    die_after(monkeypatch, portions=2)
    with pytest.raises(Died):
        house.world.run()
    assert told(house, act_id) == ("running", 8, 6, 6)

    house.clock.set(START + timedelta(minutes=5))  # the lease has run out, and whoever finds it gives the item back
    _rescue(house)
    house.world.advance(minutes=10)
    assert told(house, act_id) == ("done", 8, 8, 8)
    assert states(house, ids) == ["cancelled"] * 8


def _rescue(house: House) -> None:
    now = house.clock.now()
    found, closed = house.app.internals.store.expired(now, 10)
    assert [item.task for item in found] == [acts.TASK]
    changes = [decide(item, Crashed("the worker died"), now, house.app.task_named(item.task).rules) for item in found]
    house.app.internals.store.settle(changes, [*closed, *(item.fence for item in found)])


def test_two_that_carry_out_the_same_act_do_it_once(house: House) -> None:
    ids = [house.put() for _ in range(7)]
    act_id = order(house, "cancel", {"state": "waiting"})
    one, other = (
        acts.portions(house.app.internals.verbs.context, act_id),
        acts.portions(house.app.internals.verbs.context, act_id),
    )
    for _ in zip(one, other, strict=False):
        pass
    assert told(house, act_id) == ("done", 7, 7, 7)
    assert states(house, ids) == ["cancelled"] * 7


def test_a_stale_portion_is_done_again_from_where_it_stands(house: House) -> None:
    [house.put() for _ in range(4)]
    act_id = order(house, "cancel", {"state": "waiting"})
    next(acts.portions(house.app.internals.verbs.context, act_id))
    stale = house.app.internals.verbs.acts.get(LOCAL, act_id)
    list(acts.portions(house.app.internals.verbs.context, act_id))
    with pytest.raises(acts._Outrun):
        acts._apply(house.app.internals.verbs.context, stale, [1], [], 1)
    assert told(house, act_id) == ("done", 4, 4, 4)


def test_what_is_revived_at_a_rate_is_due_one_after_the_other(house: House) -> None:
    ids = [house.fail() for _ in range(7)]
    waiting = house.put()
    order(house, "retry", {"state": "failed"}, rate=0.5)
    due = _revive_late(house, ids)
    begun = START + timedelta(hours=1)
    assert due == [begun + timedelta(seconds=2 * n) for n in range(7)]
    assert house.world.item(waiting).due_at.isoformat() == LATER


def test_rows_that_are_left_alone_leave_no_gap_and_no_crowd(house: House) -> None:
    ids = []
    for _ in range(5):
        ids.append(house.fail())
        done = house.put(at=None)
        house.world.run()
        assert states(house, [done]) == ["done"]
    order(house, "retry", {"task": "echo"}, rate=1)
    due = _revive_late(house, ids)
    assert due == [START + timedelta(hours=1, seconds=n) for n in range(5)]


def _revive_late(house: House, ids: list[int]) -> list[Any]:
    """Carry the act out an hour after it was ordered: a rate counts from when it begins."""
    house.clock.set(START + timedelta(hours=1))
    (act,) = house.app.internals.verbs.acts.page(LOCAL)
    list(acts.portions(house.app.internals.verbs.context, act.id))
    return [house.world.item(each).due_at.astimezone(UTC) for each in ids]


def test_without_a_rate_all_are_due_now(house: House) -> None:
    ids = [house.fail() for _ in range(4)]
    assert carry_out(house, "retry", {"state": "failed"}) == ("done", 4, 4, 4)
    # They ran at once, and failed again.
    assert [house.world.item(each).attempt for each in ids] == [1] * 4
    assert states(house, ids) == ["failed"] * 4


def carry_out(house: House, action: str, filter: dict[str, Any]) -> tuple[str, int, int, int]:
    act_id = order(house, action, filter)
    house.world.run()
    return told(house, act_id)


def test_what_is_discarded_leaves_review(house: House) -> None:
    ids = [house.fail() for _ in range(4)]
    (group,) = house.ana.get("/api/review").json()["items"]
    assert carry_out(house, "discard", {"errorGroup": group["id"]}) == ("done", 4, 4, 4)
    assert house.ana.get("/api/review").json()["items"] == []
    assert "failed" not in states(house, ids)


def test_a_row_whose_key_was_taken_meanwhile_does_not_stop_the_others(house: House) -> None:
    first = house.put(key="k", args={"text": "broken"}, at=None)
    house.world.run()
    second = house.put(key="k", args={"text": "broken"}, at=None)
    house.world.run()
    others = [house.fail() for _ in range(3)]
    live = house.put(key="k")
    assert states(house, [first, second, live]) == ["failed", "failed", "waiting"]
    act_id = order(house, "retry", {"state": "failed"}, rate=0.001)
    (act,) = house.app.internals.verbs.acts.page(LOCAL, most=1)
    list(acts.portions(house.app.internals.verbs.context, act.id))
    assert told(house, act_id) == ("done", 5, 5, 3)
    assert states(house, [first, second, *others]) == ["failed", "failed", "waiting", "waiting", "waiting"]


def test_rows_that_could_not_be_read_do_not_stop_the_others(house: House) -> None:
    first, unread, last = house.fail(house.root), unreadable_rows(house, 2), house.fail(house.root)
    act_id = house.root.post("/api/acts", json={"action": "retry", "filter": {"state": "failed"}}).json()["id"]
    list(acts.portions(house.app.internals.verbs.context, act_id))
    told = house.root.get(f"/api/acts/{act_id}").json()
    assert (told["state"], told["seen"], told["changed"]) == ("done", 4, 2)
    assert states(house, [first, *unread, last]) == ["waiting", "failed", "failed", "waiting"]


def test_acts_are_about_no_other_acts(house: House) -> None:
    house.put()
    first = order(house, "cancel", {"state": "waiting"})
    answer = house.root.post("/api/acts", json={"action": "cancel", "filter": {}, "all": True})
    assert answer.json()["total"] == 1
    house.world.run()
    assert told(house, first)[0] == "done"
    assert house.root.get(f"/api/acts/{answer.json()['id']}").json()["state"] == "done"


def test_an_act_is_listed_newest_first_and_audited(house: House) -> None:
    first, second = order(house, "cancel", {}, all=True), order(house, "discard", {"state": "failed"}, reason="old")
    assert [act["id"] for act in house.ana.get("/api/acts").json()["items"]] == [second, first]
    (note,) = house.audit(f"act:{second}")
    assert (note["actor"], note["action"], note["details"]["action"]) == ("ana", "act.ordered", "discard")
    house.ana.post(f"/api/acts/{first}/cancel")
    assert house.audit(f"act:{first}")[0]["action"] == "act.cancelled"
    assert query(house.app.internals.store, "select count(*) from duly_item where task = 'duly.acts'") == [(2,)]
    with pytest.raises(WrongState):
        house.app.internals.verbs.acts.cancel(LOCAL, first)


def test_the_table_of_before_answers_until_there_is_a_first_version(house: House) -> None:
    act_id = house.ana.post("/api/acts", json={"action": "cancel", "filter": {"state": "waiting"}}).json()["id"]
    assert query(house.app.internals.store, "select id, action from duly_bulk") == [(act_id, "cancel")]
