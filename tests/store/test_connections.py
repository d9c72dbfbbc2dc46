"""Connections and the pool of them: order, places, ends, and what is told in an outage."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from duly.core.errors import ConfigError, StoreUnavailable
from duly.store.postgres import connections
from duly.store.postgres.connections import Connection, ConnectionPool
from tests.process.fleet import until
from tests.proxy import proxied
from tests.support import opened, put

PATIENCE = 10


def pool_of(url: str, size: int = 1, timeout: float = 5.0) -> ConnectionPool:
    return ConnectionPool(lambda: Connection.connect(url, autocommit=True), size, timeout)


def test_who_waits_for_a_connection_is_served_in_the_order_of_coming(postgres_url: str) -> None:
    pool = pool_of(postgres_url, timeout=PATIENCE)
    held = pool.take()
    order: list[int] = []

    def wait(number: int) -> None:
        connection = pool.take()
        order.append(number)
        pool.give(connection)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        until(lambda: len(pool._waiting) == number + 1)  # noqa: B023
    pool.give(held)
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2, 3, 4]
    pool.close()


def test_a_place_that_a_broken_connection_leaves_is_given_to_who_waits(postgres_url: str) -> None:
    pool = pool_of(postgres_url, timeout=PATIENCE)
    held = pool.take()
    with ThreadPoolExecutor(1) as aside:
        waiting = aside.submit(pool.take)
        until(lambda: pool._waiting)
        held.close()
        pool.give(held)
        assert waiting.result(PATIENCE).execute("select 1").fetchone() == (1,)
        pool.give(waiting.result())
    pool.close()


def test_a_connection_that_comes_at_the_last_moment_is_taken(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    mine = pool.take()
    assert pool._await(Interrupted(mine, queue.Empty), 0) is mine


class Interrupted:
    """A turn whose wait ends without a connection, which comes all the same."""

    def __init__(self, connection: Any, by: type[BaseException] = KeyboardInterrupt) -> None:
        self._connection = connection
        self._by = by

    def get(self, timeout: float) -> None:
        raise self._by

    def get_nowait(self) -> Any:
        return self._connection


def test_an_interrupted_wait_loses_no_connection(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    held = pool.take()
    with pytest.raises(KeyboardInterrupt):
        pool._await(Interrupted(held), 0)
    assert pool.take() is held, "it came while the wait was interrupted, and is handed on"
    pool._waiting.append(turn := Interrupted(None))
    with pytest.raises(KeyboardInterrupt):
        pool._await(turn, 0)
    assert not pool._waiting


def test_what_was_left_open_is_rolled_back_before_the_next_has_it(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    connection = pool.take()
    connection.execute("begin")
    connection.execute("create table left_open ()")
    pool.give(connection)
    assert pool.take() is connection
    assert connection.execute("select to_regclass('left_open')").fetchone() == (None,)
    connection.execute("begin")
    with psycopg.connect(postgres_url, autocommit=True) as killer:
        killer.execute("select pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
    pool.give(connection)
    assert pool.take() is not connection
    pool.close()


def test_old_connections_and_those_that_nobody_needs_are_closed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(postgres_url, 3)
    one, two, three = pool.take(), pool.take(), pool.take()
    for each in (one, two):
        pool.give(each)
    monkeypatch.setattr(connections, "IDLE", -1.0)
    pool.give(three)
    assert (one.closed, two.closed, three.closed) == (True, False, False)
    monkeypatch.setattr(connections, "LIFETIME", -1.0)
    pool.give(pool.take())
    assert (two.closed, three.closed) == (False, True)
    pool.close()
    assert two.closed


def test_a_connection_that_comes_back_to_a_closed_pool_is_closed(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    connection = pool.take()
    pool.close()
    pool.give(connection)
    assert connection.closed


def test_whoever_waits_in_an_outage_is_told_of_the_outage(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy:
        pool = pool_of(proxy.url, 1, 0.5)
    with ThreadPoolExecutor(4) as many:
        for waiting in [many.submit(pool.take) for _ in range(4)]:
            with pytest.raises(StoreUnavailable, match=r"cannot reach the database: connection.*refused"):
                waiting.result(PATIENCE)


def test_in_a_hurry_nobody_waits_for_a_server_that_is_away(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, opened(proxy.url, timeout=60) as store:
        put(store)
        proxy.close()
        with ThreadPoolExecutor(1) as aside:
            waiting = aside.submit(store.now)
            until(lambda: store._pool.trouble)
            store.hasten()
            with pytest.raises(StoreUnavailable, match="cannot reach"):
                waiting.result(PATIENCE)
        store._tell(["0\t0\tring"])  # which is for nobody
        store.hasten(False)
        assert not store._pool._hurry.is_set()


def test_a_url_that_nobody_understands_is_an_error_without_its_password() -> None:
    with opened("postgresql://u:se%zzcret@127.0.0.1/x") as store, pytest.raises(ConfigError) as caught:
        store.now()
    assert "cret" not in str(caught.value)


def test_settings_that_cannot_be_made_leave_no_connection_behind(postgres_url: str) -> None:
    with opened(postgres_url, timeout=0.2) as store:
        store._short._dial = lambda: store._configured(dialled.append(store._dial()) or dialled[-1], {"no.such": "\0"})
        dialled: list[Connection] = []
        with pytest.raises(psycopg.DataError), store.transaction():
            raise AssertionError("it was configured")
        assert dialled[0].closed


def test_who_waits_in_vain_while_the_server_is_away_is_told_so(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    held = pool.take()
    pool.trouble = psycopg.OperationalError("gone for lunch")
    with pytest.raises(StoreUnavailable, match="cannot reach the database: gone for lunch"):
        pool.take(time.monotonic() + 0.05)
    pool.give(held)


def test_a_child_begins_with_nothing_but_its_haste(postgres_url: str) -> None:
    pool = pool_of(postgres_url)
    pool.give(pool.take())
    pool.hasten(True)
    pool.renew()
    assert (pool._places, pool._hurry.is_set()) == (0, True)
    closed = pool.take()
    closed.close()
    closed.renew()
    assert closed.closed
