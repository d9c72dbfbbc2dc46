"""The SQL views tell what the apps tell, and the seeds' own queries run against them."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from duly import Duly, GiveUp
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import Catalog, catalog_on
from duly.apps.catalog.supplier import Found, Offer
from duly.apps.messages import message_retry_on
from duly.apps.reminders import reminders_on
from duly.bridge.consumer import Delivery
from duly.bridge.properties import Properties
from duly.core.clock import ManualClock
from duly.core.model import Done
from duly.outbound.http import BadAnswer
from duly.store import Store
from duly.testing import World
from tests.apps.test_imports import TABLE
from tests.bridge.support import retry_message
from tests.outbound.provider import Provider, answer, ok
from tests.support import claim, is_sqlite, settle, share

Desk = Callable[..., Provider]

# The databases' own clocks are asked by the seeds' queries, so what is told here happens around now.
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW - timedelta(hours=3))


@pytest.fixture
def app(database_url: str, clock: ManualClock, call_desk: Desk) -> Iterator[Duly]:
    one = Duly(database_url, clock=clock)
    yield one
    one.close()


def told(store: Store, sql: str) -> list[dict[str, Any]]:
    """The rows of a query by their columns' names; SQLite's texts of times as times."""
    with store.transaction() as connection:
        cursor = connection.execute(sql)
        names = [each[0] for each in cursor.description]
        return [
            {name: _plain(name, value) for name, value in zip(names, row, strict=True)} for row in cursor.fetchall()
        ]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str) and name.endswith(("_at", "_utc")):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if name == "last_successful_sync" and isinstance(value, str):
        return date.fromisoformat(value)
    if name == "original_payload":
        return b64decode(value) if isinstance(value, str) else bytes(value)
    if name == "is_active":
        return bool(value)
    return str(value) if name == "execution_key" else value


def agree(rows: Sequence[dict[str, Any]], values: Sequence[Any], *names: str) -> None:
    """Whether these columns say what the app's own values say."""
    assert [[row[name] for name in names] for row in rows] == [
        [getattr(value, name) for name in names] for value in values
    ]


def asked(store: Store, postgres: str, sqlite: str) -> list[dict[str, Any]]:
    """The seed's query as it stands, or as one has to write it for SQLite."""
    return told(store, sqlite if is_sqlite(store) else postgres)


VIEWS = ("duly_events", "duly_products", "duly_reminders", "duly_retry_queue")


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_that_an_app_announces_is_there(store: Store, name: str) -> None:
    assert told(store, f"select * from {name}") == []


