"""A catalog that another system kept until now goes on here: its own table, as it is, with each product's state."""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from duly import Duly, InputError
from duly.apps.catalog.dumps import rows_of
from duly.apps.catalog.imports import imported
from duly.core.errors import WrongState
from duly.core.policy.recur import zone_named
from tests.apps.catalog_shop import Open, Shop, utc

COLUMNS = (
    "id", "user_id", "sku", "hour_bucket", "sync_status", "last_sync_at", "last_successful_sync",
    "consecutive_failures", "last_error", "is_active", "last_boeing_hash", "last_price", "last_quantity",
    "created_at", "updated_at",
)  # fmt: skip
HASH = "5d41402abc4b2a76b9719d911017c592"
BEGAN = "2023-06-01 00:00:00+00"


def row(sku: str, slot: int, status: str, synced: str | None, success: str | None, **more: Any) -> dict[str, Any]:
    """A row of the table, as PostgreSQL writes it."""
    known = {
        "id": f"00000000-0000-0000-0000-0000000000{slot:02}", "user_id": "u", "sku": sku, "hour_bucket": slot,
        "sync_status": status, "last_sync_at": synced, "last_successful_sync": success, "consecutive_failures": 0,
        "last_error": None, "is_active": "t", "last_boeing_hash": HASH, "last_price": "19.9900", "last_quantity": 7,
        "created_at": BEGAN, "updated_at": BEGAN,
    }  # fmt: skip
    return {**known, **more}


ERROR = {"last_error": "Boeing API error: 503"}
# Taken at 09:30, in the middle of a day: fine, failed, given up, about to be synced, never synced.
TABLE = [
    row("FINE", 9, "success", "2024-01-15 09:00:12.5+00", "2024-01-15"),
    row("LATER", 11, "success", "2024-01-14 11:00:12+00", "2024-01-14", **ERROR),
    row("TWICE", 8, "failed", "2024-01-15 08:00:30+00", "2024-01-14", consecutive_failures=2, **ERROR),
    row("OLDER", 5, "failed", "2024-01-15 05:00:30+00", "2024-01-13", consecutive_failures=2, **ERROR),
    row("ONCE", 7, "failed", "2024-01-15 07:00:30+00", "2024-01-14", consecutive_failures=1, **ERROR),
    row("GONE", 10, "failed", "2024-01-14 22:30:00+00", "2024-01-12", consecutive_failures=5, is_active="f", **ERROR),
    row("BUSY", 12, "syncing", "2024-01-15 09:29:50+00", "2024-01-14"),
    row("NEW", 13, "pending", None, None, last_boeing_hash=None, last_price=None, last_quantity=None),
]


@pytest.fixture
def at(shop: Open) -> Shop:
    return shop(start=utc("2024-01-15T09:30"))


def texts(at: Shop, rows: list[dict[str, Any]]) -> list[str]:
    return [each.text for each in at.catalog.import_many(rows).rows]


def test_a_table_comes_in_as_it_is_with_state_failures_last_sync_last_error_and_activity(at: Shop) -> None:
    assert texts(at, TABLE) == [
        "success: next sync 2024-01-16 09:00 UTC",
        "success: next sync 2024-01-15 11:00 UTC",
        "failed, 2 failures in a row: waits for a retry window; the next one opens 2024-01-15 10:30 UTC",
        "failed, 2 failures in a row: waits for a retry window; the next one opens 2024-01-15 10:30 UTC",
        "failed, 1 failure in a row: waits for a retry window; the next one opens 2024-01-15 10:30 UTC",
        "deactivated, 5 failures in a row: only a person can reactivate it",
        "pending (it was syncing): next sync 2024-01-15 12:00 UTC",
        "pending: next sync 2024-01-15 13:00 UTC",
    ]
    for given in TABLE:
        product = at.product(given["sku"])
        assert product.hour_bucket == given["hour_bucket"]
        assert product.sync_status == ("pending" if given["sync_status"] == "syncing" else given["sync_status"])
        assert product.consecutive_failures == given["consecutive_failures"]
        assert product.last_error == given["last_error"]
        assert product.is_active == (given["is_active"] == "t")
        assert product.last_successful_sync == (
            given["last_successful_sync"] and date.fromisoformat(given["last_successful_sync"])
        )
        assert product.last_sync_at == (given["last_sync_at"] and datetime.fromisoformat(given["last_sync_at"]))
    assert [load.members for load in at.catalog.slots()][10] == 0, "one that is deactivated takes no slot"
    today = at.catalog.day()
    assert (today.statuses.failed, today.statuses.deactivated, today.statuses.success) == (3, 1, 2)
    assert today.budget.used_today == 0, "the calls of the other system are not ours"
    assert next(window for window in today.windows if window.at.hour == 10).waiting == 3


