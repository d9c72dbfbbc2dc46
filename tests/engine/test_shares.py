from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duly.engine.shares import share_out
from duly.model import Head, Lane, Share
from tests.support import NOW


def head(queue: str, lane: Lane = "main", rank: int = 0) -> Head:
    return Head(queue, lane, rank, NOW)


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
