from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from duly.core.model import Head, Share
from duly.engine.shares import LineTurns, evenly, share_out
from tests.support import NOW, after, head, share


def test_room_is_split_into_equal_parts() -> None:
    assert evenly(10, 3) == [4, 3, 3]
    assert evenly(2, 3) == [1, 1, 0]


def test_retries_get_a_quarter_beside_fresh_work_and_all_of_it_alone() -> None:
    both = share_out([head("a"), head("a", "retry")], 8, LineTurns())
    assert [(each.lane, each.limit) for each in both] == [("main", 6), ("retry", 2)]
    assert share_out([head("a", "retry")], 8, LineTurns()) == [share("a", "retry", limit=8, floors=(NOW,))]
    assert share_out([head("a")], 8, LineTurns()) == [share("a", limit=8, floors=(NOW,))]


def test_better_ranks_come_first_inside_a_share() -> None:
    (one,) = share_out([head("a", rank=5), head("a", rank=-1), head("a", rank=0)], 8, LineTurns())
    assert one.ranks == (-1, 0, 5)


def test_nothing_due_or_no_room_is_no_share() -> None:
    assert share_out([], 10, LineTurns()) == []
    assert share_out([head("a")], 0, LineTurns()) == []


def test_a_quarter_of_a_backlogs_line_is_for_what_is_fresh() -> None:
    old = [head("a", due_at=after(-3600)), head("a", rank=1, due_at=after(-5))]
    late, fresh = share_out(old, 8, LineTurns(), after(-60))
    assert fresh == share("a", ranks=(0, 1), limit=2, floors=(after(-60), after(-5)), is_fresh=True)
    assert late == share("a", ranks=(0, 1), limit=6, floors=(after(-3600), after(-5)))


def test_without_a_backlog_there_is_nothing_to_split() -> None:
    assert share_out([head("a", due_at=after(-60))], 8, LineTurns(), after(-60)) == [
        share("a", limit=8, floors=(after(-60),))
    ]


def test_retries_are_not_split() -> None:
    (one,) = share_out([head("a", "retry", due_at=after(-3600))], 8, LineTurns(), after(-60))
    assert (one.limit, one.is_fresh) == (8, False)


def test_batches_are_not_cut() -> None:
    due = [head("a", due_at=after(-3600)), head("a", "retry")]
    shares = share_out(due, 80, LineTurns(), after(-60), 10)
    assert sorted((each.lane, each.is_fresh, each.limit) for each in shares) == [
        ("main", False, 40), ("main", True, 20), ("retry", False, 20),
    ]  # fmt: skip


def kind_of(each: Share) -> str:
    return "fresh" if each.is_fresh else each.lane


def served(due: list[Head], rounds: int, room: int = 1, batch: int = 1) -> Counter[str]:
    """Who gets how many calls when there is room for so many at a time, again and again."""
    turns, got = LineTurns(), Counter[str]()
    for _ in range(rounds):
        first = share_out(due, room * batch, turns, after(-60), batch)[0]
        turns.served(first, room)
        got[kind_of(first)] += room
    return got


def test_over_time_each_kind_has_its_part_though_there_is_room_for_one_call_only() -> None:
    for batch in (1, 9, 10):
        both = served([head("a"), head("a", "retry")], 400, batch=batch)
        assert both == {"main": 300, "retry": 100}
        late = [head("a", due_at=after(-3600)), head("a", "retry")]
        assert served(late, 1_600, batch=batch) == {"main": 900, "fresh": 300, "retry": 400}


def test_nobody_waits_long_for_their_turn() -> None:
    turns, waits, since = LineTurns(), [], 0
    for _ in range(100):
        first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
        turns.served(first, 1)
        since = 0 if first.lane == "retry" else since + 1
        waits.append(since)
    assert max(waits) <= 3


def test_who_was_away_does_not_make_up_for_it() -> None:
    turns = LineTurns()
    for _ in range(1_000):
        turns.served(share_out([head("a")], 1, turns)[0], 1)
    got = Counter[str]()
    for _ in range(40):
        first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
        turns.served(first, 1)
        got[kind_of(first)] += 1
    assert got == {"main": 30, "retry": 10}


def test_what_found_nothing_does_not_lose_its_turn() -> None:
    turns = LineTurns()
    first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
    again = share_out([head("a"), head("a", "retry")], 1, turns)[0]
    assert first == again


def test_many_calls_are_split_by_their_parts() -> None:
    shares = share_out([head("a"), head("a", "retry")], 1_000, LineTurns())
    assert {each.lane: each.limit for each in shares} == {"main": 750, "retry": 250}


def test_to_be_told_of_a_lane_that_is_not_there_changes_nothing() -> None:
    turns = LineTurns()
    turns.served(share("a", "retry"), 5)
    assert turns.lanes.split(("main", "retry"), 1) == {"main": 1, "retry": 0}


def test_a_backlog_without_anything_fresh_takes_nothing_from_retries() -> None:
    """What is fresh has its turn within the main lane, and gives it up when there is nothing."""
    turns, got = LineTurns(), Counter[str]()
    for _ in range(400):
        due = [head("a", due_at=after(-3600)), head("a", "retry")]
        (first,) = share_out(due, 1, turns, after(-60))
        if first.is_fresh:
            (first,) = share_out(due, 1, turns)
        turns.served(first, 1)
        got[first.lane] += 1
    assert got == {"main": 300, "retry": 100}


places = st.builds(head, st.just("a"), st.sampled_from(["main", "retry"]), st.integers(-2, 2))


@given(st.lists(places, min_size=1, max_size=30), st.integers(1, 200), st.integers(1, 12))
def test_shares_add_up_to_the_room(due: list[Head], room: int, batch: int) -> None:
    shares = share_out(due, room, LineTurns(), NOW, batch)
    assert sum(each.limit for each in shares) == room
    assert all(each.limit > 0 for each in shares)
