"""Waiting for an item to end: woken by news of it, one look for all who wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from duly import NEVER, Duly
from duly.core.errors import DoesNotExist, InputError, ItemFailed, StoreUnavailable, WrongState
from duly.core.model import Placed
from duly.facade import endings
from duly.store import Store
from duly.store.postgres import store as postgres_store
from tests.engine.test_outage import working
from tests.support import is_sqlite

LONG = 60.0


OTHERS: set[threading.Thread] = set()  # of apps of earlier tests, whose threads end a moment after their last use


def listening() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "duly-endings" and each not in OTHERS]


@pytest.fixture
def app(store: Store) -> Iterator[Duly]:
    OTHERS.clear()
    OTHERS.update(listening())
    one = Duly(store.url, sweep_seconds=1.0)

    @one.task
    def double(n: int) -> int:
        return 2 * n

    @one.task(retry=NEVER)
    def fail() -> None:
        raise ValueError("no such number")

    yield one
    one.close()
    for thread in listening():
        thread.join(LONG)


def test_the_result_is_returned_when_a_worker_has_made_it(app: Duly) -> None:
    with working(app):
        assert app.put("double", n=21).wait(LONG) == 42
        assert app.wait(app.put("double", n=4).id, LONG) == 8


def test_async_callers_await_it(app: Duly) -> None:
    async def all_of_them() -> list[Any]:
        placed = [await app.tasks["double"].aput(n=n) for n in range(20)]
        return await asyncio.gather(*(each.await_(LONG) for each in placed))

    with working(app):
        assert asyncio.run(all_of_them()) == [2 * n for n in range(20)]


def test_what_failed_for_good_or_was_cancelled_says_so(app: Duly) -> None:
    waits = app.task_named("double").after(3_600).put(n=1)
    app.cancel(waits.id, reason="not needed")
    with pytest.raises(ItemFailed, match=f"item {waits.id} was cancelled") as told:
        waits.wait(LONG)
    assert told.value.state == "cancelled"
    with working(app), pytest.raises(ItemFailed, match="failed: ValueError: no such number"):
        app.put("fail").wait(LONG)


def test_whoever_waits_too_long_is_told_and_forgotten(app: Duly) -> None:
    placed = app.task_named("double").after(3_600).put(n=1)
    with pytest.raises(TimeoutError, match=f"item {placed.id} has not ended within 0.01 s"):
        placed.wait(0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(placed.await_(0.01))
    assert not app.internals.endings._awaited


def test_a_put_in_a_transaction_is_waited_for_beyond_its_commit(app: Duly, store: Store) -> None:
    with working(app):
        with store.transaction() as connection:
            placed = app.task_named("double").options(connection=connection).put(n=3)
        assert placed.wait(LONG) == 6


@pytest.mark.parametrize("thing", [True, "1", None, 1.0])
def test_what_cannot_be_the_id_of_an_item_is_not_waited_for(app: Duly, thing: Any) -> None:
    with pytest.raises(InputError, match=r"^item_id: must be an id, a whole number, got "):
        app.wait(thing)


@pytest.mark.parametrize("number", [0, -1, 10**9, 2**63])
def test_an_item_that_never_was_is_not_waited_for(app: Duly, number: int) -> None:
    with pytest.raises(DoesNotExist, match=f"there is no item {number}"):
        app.wait(number)


def test_whoever_waits_for_an_item_is_told_when_it_is_gone(app: Duly, store: Store) -> None:
    placed = app.task_named("double").after(3_600).put(n=1)
    told: list[ItemFailed] = []

    def wait() -> None:
        with pytest.raises(ItemFailed, match=f"item {placed.id} is gone: ") as gone:
            app.wait(placed.id)
        told.append(gone.value)

    thread = threading.Thread(target=wait)
    thread.start()
    while not app.internals.endings._awaited:
        time.sleep(0.01)
    store.query("delete from duly_item where id = :id", {"id": placed.id})
    thread.join(LONG)
    assert told[0].state == "gone"
    for late in (placed.wait, lambda: asyncio.run(placed.await_())):  # and who comes too late
        with pytest.raises(ItemFailed, match="is gone"):
            late()


def test_what_is_not_committed_yet_is_waited_for_until_the_timeout(app: Duly, store: Store) -> None:
    with suppress(ZeroDivisionError), store.transaction() as connection:
        placed = app.task_named("double").options(connection=connection).put(n=3)
        with pytest.raises(TimeoutError):
            placed.wait(0.01)
        raise ZeroDivisionError
    with pytest.raises(TimeoutError):
        placed.wait(0.01)
    with pytest.raises(DoesNotExist):
        app.wait(placed.id)


def test_what_the_client_of_an_app_put_can_be_waited_for(app: Duly) -> None:
    with working(app):
        placed = app.client.put("double", {"n": 4})
        assert placed.wait(LONG) == 8
        assert app.client.again(placed.id).wait(LONG) == 8


def test_what_another_door_put_cannot_be_waited_for() -> None:
    with pytest.raises(WrongState, match="can be waited for"):
        Placed(7, "k", True).wait()
    assert len({Placed(7, "k", True), Placed(7, "k", True)}) == 1


def test_news_wakes_those_who_wait_without_a_look_of_their_own(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where looks come only once in a long while, a worker in another store still wakes whoever waits."""
    monkeypatch.setattr(postgres_store, "AT_LEAST", LONG)
    with working(app):
        app.put("double", n=1).wait(LONG)  # now the worker has been asked to tell
        begun = time.monotonic()
        for n in range(20):
            assert app.put("double", n=n).wait(LONG) == 2 * n
        assert time.monotonic() - begun < LONG / 2


