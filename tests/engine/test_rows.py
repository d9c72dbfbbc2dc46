"""Who may have the next slot of a pool, worked out by hand."""

from __future__ import annotations

import time
from itertools import count

import pytest

from duly import Duly
from duly.core.model import Item
from duly.engine import rows as room
from duly.engine.rows import Row, Rows
from duly.engine.work import Work
from tests.support import NOW

ids = count(1)
app = Duly("sqlite:///unused.db")


@app.task
def ring() -> None: ...


def work(queue: str = "ring", owner: str | None = None) -> Work:
    item = Item(
        next(ids), "ring", queue, "main", 0, "running", NOW, NOW, None, "k", b"{}", 1, None, 0, 0, 0, 1, "w", NOW, None,
        owner=owner,
    )  # fmt: skip
    return Work(ring, [item])


def rows(size: int = 10, has_one_queue: bool = False) -> Rows:
    return Rows(size, has_one_queue=has_one_queue)


def start(rows_up: Rows, most: int = 100) -> list[tuple[str, str | None]]:
    """Start what may start; the queue and owner of each."""
    begun = []
    while len(begun) < most and (row := rows_up.enter(time.monotonic())) is not None:
        item = row.works.popleft().items[0]
        begun.append((item.queue, item.owner))
    return begun


@pytest.mark.parametrize(
    ("size", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (8, 6), (10, 7), (20, 15), (100, 75)]
)
def test_a_queue_alone_leaves_a_quarter_of_the_slots_free(size: int, most: int) -> None:
    one = rows(size)
    one.add(work() for _ in range(200))
    assert len(start(one, 200)) == most
    assert one.wanted("ring", None, 1) < 0


def test_the_next_ones_have_three_quarters_of_the_rest_and_whoever_has_nothing_the_last_slot() -> None:
    one = rows(10)
    began = []
    for queue in ("a", "b", "c", "d"):
        one.add(work(queue) for _ in range(20))
        began.append(len(start(one)))
    assert began == [7, 2, 1, 0]


def test_with_one_queue_and_no_owner_there_is_nobody_to_leave_a_slot_for() -> None:
    one = rows(10, has_one_queue=True)
    one.add(work() for _ in range(20))
    assert len(start(one)) == 10
    assert one.stuck(1) == 0
    other = rows(10, has_one_queue=True)
    assert other.wanted("ring", "ann", 1) == 7, "an owner is someone to share with"
    other.add(work() for _ in range(20))
    assert len(start(other)) == 7


def test_rows_take_turns() -> None:
    one = rows(20)
    one.add([*(work("a") for _ in range(5)), *(work("b") for _ in range(5))])
    assert [queue for queue, _ in start(one, 6)] == ["a", "b"] * 3


def test_an_owner_has_no_more_than_a_queue_and_others_find_a_slot_in_the_same_queue() -> None:
    one = rows(10)
    one.add(work("http", "ann") for _ in range(20))
    assert len(start(one)) == 7
    one.add(work("http", "bob") for _ in range(5))
    assert start(one) == [("http", "bob")]
    one.add(work("remind", "ann") for _ in range(5))
    assert start(one) == [("remind", "ann")], "her own other queue goes on too"
    one.add(work("remind", "ann") for _ in range(5))
    assert start(one) == [], "the last slot is for who has nothing at all"
    one.add([work("mail")])
    assert start(one) == [("mail", None)]


def test_what_ends_lets_the_next_one_start() -> None:
    one = rows(4)
    one.add(work("a") for _ in range(10))
    (row,) = {one.enter(0.0) for _ in range(3)}
    assert isinstance(row, Row)
    assert one.enter(0.0) is None
    one.leave(row, 1)
    assert one.enter(0.0) is row


def test_what_may_not_start_counts_for_nothing_and_is_given_back_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    one = rows(10)
    one.add(work("a") for _ in range(30))
    start(one)
    assert (len(one), one.stuck(1)) == (23, 23)
    one.add([work("b")])
    assert one.stuck(1) == 23, "what could start is in nobody's way"
    assert one.take_stale() == []
    monkeypatch.setattr(room, "PATIENCE", -1.0)
    assert len(one.take_stale()) == 24
    assert len(one) == 0
    assert one.wanted("a", None, 1) == 0, "so nobody asks for it again"
    assert one.wanted("b", None, 1) == 2


def test_a_queue_that_goes_fast_may_wait_here_with_a_tenth_of_a_second_of_its_work() -> None:
    one = rows(10)
    one.add(work("a") for _ in range(10))
    row = one.enter(0.0)
    assert row is not None
    row.queue._seen = one.all._seen = (time.monotonic() - 1, 0)
    one.leave(row, 1_000)
    assert 50 <= one.lookahead("a", None) <= 100
    assert 0 < one.lookahead("c", None) < one.lookahead("a", None), "who has nothing here may be as quick as the others"


def test_a_queue_that_is_alone_has_its_whole_pace_ahead_also_when_nothing_waits() -> None:
    one = rows(has_one_queue=True)
    one.add([work("a")])
    row = one.enter(0.0)
    assert row is not None
    row.works.clear()
    one.all._seen = (time.monotonic() - 1, 0)
    one.leave(row, 1_000)
    assert 50 <= one.lookahead("a", None) <= 100


def test_who_ran_out_of_work_a_moment_ago_is_as_quick_as_before() -> None:
    one = rows(10)
    one.add([work("a")])
    row = one.enter(0.0)
    assert row is not None
    row.works.clear()
    row.queue._seen = one.all._seen = (time.monotonic() - 1, 0)
    one.leave(row, 1_000)
    assert 50 <= one.lookahead("a", None) <= 100


def test_queues_that_have_nothing_here_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MANY", 10)
    one = rows(1_000)
    for n in range(500):
        one.add([work(f"ring/{n}")])
        row = one.enter(0.0)
        assert row is not None
        row.works.clear()
        if n:
            one.leave(row)  # the first one stays
    assert len(one._rows) <= 12
    assert one.all.running == 1
    assert one._queues["ring/0"].running == 1
