"""The herald: one put in a while carries its own news, the rest is told together, afterwards."""

import queue
from datetime import UTC, datetime, timedelta

import pytest

from duly.core.clock import EPOCH
from duly.core.model import Head, Line
from duly.store.postgres.herald import Herald, head_of, news_of
from tests.support import NOW, new

PATIENCE = 10


def test_only_one_put_in_a_pause_carries_its_own_news() -> None:
    herald = Herald(lambda news: None, pause=3600)
    assert [herald.lead() for _ in range(3)] == [True, False, False]
    eager = Herald(lambda news: None, pause=0)
    assert [eager.lead() for _ in range(3)] == [True, True, True]


def test_trailing_news_is_told_together_and_once() -> None:
    told: queue.Queue[list[str]] = queue.Queue()
    herald = Herald(told.put, pause=0.001)
    for _ in range(2):
        with herald._lock:  # the thread cannot speak until all is said
            herald._pending.update(("b", "a"))
        herald.trail(["a", "c"])
        assert told.get(timeout=PATIENCE) == ["a", "b", "c"]
    herald.close()
    assert told.empty()


def test_no_news_starts_no_thread() -> None:
    herald = Herald(lambda news: None)
    herald.trail([])
    assert herald._thread is None
    herald.close()


def test_closing_tells_what_is_left_and_ends_the_thread() -> None:
    told: queue.Queue[list[str]] = queue.Queue()
    herald = Herald(told.put, pause=0)
    herald.trail(["a"])
    herald.close()
    assert told.get(timeout=PATIENCE) == ["a"]
    herald._thread.join(PATIENCE)
    assert not herald._thread.is_alive()
    assert told.empty()


def test_news_that_cannot_be_told_harms_nobody() -> None:
    def send(news: list[str]) -> None:
        raise ConnectionError("the database is away")

    herald = Herald(send)
    herald.trail(["a"])
    herald.flush()
    herald.close()


@pytest.mark.parametrize("queue_name", ["ring", "a b", "tab\there", "漢"])
def test_news_tells_the_head_that_a_put_made(queue_name: str) -> None:
    told = head_of(news_of(new(queue=queue_name, rank=-7, due_at=NOW)))
    assert told == Head(Line(queue_name, "ring"), "main", -7, NOW)
    assert head_of(news_of(new(due_at=None))).due_at == EPOCH, "no time means at once"


def test_only_what_is_due_soon_is_news() -> None:
    now = datetime.now(UTC)
    assert news_of(new(due_at=now + timedelta(seconds=30)))
    assert news_of(new(due_at=now + timedelta(seconds=90))) is None


@pytest.mark.parametrize("text", ["", "hello", "1\t2", "x\t0\tq", "0\tx\tq", f"{10**30}\t0\tq"])
def test_news_that_is_not_ours_is_not_read(text: str) -> None:
    assert head_of(text) is None
