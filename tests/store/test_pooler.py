"""Behind a real PgBouncer: a transaction pooler is found out and lived with, a session pooler is left alone."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator

import psycopg
import pytest

from duly.core.model import Done, Head
from duly.store.contract import News
from duly.store.postgres.store import PostgresStore
from tests.cli.conftest import call
from tests.store.bouncer import pooled
from tests.support import claim_one, put, settle

PATIENCE = 20
SETTINGS = "select current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout')"


@pytest.fixture
def pooler_url(postgres_url: str) -> Iterator[str]:
    with pooled(postgres_url) as url:
        yield url


def watched(store: PostgresStore) -> tuple[queue.Queue[News], threading.Event, threading.Thread]:
    told: queue.Queue[News] = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=store.listen, args=(told.put, stop))
    thread.start()
    return told, stop, thread


def test_listening_behind_a_transaction_pooler_is_given_up_with_one_warning(
    pooler_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(pooler_url, timeout=5)
    with caplog.at_level(logging.WARNING):
        told, stop, thread = watched(store)
        try:
            for _ in range(20):
                put(store, due_at=None)
                item = claim_one(store, now=store.now())
                assert settle(store, item, Done()) == []
        finally:
            stop.set()
            thread.join(PATIENCE)
    assert not thread.is_alive()
    assert told.empty()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "LISTEN does not work behind this transaction pooler"
    ]
    store.close()


def test_nothing_is_set_on_sessions_that_others_have_too(pooler_url: str) -> None:
    with psycopg.connect(pooler_url, autocommit=True) as someone:
        before = someone.execute(SETTINGS).fetchone()
        store = PostgresStore(pooler_url)
        put(store)
        with store.transaction() as connection, store.transaction() as another:
            seen = [each.execute(SETTINGS).fetchone() for each in (connection, another, someone)]
        store.close()
    assert seen == [before] * 3


def test_a_session_pooler_is_no_reason_not_to_listen(postgres_url: str) -> None:
    with pooled(postgres_url, "session") as url:
        store = PostgresStore(url)
        assert not store.is_pooled()
        told, stop, thread = watched(store)
        assert told.get(timeout=PATIENCE) is None
        put(store, due_at=None)
        assert isinstance(told.get(timeout=PATIENCE), Head)
        stop.set()
        thread.join(PATIENCE)
        store.close()


@pytest.mark.parametrize(("mode", "is_shared"), [("transaction", True), ("session", False)])
def test_a_pooler_with_a_single_session_is_found_out_too(
    postgres_url: str, mode: str, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.postgres.sessions.PULSE_PATIENCE", 0.5)
    with pooled(postgres_url, mode, size=1) as url:
        assert PostgresStore(f"{url}?connect_timeout=0").is_pooled() is is_shared


def test_the_doctor_tells_of_a_transaction_pooler(pooler_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = " ".join(call("doctor", "--database-url", pooler_url).stdout.split())
    assert "LISTEN does not work behind this transaction pooler" in said
    assert "DULY_LISTEN=false" in said
    monkeypatch.setenv("DULY_LISTEN", "false")
    assert "LISTEN is off, as it has to be" in " ".join(call("doctor", "--database-url", pooler_url).stdout.split())