def test_what_had_failed_is_retried_in_the_next_window_fewest_failures_first_then_oldest(shop: Open) -> None:
    at = shop(start=utc("2024-01-15T09:30"), catalog_batch_size=1, catalog_calls_per_minute=60)
    at.catalog.import_many(TABLE)
    at.until("2024-01-15T10:29:59")
    assert at.api.asked() == [], "it waits for the window, and the deactivated one for a person"
    at.api.missing = {"TWICE"}
    at.until("2024-01-15T10:40")
    assert at.api.asked() == ["ONCE", "OLDER", "TWICE"]
    assert (at.product("TWICE").consecutive_failures, at.product("OLDER").consecutive_failures) == (3, 0)
    assert next(window for window in at.catalog.day().windows if window.at.hour == 10).used == 3


def test_a_deactivated_product_is_reactivated_by_a_person_and_by_nothing_else(at: Shop) -> None:
    at.catalog.import_many(TABLE)
    (cause,) = at.catalog.day().causes
    assert cause.products == 1
    assert [row.args["sku"] for row in at.world.items(state="failed")] == ["GONE"], "it is in review"
    at.until("2024-01-18T09:30")
    assert "GONE" not in at.api.asked()
    at.catalog.reactivate("u", "GONE", actor="maja")
    assert at.world.items(state="failed") == []
    at.until("2024-01-18T10:30")
    assert "GONE" in at.api.asked()
    product = at.product("GONE")
    assert (product.sync_status, product.is_active, product.consecutive_failures) == ("success", True, 0)


def test_a_product_that_a_person_had_switched_off_stays_off(at: Shop) -> None:
    off = row("OFF", 11, "success", "2024-01-14 11:00:12+00", "2024-01-14", is_active="f")
    assert texts(at, [off]) == ["deactivated, 0 failures in a row: only a person can reactivate it"]
    at.until("2024-01-16T12:00")
    assert at.api.asked() == []
    at.catalog.reactivate("u", "OFF")
    with pytest.raises(WrongState, match="is active"):
        at.catalog.reactivate("u", "OFF")
    at.until("2024-01-17T12:00")
    assert at.api.asked() == ["OFF"]


def test_an_active_product_with_many_failures_is_deactivated_by_the_next_one(at: Shop) -> None:
    at.catalog.import_many([row("S", 8, "failed", "2024-01-15 08:00:30+00", None, consecutive_failures=7)])
    assert (at.product("S").is_active, at.product("S").consecutive_failures) == (True, 7)
    at.api.missing = {"S"}
    at.until("2024-01-15T10:31")
    assert (at.product("S").is_active, at.product("S").consecutive_failures) == (False, 8)


def test_the_first_sync_of_a_product_that_looks_the_same_is_no_change(shop: Open) -> None:
    told: list[str] = []

    def on(app: Duly) -> Any:
        @app.task
        def tell(user_id: str, sku: str, price: float, quantity: int, in_stock: bool) -> None:
            told.append(f"{sku} {price} {quantity} {in_stock}")

        return tell

    at = shop(start=utc("2024-01-15T09:30"), on=on)
    cheaper = row("CHEAPER", 11, "success", "2024-01-14 11:00:12+00", "2024-01-14", last_price="21.00")
    at.catalog.import_many([*TABLE, cheaper])
    at.until("2024-01-15T14:00")
    assert {each.partition(" ")[0] for each in told} == {"CHEAPER", "NEW"}, "the others look as they did"
    told.clear()
    at.until("2024-01-17T14:00")
    assert told == []
    at.api.entries = {"LATER": {"sku": "LATER", "price": 19.99, "quantity": 7, "in_stock": False}}
    at.until("2024-01-18T14:00")
    assert told == ["LATER 19.99 7 False"], "from the first sync on, the stock counts too"


def test_a_row_whose_first_sync_has_to_count_as_a_change_says_so(at: Shop) -> None:
    unpriced = row("S", 11, "success", "2024-01-14 11:00:12+00", "2024-01-14", last_price=None)
    (text,) = texts(at, [unpriced])
    assert text.endswith("; that counts as a change, because last_price or last_quantity is missing")


