"""Survey: the earliest waiting item of each open queue, lane and rank."""

from duly.model import Failed, Head
from duly.store import Store
from tests.support import NOW, after, claim_one, new, put, settle


def test_an_empty_table_has_no_heads(store: Store) -> None:
    assert store.survey() == []


def test_there_is_one_head_per_queue_lane_and_rank_and_it_is_the_earliest(store: Store) -> None:
    store.put(
        [
            new(queue=queue, rank=rank, due_at=after(seconds))
            for queue in ("b", "a", "c")
            for rank in (1, -1, 0)
            for seconds in (30, 10, 20)
        ]
    )
    assert sorted(store.survey(), key=lambda head: (head.queue, head.rank)) == [
        Head(queue, "main", rank, after(10)) for queue in "abc" for rank in (-1, 0, 1)
    ]


def test_retries_have_heads_of_their_own(store: Store) -> None:
    put(store)
    settle(store, claim_one(store), Failed("busy"))
    put(store, due_at=after(5))
    assert sorted(store.survey(), key=lambda head: head.lane) == [
        Head("ring", "main", 0, after(5)),
        Head("ring", "retry", 0, after(60)),
    ]


def test_what_runs_is_not_surveyed(store: Store) -> None:
    put(store)
    claim_one(store)
    assert store.survey() == []


def test_a_paused_queue_is_left_out_and_those_around_it_are_not(store: Store) -> None:
    store.put([new(queue=queue) for queue in "abc"])
    store.pause("b", NOW)
    assert [head.queue for head in store.survey()] == ["a", "c"]
    store.resume("b")
    assert [head.queue for head in store.survey()] == ["a", "b", "c"]


def test_names_sort_by_bytes_and_none_is_passed_over(store: Store) -> None:
    names = ["B", "a", "ä", "z", "Z", "10", "9", "_", "漢", "a b", "a-b", "🙂", "\uff5e"]
    store.put([new(queue=name) for name in names])
    assert sorted(head.queue for head in store.survey()) == sorted(names)