def test_reminders(app: Duly, clock: ManualClock, call_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = call_desk(ok, answer(500, b"first\nsecond"), answer(429, **{"Retry-After": "9000"}), answer(400))
    monkeypatch.setenv("VAPI_BASE_URL", desk.url)
    reminders = reminders_on(app)
    due = [clock.now() + timedelta(seconds=n) for n in range(4)]
    ids = [reminders.schedule("+385 1 234", "Dentist at 9", at, name="Ana").id for at in due]
    with asyncio.Runner() as runner:
        World(app, clock, runner).run_until(clock.now() + timedelta(seconds=10))
    ids += [reminders.schedule("+385 1 234", "Later", at).id for at in (NOW - timedelta(hours=1), NOW, NOW, NOW)]
    reminders.cancel(ids[-1])
    (running,) = claim(app.internals.store, share("reminders", task="remind", limit=1), now=NOW - timedelta(minutes=30))
    rows, seen = (
        told(app.internals.store, "select * from duly_reminders order by id"),
        [reminders.get(each) for each in ids],
    )
    names = "id phone message name status date_time_utc attempt_count next_retry_at last_error idempotency_key"
    agree(rows, seen, *names.split(), "execution_key", "vapi_call_id")
    assert {row["status"] for row in rows} == {
        "completed", "pending_retry", "failed", "scheduled", "processing", "cancelled",
    }  # fmt: skip
    assert [row["id"] for row in rows if row["status"] == "processing"] == [running.id]
    # The seed: what a server finds before it claims.
    found = told(app.internals.store, "SELECT * FROM duly_reminders WHERE status='scheduled'")
    assert [row["date_time_utc"] for row in found] == [NOW, NOW]
    due_now = """
        SELECT id FROM duly_reminders
         WHERE status = 'scheduled' AND date_time_utc <= CURRENT_TIMESTAMP
            OR status = 'pending_retry' AND next_retry_at <= CURRENT_TIMESTAMP
         ORDER BY id LIMIT 10"""
    assert [row["id"] for row in told(app.internals.store, due_now)] == [ids[1], ids[2], ids[5], ids[6]]


def test_the_retry_queue(app: Duly, clock: ManualClock) -> None:
    service = message_retry_on(app)
    bodies = [
        retry_message(original_payload=b"\x00\xff", retry_count=1, max_retries=5),
        retry_message(original_queue="mails", error_reason="no such address"),
        b"\xff not a RetryMessage",
    ]
    for body in bodies:
        service.intake.keep([Delivery(body, Properties())])
    rows = told(app.internals.store, "select * from duly_retry_queue order by id")
    assert [row["original_payload"] for row in rows] == [b"\x00\xff", b"hello", bodies[2]]
    assert [(row["original_queue"], row["retry_count"], row["max_retries"]) for row in rows] == [
        ("orders", 1, 5), ("mails", 0, 3), ("", 0, 3),
    ]  # fmt: skip
    assert rows[1]["error_reason"] == "no such address"
    assert rows[2]["message_id"] is None
    assert "contract" in rows[2]["error_reason"] or "protobuf" in rows[2]["error_reason"]
    assert all(NOW - timedelta(hours=4) < row["next_retry_at"] < NOW for row in rows)
    # The seed: tasks that are due, by its index.
    due = "SELECT * FROM duly_retry_queue WHERE next_retry_at <= CURRENT_TIMESTAMP AND status = 'pending' ORDER BY id"
    assert [row["id"] for row in told(app.internals.store, due)] == [row["id"] for row in rows]
    for queue, outcome in (("mails", GiveUp("no more")), ("orders", Done())):
        settle(
            app.internals.store,
            claim(app.internals.store, share(f"message_retry/{queue}", task="message_retry"), now=NOW),
            outcome,
            NOW,
        )
    rows = told(app.internals.store, "select * from duly_retry_queue order by id")
    assert [row["status"] for row in rows] == ["retried", "failed", "pending"]
    assert rows[1]["last_error"] == "no more"


def shop(app: Duly, *broken: str) -> Catalog:
    """A catalog whose supplier knows nothing of some products."""
    catalog = catalog_on(app)

    def ask(skus: Sequence[str]) -> Found:
        return {
            sku: BadAnswer("first\nsecond") if sku in broken else Offer(sku, Decimal("9.5"), 7, True) for sku in skus
        }

    catalog.ask = ask
    return catalog


def test_products(app: Duly, clock: ManualClock) -> None:
    broken = {"S1", "S7"}
    catalog = shop(app, *broken)
    catalog.publish_many({"user_id": "u", "sku": f"S{n}"} for n in range(24))
    with asyncio.Runner() as runner:
        world = World(app, clock, runner)
        world.run_until(clock.now() + timedelta(hours=30))
        rows, seen = told(app.internals.store, "select * from duly_products order by id"), catalog.products()
        names = "id user_id sku hour_bucket sync_status last_sync_at last_successful_sync consecutive_failures"
        agree(rows, seen, *names.split(), "last_error", "is_active", "last_boeing_hash", "last_quantity", "created_at")
        assert {float(row["last_price"]) for row in rows if row["last_price"] is not None} == {9.5}
        assert {row["sync_status"] for row in rows if row["sku"] in broken} == {"failed"}
        world.run_until(clock.now() + timedelta(days=5))
    rows, seen = told(app.internals.store, "select * from duly_products order by id"), catalog.products()
    agree(rows, seen, "sync_status", "is_active", "consecutive_failures", "last_successful_sync")
    assert {row["sku"] for row in rows if not row["is_active"]} == broken


def test_a_product_that_was_imported_and_skipped_was_last_synced_when_its_other_system_did(
    app: Duly, clock: ManualClock
) -> None:
    catalog = shop(app)
    clock.set((NOW - timedelta(days=2)).replace(hour=0))
    today = clock.now().date()
    catalog.import_many(
        {"user_id": "u", "sku": f"S{n}", "hour_bucket": n, "last_successful_sync": today} for n in (2, 9)
    )
    with asyncio.Runner() as runner:
        world = World(app, clock, runner)
        world.run_until(clock.now() + timedelta(hours=3))
        names = ("sku", "sync_status", "last_sync_at", "last_successful_sync")
        rows, seen = told(app.internals.store, "select * from duly_products order by id"), catalog.products()
        agree(rows, seen, *names)
        assert [row.outcome for row in world.items()] == ["skipped"]
        assert seen[0].last_sync_at == seen[1].last_sync_at, "it was not asked for"
        world.run_until(clock.now() + timedelta(days=1))
        app.pause("catalog")
        world.run_until(clock.now() + timedelta(days=1))
        rows, seen = told(app.internals.store, "select * from duly_products order by id"), catalog.products()
        assert {row.state for row in world.items(most=2)} == {"waiting"}
        agree(rows, seen, *names)


def test_products_that_were_imported_in_every_state_are_seen_alike(app: Duly, clock: ManualClock) -> None:
    clock.set(datetime(2024, 1, 15, 9, 30, tzinfo=UTC))
    catalog = shop(app)
    catalog.import_many(TABLE)
    rows, seen = told(app.internals.store, "select * from duly_products order by id"), catalog.products()
    names = ("sku", "sync_status", "is_active", "consecutive_failures", "last_error", "last_sync_at")
    agree(rows, seen, *names, "last_successful_sync", "last_boeing_hash")
    assert {row["sync_status"] for row in rows} == {"success", "failed", "pending"}


def test_the_catalogs_seed_asks_for_a_slot_and_for_what_failed(
    app: Duly, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_CATALOG_MAX_CONSECUTIVE_FAILURES", "100")
    broken = {"S3", "S4", "S5"}
    catalog = shop(app, *broken)
    clock.set(NOW - timedelta(days=3))
    catalog.publish_many({"user_id": "u", "sku": f"S{n}"} for n in range(24))
    with asyncio.Runner() as runner:
        World(app, clock, runner).run_until(NOW - timedelta(days=1, minutes=1))
    slot = """
        SELECT * FROM duly_products
        WHERE hour_bucket = 10
        AND is_active = TRUE
        AND sync_status != 'syncing'
        AND (last_successful_sync IS NULL
             OR last_successful_sync < CURRENT_DATE)"""
    (row,) = told(app.internals.store, slot)
    assert row["hour_bucket"] == 10
    failed = """
        SELECT * FROM duly_products
        WHERE sync_status = 'failed'
        AND is_active = TRUE
        ORDER BY consecutive_failures ASC,
                 last_sync_at ASC
        LIMIT 50"""
    rows = told(app.internals.store, failed)
    assert {row["sku"] for row in rows} == broken
    assert rows == sorted(rows, key=lambda row: (row["consecutive_failures"], row["last_sync_at"]))


def test_events(app: Duly, clock: ManualClock, call_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = call_desk(ok, answer(500), answer(500), answer(500))
    monkeypatch.setenv("WEBHOOK_URL", desk.url)
    monkeypatch.setenv("DULY_BIRTHDAYS_TRIES", "3")
    start = NOW - timedelta(days=2)
    monkeypatch.setenv("DULY_BIRTHDAYS_AT", f"{start + timedelta(hours=1):%H:%M}")
    clock.set(start)
    birthdays = birthdays_on(app)
    day = start + timedelta(hours=1)
    for name in ("ana", "bob", "eva"):
        birthday = day if name != "eva" else day + timedelta(days=30)
        birthdays.add(name, name.title(), "Horvat", f"{birthday:%m-%d}", "UTC")
    clock.set(day + timedelta(minutes=20))
    with asyncio.Runner() as runner:
        world = World(app, clock, runner)
        world.run()
        rows = told(app.internals.store, "select * from duly_events order by user_id, target_timestamp_utc desc")
        seen = [event for name in ("ana", "bob", "eva") for event in birthdays.events(name)]
        agree(rows, seen, "id", "status", "attempts", "executed_at", "next_try_at", "last_error")
        assert [row["target_timestamp_utc"] for row in rows] == [event.target for event in seen]
        assert [row["user_id"] for row in rows] == [event.person_id for event in seen]
        assert [row["status"] for row in rows] == ["PENDING", "COMPLETED", "PENDING", "FAILED", "PENDING"]
        world.run_until(clock.now() + timedelta(hours=1))
    late = asked(
        app.internals.store,
        """
        SELECT
          id,
          user_id,
          target_timestamp_utc,
          executed_at,
          EXTRACT(EPOCH FROM (executed_at - target_timestamp_utc)) / 60 AS lateness_minutes
        FROM duly_events
        WHERE status = 'COMPLETED'
          AND executed_at > target_timestamp_utc + INTERVAL '5 minutes'
        ORDER BY lateness_minutes DESC
        LIMIT 100""",
        """
        SELECT
          id,
          user_id,
          target_timestamp_utc,
          executed_at,
          (julianday(executed_at) - julianday(target_timestamp_utc)) * 1440 AS lateness_minutes
        FROM duly_events
        WHERE status = 'COMPLETED'
          AND executed_at > datetime(target_timestamp_utc, '+5 minutes')
        ORDER BY lateness_minutes DESC
        LIMIT 100""",
    )
    assert [(row["user_id"], round(float(row["lateness_minutes"]))) for row in late] == [("ana", 20)]
    stuck = asked(
        app.internals.store,
        """
        SELECT
          id,
          user_id,
          target_timestamp_utc,
          status,
          attempts,
          last_error,
          EXTRACT(EPOCH FROM (NOW() - target_timestamp_utc)) / 60 AS age_minutes
        FROM duly_events
        WHERE status IN ('PENDING', 'FAILED')
          AND target_timestamp_utc < NOW() - INTERVAL '1 hour'
        ORDER BY age_minutes DESC""",
        """
        SELECT
          id,
          user_id,
          target_timestamp_utc,
          status,
          attempts,
          last_error,
          (julianday('now') - julianday(target_timestamp_utc)) * 1440 AS age_minutes
        FROM duly_events
        WHERE status IN ('PENDING', 'FAILED')
          AND target_timestamp_utc < datetime('now', '-1 hour')
        ORDER BY age_minutes DESC""",
    )
    assert [(row["user_id"], row["status"], row["attempts"]) for row in stuck] == [("bob", "FAILED", 3)]
    assert float(stuck[0]["age_minutes"]) > 2_000