def test_hundreds_who_wait_share_one_thread_and_one_look(app: Duly) -> None:
    looks: list[int] = []
    inner = app.internals.endings._endings
    app.internals.endings._endings = lambda ids: looks.append(len(ids)) or inner(ids)  # type: ignore[func-returns-value]
    placed = [app.put("double", n=n) for n in range(200)]
    answers: list[int] = []
    threads = [threading.Thread(target=lambda each=each: answers.append(each.wait(LONG))) for each in placed]
    for thread in threads:
        thread.start()
    while len(app.internals.endings._awaited) < 200 and len(answers) < 200:
        time.sleep(0.01)
    assert len(listening()) == 1
    with working(app):
        for thread in threads:
            thread.join(LONG)
    assert sorted(answers) == [2 * n for n in range(200)]
    assert max(looks) > 1


def test_who_waits_again_soon_finds_the_same_thread_and_a_quiet_process_has_none(
    app: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(app):
        for n in range(5):
            app.put("double", n=n).wait(LONG)
            assert len(listening()) == 1
        (thread,) = listening()
        monkeypatch.setattr(endings, "LINGER", 0.0)
        thread.join(LONG)
        assert not listening()


def test_what_a_put_answers_can_be_returned_and_encoded(app: Duly) -> None:
    placed = app.put("double", n=1)
    assert msgspec.json.decode(msgspec.json.encode(placed)) == {
        "id": placed.id, "execution_key": placed.execution_key, "fresh": True,
    }  # fmt: skip


def test_whoever_waits_is_told_when_the_app_is_closed(app: Duly) -> None:
    placed = app.task_named("double").after(3_600).put(n=1)
    told: list[Exception] = []

    def wait() -> None:
        try:
            placed.wait(LONG)
        except StoreUnavailable as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not app.internals.endings._awaited:
        time.sleep(0.01)
    app.internals.endings.close()
    thread.join(LONG)
    assert "closed" in str(told[0])


def test_the_thread_that_listens_survives_any_error(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, turns = app.internals.store.listen_to_ends, []

    def fails_once(tell: Any, stop: threading.Event) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise RuntimeError("a standby")
        inner(tell, stop)

    monkeypatch.setattr(app.internals.store, "listen_to_ends", fails_once)
    placed = app.put("double", n=5)
    waiting = threading.Thread(target=placed.wait, args=(LONG,))
    waiting.start()
    while not turns:
        time.sleep(0.01)
    with working(app):
        waiting.join(LONG)
        assert not waiting.is_alive()


@pytest.mark.parametrize("listens", [True, False])
def test_it_works_without_listening_too(store: Store, listens: bool) -> None:
    app = Duly(store.url, listen=listens, sweep_seconds=0.2)

    @app.task
    def slow() -> str:
        time.sleep(0.3)
        return "done"

    with working(app):
        assert app.put("slow").wait(LONG) == "done"
    app.close()


def test_a_database_that_is_away_for_a_moment_is_waited_for(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, turns = app.internals.store.listen_to_ends, []

    def fails_once(tell: Any, stop: threading.Event) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise StoreUnavailable("away")
        inner(tell, stop)

    monkeypatch.setattr(app.internals.store, "listen_to_ends", fails_once)
    placed = app.put("double", n=5)
    with working(app):
        assert placed.wait(LONG) == 10
    assert is_sqlite(app.internals.store) or turns
