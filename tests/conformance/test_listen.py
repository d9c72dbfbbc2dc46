"""Watch: tells of what others put, and stops when told to."""

import queue
import threading
from collections.abc import Iterator

import pytest

from duly.core.model import Head, NewItem
from duly.store import Store
from duly.store.contract import News
from tests.support import is_sqlite, new

PATIENCE = 10


@pytest.fixture
def heard(store: Store) -> Iterator[queue.Queue[News]]:
    """What a watcher on `store` is told, once it listens."""
    told: queue.Queue[News] = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=store.listen, args=(told.put, stop))
    thread.start()
    assert told.get(timeout=PATIENCE) is None, "a watcher begins by looking"
    yield told
    stop.set()
    store.put([due_now()])  # so that it need not wait for its own next look
    thread.join(PATIENCE)
    assert not thread.is_alive(), "a watcher stops when told to"


def due_now(n: int = 0) -> NewItem:
    return new(f"ring{n}", due_at=None, rank=2)


@pytest.mark.parametrize("count", [1, 3], ids=["one", "many"])
def test_a_put_by_another_store_is_told(store: Store, other: Store, heard: queue.Queue[News], count: int) -> None:
    other.put([due_now() for _ in range(count)])
    news = heard.get(timeout=PATIENCE)
    if not is_sqlite(store):
        assert news is not None
        assert (news.line.queue, news.lane, news.rank) == ("ring0", "main", 2)


def test_a_load_by_another_store_is_told(store: Store, other: Store, heard: queue.Queue[News]) -> None:
    other.load(due_now() for _ in range(10))
    heard.get(timeout=PATIENCE)


def test_every_queue_of_a_burst_is_told(store: Store, other: Store, heard: queue.Queue[News]) -> None:
    for n in range(20):
        other.put([due_now(n)])
    if is_sqlite(store):
        heard.get(timeout=PATIENCE)
        return
    wanted = {f"ring{n}" for n in range(20)}
    while wanted:
        news = heard.get(timeout=PATIENCE)
        assert isinstance(news, Head)
        wanted.discard(news.line.queue)