def test_an_import_is_harmless_when_repeated_and_says_what_it_left(at: Shop) -> None:
    at.catalog.import_many(TABLE[:3])
    before = [at.product(each["sku"]) for each in TABLE[:3]]
    at.until("2024-01-15T10:31")
    synced = at.product("TWICE")
    again = at.catalog.import_many([*TABLE[:3], TABLE[3], TABLE[3]])
    assert [each.result for each in again.rows] == ["known", "known", "known", "new", "repeated"]
    assert again.rows[-1].text == "repeats row 4: left out"
    assert (again.products, again.rows[0].text) == (1, "is in the catalog: unchanged")
    assert at.product("TWICE") == synced
    assert [at.product(each["sku"]).hour_bucket for each in TABLE[:3]] == [each.hour_bucket for each in before]


def test_ten_thousand_products_come_in_evenly_and_with_their_own_slots(shop: Open) -> None:
    at = shop(start=utc("2024-01-15T09:30"))
    rows = [{"user_id": "u", "sku": f"S{n}", **({"hour_bucket": 3} if n < 50 else {})} for n in range(2_400)]
    made = at.catalog.import_many(rows)
    assert (made.products, len(made.rows), made.rows[-1].row) == (2_400, 2_400, 2_400)
    assert {load.members for load in at.catalog.slots()} == {100}
    schedule = at.app.schedules.find("catalog.sync", "u/S7")
    assert (schedule.slot, schedule.next_at) == (3, utc("2024-01-16T03:00"))


# -- where the rows come from


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


SCHEMA = """
create table product_sync_schedule (
    id text primary key, user_id text not null, sku text not null, hour_bucket smallint not null,
    sync_status text not null, last_sync_at {time}, last_successful_sync {date}, consecutive_failures integer not null,
    last_error text, is_active {bool} not null, last_boeing_hash text, last_price numeric, last_quantity integer,
    created_at {time}, updated_at {time})
"""


def test_a_csv_file_an_sqlite_file_and_a_postgres_table_give_the_same_rows(tmp_path: Path, postgres_url: str) -> None:
    import psycopg

    expected = [imported(each) for each in TABLE]
    for delimiter in ",;\t":
        path = write_csv(tmp_path / "dump.csv", TABLE, delimiter)
        assert [imported(each) for each in rows_of(path)] == expected
    file = tmp_path / "old.db"
    marks = ", ".join("?" for _ in COLUMNS)
    with closing(sqlite3.connect(file)) as old, old:
        old.execute(SCHEMA.format(time="text", date="text", bool="integer"))
        values = [{**each, "is_active": each["is_active"] == "t"} for each in TABLE]
        old.executemany(
            f"insert into product_sync_schedule values ({marks})", [[each[name] for name in COLUMNS] for each in values]
        )
    for source in (str(file), f"sqlite:///{file}"):
        assert [imported(each) for each in rows_of(source)] == expected
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create schema old")
        connection.execute(
            SCHEMA.replace("table ", "table old.").format(time="timestamptz", date="date", bool="boolean")
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f"insert into old.product_sync_schedule values ({marks.replace('?', '%s')})",
                [[each[name] for name in COLUMNS] for each in TABLE],
            )
        try:
            found = rows_of(postgres_url, "old.product_sync_schedule")
            assert [imported(each) for each in found] == expected
            with pytest.raises(InputError, match=r"no table .* in this database; it has .*old\.product_sync_schedule"):
                rows_of(postgres_url)
        finally:
            connection.execute("drop schema old cascade")


