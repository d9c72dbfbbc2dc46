"""Survey: the earliest waiting item of each open queue, lane and rank."""

from duly.core.model import Failed, Line
from duly.store import Store
from tests.support import NOW, after, claim_one, head, heads, new, put, settle


def test_an_empty_table_has_no_heads(store: Store) -> None:
    assert heads(store) == []


def test_there_is_one_head_per_queue_lane_and_rank_and_it_is_the_earliest(store: Store) -> None:
    store.put(
        [
            new(queue=queue, rank=rank, due_at=after(seconds))
            for queue in ("b", "a", "c")
            for rank in (1, -1, 0)
            for seconds in (30, 10, 20)
        ]
    )
    assert sorted(heads(store), key=lambda each: (each.line.queue, each.rank)) == [
        head(queue, "main", rank, after(10), task="ring") for queue in "abc" for rank in (-1, 0, 1)
    ]


def test_retries_have_heads_of_their_own(store: Store) -> None:
    put(store)
    settle(store, claim_one(store), Failed("busy"))
    put(store, due_at=after(5))
    assert sorted(heads(store), key=lambda each: each.lane) == [
        head("ring", "main", 0, after(5)),
        head("ring", "retry", 0, after(60)),
    ]


def test_what_runs_is_not_surveyed(store: Store) -> None:
    put(store)
    claim_one(store)
    assert heads(store) == []


def test_a_paused_queue_is_left_out_and_those_around_it_are_not(store: Store) -> None:
    store.put([new(queue=queue) for queue in "abc"])
    store.pause("b", NOW)
    assert [each.line.queue for each in heads(store)] == ["a", "c"]
    store.resume("b")
    assert [each.line.queue for each in heads(store)] == ["a", "b", "c"]


def test_names_sort_by_bytes_and_none_is_passed_over(store: Store) -> None:
    names = ["B", "a", "ä", "z", "Z", "10", "9", "_", "漢", "a b", "a-b", "🙂", "\uff5e"]
    store.put([new(queue=name) for name in names])
    assert sorted(each.line.queue for each in heads(store)) == sorted(names)


def test_lines_are_told_apart_by_task_and_owner(store: Store) -> None:
    store.put([new(task, queue="q", owner=owner) for task in ("a", "b") for owner in (None, "ana", "eva")])
    assert [each.line for each in heads(store)] == [
        Line("q", task, owner) for task in ("a", "b") for owner in ("", "ana", "eva")
    ]


def test_any_number_of_lines_is_seen_portion_by_portion(store: Store) -> None:
    store.load(new(queue=f"q{n:05}", rank=n % 2, due_at=after(n)) for n in range(12_000))
    first, place = store.survey(most=1_000)
    assert (len(first), place is not None) == (1_000, True)
    seen = [each.line.queue for each in heads(store)]
    assert seen == [f"q{n:05}" for n in range(12_000)]


def test_a_portion_of_paused_queues_does_not_end_the_walk(store: Store) -> None:
    store.put([new(queue=f"a/{n}") for n in range(5)])
    store.put([new(queue="b")])
    store.pause("a", NOW)
    assert store.survey(most=3)[0] == []
    assert store.survey(most=3)[1] is not None
    assert [each.line.queue for each in heads(store)] == ["b"]


def test_a_glance_shows_what_fell_due_last_what_waits_longest_and_what_comes_next(store: Store) -> None:
    store.put([new(queue=f"q{n}", due_at=after(n)) for n in range(-20, 20) if n])
    found, next_at = store.glance(NOW, 2)
    assert [each.line.queue for each in found] == ["q-1", "q-2", "q-20", "q-19"]
    assert next_at == after(1)
    store.pause("q-1", NOW)
    assert [each.line.queue for each in store.glance(NOW, 100)[0]][:2] == ["q-2", "q-3"]
    assert store.glance(after(99), 1)[1] is None
