from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from duly.engine.shares import share_out
from duly.model import Head, Lane, Share
from tests.support import NOW, after


def head(queue: str, lane: Lane = "main", rank: int = 0, due_at: datetime = NOW) -> Head:
    return Head(queue, lane, rank, due_at)


def test_queues_get_equal_parts() -> None:
    shares = share_out([head("a"), head("b"), head("c")], 10)
    assert [(share.queue, share.limit) for share in shares] == [("a", 4), ("b", 3), ("c", 3)]


def test_retries_get_a_quarter_beside_fresh_work_and_all_of_it_alone() -> None:
    both = share_out([head("a"), head("a", "retry")], 8)
    assert [(share.lane, share.limit) for share in both] == [("main", 6), ("retry", 2)]
    assert share_out([head("a", "retry")], 8) == [Share("a", "retry", (0,), 8, (NOW,))]
    assert share_out([head("a")], 8) == [Share("a", "main", (0,), 8, (NOW,))]


def test_better_ranks_come_first_inside_a_share() -> None:
    (share,) = share_out([head("a", rank=5), head("a", rank=-1), head("a", rank=0)], 8)
    assert share.ranks == (-1, 0, 5)


def test_with_less_room_than_queues_everybody_is_served_in_turn() -> None:
    queues = [head(name) for name in "abcde"]
    served = [share.queue for turn in range(5) for share in share_out(queues, 1, turn)]
    assert sorted(served) == ["a", "b", "c", "d", "e"]


def test_with_room_for_one_neither_lane_starves() -> None:
    lanes = {share.lane for turn in range(8) for share in share_out([head("a"), head("a", "retry")], 1, turn)}
    assert lanes == {"main", "retry"}


def test_nothing_due_or_no_room_is_no_share() -> None:
    assert share_out([], 10) == []
    assert share_out([head("a")], 0) == []


def test_a_quarter_of_a_backlogs_queue_is_for_what_is_fresh() -> None:
    old = [head("a", due_at=after(-3600)), head("a", rank=1, due_at=after(-5))]
    fresh, late = share_out(old, 8, 0, after(-60))
    assert fresh == Share("a", "main", (0, 1), 2, (after(-60), after(-5)), is_fresh=True)
    assert late == Share("a", "main", (0, 1), 6, (after(-3600), after(-5)))


def test_without_a_backlog_there_is_nothing_to_split() -> None:
    assert share_out([head("a", due_at=after(-60))], 8, 0, after(-60)) == [Share("a", "main", (0,), 8, (after(-60),))]


def test_retries_are_not_split() -> None:
    (share,) = share_out([head("a", "retry", due_at=after(-3600))], 8, 0, after(-60))
    assert (share.limit, share.is_fresh) == (8, False)


def test_of_a_backlog_with_room_for_one_call_both_are_asked_for() -> None:
    for batch in (1, 10):
        fresh, late = share_out([head("a", due_at=after(-3600))], batch, 0, after(-60), batch)
        assert (fresh.is_fresh, fresh.limit, late.is_fresh, late.limit) == (True, batch, False, batch)


def test_batches_are_not_cut() -> None:
    due = [head("a", due_at=after(-3600)), head("a", "retry")]
    shares = share_out(due, 80, 0, after(-60), 10)
    assert [(share.lane, share.is_fresh, share.limit) for share in shares] == [
        ("main", True, 10), ("main", False, 50), ("retry", False, 20),
    ]  # fmt: skip
    lanes = [share.lane for turn in range(8) for share in share_out([head("a"), head("a", "retry")], 10, turn, NOW, 10)]
    assert (lanes.count("main"), lanes.count("retry")) == (6, 2), "one call has one lane"


heads = st.builds(head, st.sampled_from("abcdef"), st.sampled_from(["main", "retry"]), st.integers(-2, 2))


@given(st.lists(heads, min_size=1, max_size=30), st.integers(1, 50), st.integers(0, 100))
def test_shares_add_up_to_the_room_and_no_queue_is_more_than_one_ahead(due: list[Head], room: int, turn: int) -> None:
    shares = share_out(due, room, turn)
    assert sum(share.limit for share in shares) == room
    assert all(share.limit > 0 for share in shares)
    per_queue: dict[str, int] = {}
    for share in shares:
        per_queue[share.queue] = per_queue.get(share.queue, 0) + share.limit
    assert max(per_queue.values()) - min(per_queue.values()) <= 1
    assert len(per_queue) == min(room, len({each.queue for each in due}))