def test_times_without_a_zone_are_utc() -> None:
    found = imported({"user_id": "u", "sku": "S", "last_sync_at": "2024-01-15 08:00:30"})
    assert found.last_sync_at == datetime(2024, 1, 15, 8, 0, 30, tzinfo=UTC)
    there = datetime(2024, 1, 15, 9, 0, 30, tzinfo=zone_named("Europe/Zagreb"))
    assert imported({"user_id": "u", "sku": "S", "last_sync_at": there}) == found


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("colour", "red", "is not a column of an import. Accepted columns: user_id, sku, hour_bucket, sync_status"),
        ("hour_bucket", "noon", "must be a whole number from 0 to 100,000, got 'noon'"),
        ("hour_bucket", "24", "must be from 0 to 23, got 24"),
        ("consecutive_failures", "-1", "must be a whole number from 0"),
        ("last_quantity", 2**31, "must be at most 2,147,483,647"),
        ("sync_status", "done", "must be one of pending, syncing, success, failed, got 'done'"),
        ("is_active", "maybe", "must be true or false, got 'maybe'"),
        ("last_sync_at", "yesterday", "must be a time such as 2026-12-01 09:00:00+00, got 'yesterday'"),
        ("last_successful_sync", "15/01/2024", "must be a date such as 2026-12-01, got '15/01/2024'"),
        ("last_price", "cheap", "must be a number such as 19.99, got 'cheap'"),
        ("last_price", True, "must be a number such as 19.99"),
        ("last_error", 5, "must be a string"),
        ("last_error", "a\0b", "must not contain NUL"),
        ("sku", "", "is required"),
        ("sku", " ", "must not be blank"),
    ],
)
def test_an_error_names_the_row_and_its_column_in_plain_words(at: Shop, column: str, value: Any, problem: str) -> None:
    good = {"user_id": "u", "sku": "ok"}
    with pytest.raises(InputError) as refused:
        at.catalog.import_many([good, {**good, column: value}, good, {"sku": "S"}])
    assert refused.value.field == f"rows[1].{column}"
    assert refused.value.problem.startswith(problem)
    assert refused.value.problem.endswith("; 1 more: rows[3].user_id")
    assert at.catalog.products() == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty; its first line must name the columns. Accepted columns: user_id, sku"),
        ("user_id,price\nu,1\n", "has a column 'price' that an import does not accept; leave it out with --without"),
        ("user_id,last_price\nu,1\n", "has no column sku. Accepted columns: user_id, sku"),
        ("user_id,sku,sku\nu,1,1\n", "has the column 'sku' twice"),
        ("user_id,sku\nu,1\n\nu,2,3\n", "row 2 has 3 cells, but the first line names 2 columns"),
        ('user_id,sku\nu,"1\n', "is not a CSV file: unexpected end of data"),
        (b"user_id,sku\nu,\xe9\n", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_import_says_what_it_lacks(tmp_path: Path, text: str | bytes, problem: str) -> None:
    path = tmp_path / "dump.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as refused:
        rows_of(str(path))
    assert refused.value.problem.startswith(problem)


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "dump.csv"
    path.write_text("user_id,sku,colour\nu,S,red\n")
    assert rows_of(str(path), without=["colour"]) == [{"user_id": "u", "sku": "S"}]
    with pytest.raises(InputError, match="without: there is no column 'color'; columns: user_id, sku, colour"):
        rows_of(str(path), without=["color"])


def test_a_source_that_cannot_be_read_says_why(tmp_path: Path, postgres_url: str) -> None:
    folder = tmp_path / "notes.txt"
    folder.write_text("user_id\n")
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(made)) as database:
        database.execute("create table products (sku text)")
    broken = tmp_path / "broken.db"
    broken.write_bytes(made.read_bytes()[:1_000])
    nobody = f"postgresql://nobody:secret@{urlsplit(postgres_url).hostname or '127.0.0.1'}:9/none"
    refusals: list[tuple[str, Callable[[str], bool]]] = [
        (str(tmp_path / "gone.csv"), lambda text: "there is no file" in text),
        (f"sqlite:///{folder}", lambda text: "is not an SQLite database" in text),
        (str(made), lambda text: "no table 'product_sync_schedule' in this database; it has products. Name it" in text),
        (str(broken), lambda text: "cannot be read" in text),
        ("mysql://host/shop", lambda text: "must be a file, or a URL of sqlite:/// or postgresql://" in text),
        (nobody.replace(":9/", ":secret/"), lambda text: "cannot be read" in text and "secret" not in text),
        (nobody, lambda text: "the database cannot be read" in text and "secret" not in text),
    ]
    for source, is_plain in refusals:
        with pytest.raises(InputError) as refused:
            rows_of(source)
        assert is_plain(str(refused.value)), refused.value


def test_without_psycopg_a_postgres_table_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=r"needs psycopg, which is not installed: pip install 'duly\[postgres\]'"):
        rows_of("postgresql://127.0.0.1:9/none")


def test_the_other_database_is_only_read(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as old, old:
        old.execute(SCHEMA.format(time="text", date="text", bool="integer"))
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    file.chmod(0o444)
    assert rows_of(str(file)) == []
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [path.name for path in tmp_path.iterdir()] == ["old.db"]


def test_two_users_may_have_the_same_sku_and_each_keeps_its_own_past(at: Shop) -> None:
    other = {**TABLE[2], "user_id": "w", "consecutive_failures": 4}
    made = at.catalog.import_many([TABLE[2], other], is_owned=True)
    assert [each.result for each in made.rows] == ["new", "new"]
    assert at.product("TWICE").consecutive_failures == 2
    assert at.product("TWICE", "w").consecutive_failures == 4
    assert [each.user_id for each in at.catalog.products(owner="w")] == ["w"]
    at.until("2024-01-15T10:31")
    assert at.world.clock.now() - (at.product("TWICE", "w").last_sync_at or utc("2024-01-01")) < timedelta(minutes=2)
