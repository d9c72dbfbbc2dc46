"""Load: any number of items from a stream, all or none."""

from collections.abc import Iterator

import pytest

from duly.core.errors import KeyConflict
from duly.core.model import NewItem
from duly.store import Store
from tests.support import after, claim, counts, fetch, new, put, query, share

AWKWARD = [
    rb'{"a":"back\\slash \\N \\. \"quoted\" \t \n \r \u0007"}',
    '{"a":"ž 漢 🙂   \x7f"}'.encode(),
    b'{\n\t"pretty": "printed",\r\n\t"over": "lines"\n}',
    b'"\\\\."',
    b"{}",
    b"null",
]


def test_a_stream_of_thousands_goes_in_whole(store: Store) -> None:
    def rows() -> Iterator[NewItem]:
        for n in range(12_000):
            yield new(args={"n": n}, due_at=after(n), rank=n % 3, max_attempts=n % 2 or None)

    assert store.load(rows()) == 12_000
    (row,) = query(store, "select count(*), count(distinct execution_key), count(max_attempts) from duly_item")
    assert row == (12_000, 12_000, 6_000)
    texts = [args for (args,) in query(store, "select cast(args as text) from duly_item order by id")]
    assert texts == [f'{{"n":{n}}}' for n in range(12_000)]


def test_a_loaded_item_is_as_good_as_a_put_one(store: Store) -> None:
    store.load([new(args={"a": 1}, rank=2, max_attempts=5, trace="00-ab-cd-01", due_at=after(1))])
    (item,) = claim(store, share(ranks=(2,)), now=after(1))
    assert (item.args, item.rank, item.max_attempts, item.trace) == (b'{"a":1}', 2, 5, "00-ab-cd-01")
    assert (item.planned_at, item.due_at, item.key) == (after(1), after(1), None)


def test_loading_nothing_loads_nothing(store: Store) -> None:
    assert store.load(iter(())) == 0
    assert counts(store) == {}


@pytest.mark.parametrize("key", [None, "k"], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize("args", AWKWARD, ids=range(len(AWKWARD)))
def test_json_text_survives_byte_for_byte(store: Store, args: bytes, key: str | None) -> None:
    store.load([new(args=args, key=key)])
    ((item_id,),) = query(store, "select id from duly_item")
    assert fetch(store, item_id).args == args


def test_names_and_traces_survive_with_any_character(store: Store) -> None:
    store.load([new("back\\slash\ttab", queue="line\nfeed\\N", trace="\\N")])
    ((item_id,),) = query(store, "select id from duly_item")
    item = fetch(store, item_id)
    assert (item.task, item.queue, item.trace) == ("back\\slash\ttab", "line\nfeed\\N", "\\N")


def test_keyed_rows_in_the_stream_count_only_when_they_are_new(store: Store) -> None:
    put(store, key="7", args={"n": 7})
    rows = [new(args={"n": n}, key=str(n)) for n in range(20)]
    assert store.load([*rows, new(), *rows]) == 20
    assert counts(store) == {"waiting": 21}


def test_a_conflict_late_in_the_stream_takes_everything_back(store: Store) -> None:
    put(store, key="taken", args={"a": 1})
    rows = (new(args={"n": n}, key="taken" if n == 6_000 else None) for n in range(6_001))
    with pytest.raises(KeyConflict, match="taken"):
        store.load(rows)
    assert counts(store) == {"waiting": 1}


def test_a_stream_that_breaks_half_way_leaves_nothing(store: Store) -> None:
    def rows() -> Iterator[NewItem]:
        for _ in range(7_000):
            yield new()
        raise RuntimeError("line 7001 is broken")

    with pytest.raises(RuntimeError, match="line 7001"):
        store.load(rows())
    assert counts(store) == {}
    assert put(store), "and the store goes on"
