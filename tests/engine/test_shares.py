from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from duly.engine.shares import Kind, Turns, evenly, kind_of, share_out
from duly.model import Head
from tests.support import NOW, after, head, share


def test_room_is_split_into_equal_parts() -> None:
    assert evenly(10, 3) == [4, 3, 3]
    assert evenly(2, 3) == [1, 1, 0]


def test_retries_get_a_quarter_beside_fresh_work_and_all_of_it_alone() -> None:
    both = share_out([head("a"), head("a", "retry")], 8, Turns())
    assert [(each.lane, each.limit) for each in both] == [("main", 6), ("retry", 2)]
    assert share_out([head("a", "retry")], 8, Turns()) == [share("a", "retry", limit=8, floors=(NOW,))]
    assert share_out([head("a")], 8, Turns()) == [share("a", limit=8, floors=(NOW,))]


def test_better_ranks_come_first_inside_a_share() -> None:
    (one,) = share_out([head("a", rank=5), head("a", rank=-1), head("a", rank=0)], 8, Turns())
    assert one.ranks == (-1, 0, 5)


def test_nothing_due_or_no_room_is_no_share() -> None:
    assert share_out([], 10, Turns()) == []
    assert share_out([head("a")], 0, Turns()) == []


def test_a_quarter_of_a_backlogs_line_is_for_what_is_fresh() -> None:
    old = [head("a", due_at=after(-3600)), head("a", rank=1, due_at=after(-5))]
    late, fresh = share_out(old, 8, Turns(), after(-60))
    assert fresh == share("a", ranks=(0, 1), limit=2, floors=(after(-60), after(-5)), is_fresh=True)
    assert late == share("a", ranks=(0, 1), limit=6, floors=(after(-3600), after(-5)))


def test_without_a_backlog_there_is_nothing_to_split() -> None:
    assert share_out([head("a", due_at=after(-60))], 8, Turns(), after(-60)) == [
        share("a", limit=8, floors=(after(-60),))
    ]


def test_retries_are_not_split() -> None:
    (one,) = share_out([head("a", "retry", due_at=after(-3600))], 8, Turns(), after(-60))
    assert (one.limit, one.is_fresh) == (8, False)


def test_batches_are_not_cut() -> None:
    due = [head("a", due_at=after(-3600)), head("a", "retry")]
    shares = share_out(due, 80, Turns(), after(-60), 10)
    assert sorted((each.lane, each.is_fresh, each.limit) for each in shares) == [
        ("main", False, 40), ("main", True, 20), ("retry", False, 20),
    ]  # fmt: skip


def served(due: list[Head], rounds: int, room: int = 1, batch: int = 1) -> Counter[Kind]:
    """Who gets how many calls when there is room for so many at a time, again and again."""
    turns, got = Turns(), Counter[Kind]()
    for _ in range(rounds):
        first = share_out(due, room * batch, turns, after(-60), batch)[0]
        turns.served(kind_of(first), room)
        got[kind_of(first)] += room
    return got


def test_over_time_each_kind_has_its_part_though_there_is_room_for_one_call_only() -> None:
    for batch in (1, 9, 10):
        both = served([head("a"), head("a", "retry")], 400, batch=batch)
        assert both == {"main": 300, "retry": 100}
        late = [head("a", due_at=after(-3600)), head("a", "retry")]
        assert served(late, 1_600, batch=batch) == {"main": 900, "fresh": 300, "retry": 400}


def test_nobody_waits_long_for_their_turn() -> None:
    turns, waits, since = Turns(), [], 0
    for _ in range(100):
        first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
        turns.served(kind_of(first), 1)
        since = 0 if first.lane == "retry" else since + 1
        waits.append(since)
    assert max(waits) <= 3


def test_who_was_away_does_not_make_up_for_it() -> None:
    turns = Turns()
    for _ in range(1_000):
        share_out([head("a")], 1, turns)
        turns.served("main", 1)
    got = Counter[Kind]()
    for _ in range(40):
        first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
        turns.served(kind_of(first), 1)
        got[kind_of(first)] += 1
    assert got == {"main": 30, "retry": 10}


def test_what_found_nothing_does_not_lose_its_turn() -> None:
    turns = Turns()
    first = share_out([head("a"), head("a", "retry")], 1, turns)[0]
    again = share_out([head("a"), head("a", "retry")], 1, turns)[0]
    assert first == again


def test_many_calls_are_split_by_their_parts() -> None:
    shares = share_out([head("a"), head("a", "retry")], 1_000, Turns())
    assert {each.lane: each.limit for each in shares} == {"main": 750, "retry": 250}


def test_to_be_told_of_a_kind_that_is_not_there_changes_nothing() -> None:
    turns = Turns()
    turns.served("retry", 5)
    assert turns.split(("main",), 1) == {"main": 1}


places = st.builds(head, st.just("a"), st.sampled_from(["main", "retry"]), st.integers(-2, 2))


@given(st.lists(places, min_size=1, max_size=30), st.integers(1, 200), st.integers(1, 12))
def test_shares_add_up_to_the_room(due: list[Head], room: int, batch: int) -> None:
    shares = share_out(due, room, Turns(), NOW, batch)
    assert sum(each.limit for each in shares) == room
    assert all(each.limit > 0 for each in shares)
