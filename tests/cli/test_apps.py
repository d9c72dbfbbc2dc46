"""`duly reminders`, `products` and `people`, on the database and through a service: the same words and answers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from duly import Duly
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import Catalog, catalog_on
from duly.apps.catalog.products import Reactivated
from duly.apps.reminders import reminders_on
from duly.core.decide import Rules
from duly.core.model import Failed
from duly.web.server import Service
from tests.cli.conftest import call
from tests.support import claim, decided, share

Run = Callable[..., Result]


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)
    for install in (reminders_on, catalog_on, birthdays_on):
        install(app)
    app.migrate()
    yield app
    app.close()


@pytest.fixture(params=["local", "remote"])
def run(request: pytest.FixtureRequest, app: Duly, database_url: str) -> Iterator[Run]:
    if request.param == "local":
        yield lambda *words, **env: call(*words, DULY_DATABASE_URL=database_url, **env)
    else:
        with Service(app, "127.0.0.1", 0) as served:
            yield lambda *words, **env: call(*words, DULY_URL=served.url, **env)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def actions(app: Duly) -> list[str]:
    return [line.action for line in reversed(app.internals.verbs.audit.page())]


def test_a_reminder_is_added_moved_cancelled_and_hurried(run: Run, app: Duly) -> None:
    assert said(run("reminders")) == "there are no reminders\n"
    words = ("reminders", "add", "+385 1 234", "Dentist at 9", "--at", "2030-01-01T09:00Z", "--key", "k")
    made = told(run(*words, "--json"))
    assert (made["phone"], made["status"], made["date_time_utc"]) == ("+3851234", "scheduled", "2030-01-01T09:00:00Z")
    number = str(made["id"])
    edit = ("reminders", "edit", number, "--at", "2030-01-02T09:00Z", "--message", "Dentist at 10")
    moved = told(run(*edit, "--json"))
    assert (moved["date_time_utc"], moved["message"]) == ("2030-01-02T09:00:00Z", "Dentist at 10")
    assert f"reminder {number} +3851234: cancelled" in said(run("reminders", "cancel", number))
    assert f"reminder {number} +3851234: scheduled" in said(run("reminders", "retry", number))
    assert "Dentist at 10" in said(run("reminders", "show", number))
    assert [each["id"] for each in told(run("reminders", "--json"))] == [made["id"]]
    assert f"reminder {number}" in said(run("reminders"))
    assert actions(app) == ["item.put", "item.edited", "item.cancelled", "item.retried"]
    window = ("--from", "2030-01-02T00:00Z", "--to", "2030-01-03T00:00+01:00")
    assert [each["id"] for each in told(run("reminders", "--status", "scheduled", *window, "--json"))] == [made["id"]]
    assert told(run("reminders", "--to", "2030-01-01T00:00Z", "--json")) == []
    assert told(run("reminders", "--status", "failed", "--json")) == []
    assert run("reminders", "--from", "soon").exit_code == 2
    assert run("reminders", "edit", number).exit_code == 2
    assert run("reminders", "show", "999").exit_code == 1


def test_a_product_is_published_once_and_withdrawn(run: Run, app: Duly) -> None:
    assert said(run("products")) == "there are no products\n"
    for _ in range(2):
        assert said(run("products", "publish", "box/1", "--user", "ana")).startswith("ana box/1: slot ")
    (product,) = told(run("products", "--user", "ana", "--json"))
    assert (product["sku"], product["sync_status"]) == ("box/1", "pending")
    assert "ana box/1" in said(run("products"))
    for sku, complaint in (("none", "no product"), ("box/1", "is active")):
        refused = run("products", "reactivate", sku, "--user", "ana")
        assert (refused.exit_code, complaint in refused.stderr) == (1, True), refused.stderr
    assert said(run("products", "withdraw", "box/1", "--user", "ana")) == "box/1 is withdrawn\n"
    assert told(run("products", "--json")) == []
    assert actions(app) == ["product.published", "schedule.removed"]


def test_products_are_found_and_those_that_were_deactivated_reactivated(run: Run, app: Duly) -> None:
    for sku in ("box-1", "box-2", "bag"):
        catalog = said(run("products", "publish", sku, "--user", "ana"))
        assert catalog
    for product in told(run("products", "--search", "BOX", "--json")):
        app.schedules.run_now(product["id"])
    now = app.clock.now() + timedelta(seconds=1)  # its clock may be a little behind that of the database
    items = claim(app.internals.store, share("catalog", task="catalog.sync"), now=now)
    app.internals.store.settle([decided(item, Failed("no", ("Refused",)), now, Rules(breaker=1)) for item in items])
    assert [each["sku"] for each in told(run("products", "--inactive", "--json"))] == ["box-1", "box-2"]
    assert [each["sku"] for each in told(run("products", "--active", "--status", "pending", "--json"))] == ["bag"]
    (slot,) = [each["hour_bucket"] for each in told(run("products", "--search", "bag", "--json"))]
    assert [each["sku"] for each in told(run("products", "--slot", str(slot), "--json"))] == ["bag"]
    day = told(run("products", "day", "--json"))
    assert (day["causes"], day["statuses"]["deactivated"]) == ([{"cause": "Refused", "products": 2}], 2)
    words = said(run("products", "day"))
    assert "deactivated by Refused: 2" in words
    assert "retry window 02:30: 0 of 50 used, 0 wait" in words
    assert said(run("products", "reactivate", "box-1", "--user", "ana", "--now")) == "box-1 is reactivated\n"
    assert said(run("products", "reactivate-all", "--cause", "Other")) == "0 products are reactivated\n"
    assert said(run("products", "reactivate-all", "--cause", "Refused")) == "1 products are reactivated\n"
    assert len(told(run("products", "--active", "--json"))) == 3


def test_products_are_reactivated_portion_by_portion(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Reactivated(1_000, True), Reactivated(3, False)]
    monkeypatch.setattr(Catalog, "reactivate_all", lambda *_, **__: answers.pop(0))
    assert said(run("products", "reactivate-all")) == "1003 products are reactivated\n"


def test_products_of_another_system_are_imported_and_planned_for(run: Run, app: Duly, tmp_path: Path) -> None:
    assert told(run("plan", "--json"))["products"] == 5_000
    file = tmp_path / "products.csv"
    lines = [f"local,S{n},{n % 24},2024-01-14,19.99" for n in range(30)]
    file.write_text("\n".join(["user_id,sku,hour_bucket,last_successful_sync,last_price", *lines, "local,extra,,,"]))
    made = said(run("products", "import", str(file))).splitlines()
    assert made[-1] == "31 products are new"
    assert made[0].startswith("row 1: local S0: pending: next sync 20")
    assert made[30].startswith("row 31: local extra: pending: next sync 20")
    again = told(run("products", "import", str(file), "--json"))
    assert (again["products"], {row["result"] for row in again["rows"]}) == (0, {"known"})
    (product,) = told(run("products", "--search", "S7", "--json"))
    assert (product["hour_bucket"], product["last_price"]) == (7, "19.99")
    assert product["last_successful_sync"] == "2024-01-14"
    plan = told(run("plan", "--json", DULY_CATALOG_BATCH_SIZE="2", DULY_CATALOG_CALLS_PER_MINUTE="1"))
    assert (plan["products"], plan["slot_calls"], plan["day_limit"]) == (31, 1, 1_440)
    assert told(run("plan", "--batch", "5", "--products", "100", "--json"))["slot_calls"] == 1
    assert "from 5,701 products on" in said(run("plan", "--products", "5000"))
    assert "Break(" not in said(run("plan", "--products", "5000"))
    file.write_text("user_id,sku,colour\nlocal,S,red\n")
    refused = run("products", "import", str(file))
    assert (refused.exit_code, "has a column 'colour'" in refused.stderr) == (2, True)
    assert said(run("products", "import", str(file), "--without", "colour")).endswith("1 products are new\n")


def test_a_table_of_another_system_is_imported_from_its_database_in_any_number_of_rows(
    run: Run, app: Duly, tmp_path: Path
) -> None:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as old, old:
        old.execute("create table old (user_id, sku, hour_bucket, sync_status, consecutive_failures, is_active, extra)")
        rows = [("local", f"S{n}", n % 24, "success", 0, 1, None) for n in range(1_199)]
        old.executemany(
            "insert into old values (?, ?, ?, ?, ?, ?, ?)", [*rows, ("local", "X", 3, "failed", 5, 0, None)]
        )
    words = ("products", "import", f"sqlite:///{file}", "--table", "old", "--without", "extra")
    made = said(run(*words)).splitlines()
    assert made[-1] == "1,200 products are new"
    assert made[1_199] == "row 1200: local X: deactivated, 5 failures in a row: only a person can reactivate it"
    assert said(run(*words)).splitlines()[-1] == "0 products are new, 1,200 rows changed nothing"
    (product,) = told(run("products", "--inactive", "--json"))
    assert (product["sku"], product["consecutive_failures"], product["sync_status"]) == ("X", 5, "failed")
    with closing(sqlite3.connect(file)) as old, old:
        old.execute("update old set sku = 'Y' || sku")
        old.execute("update old set hour_bucket = 24 where sku = 'YS1150'")
    refused = run(*words)
    assert (refused.exit_code, refused.stderr.strip()) == (
        2, "Error: row 1151, hour_bucket: must be from 0 to 23, got 24",
    )  # fmt: skip


def test_a_person_is_added_changed_and_removed(run: Run, app: Duly) -> None:
    assert said(run("people")) == "there are no people\n"
    line = said(run("people", "add", "ana", "Ana", "Horvat", "1990-03-15", "Europe/Zagreb"))
    assert line.startswith("ana Ana Horvat, 03-15 in Europe/Zagreb: next ")
    assert "Asia/Tokyo" in said(run("people", "change", "ana", "--zone", "Asia/Tokyo"))
    shown = told(run("people", "show", "ana", "--json"))
    assert (shown["zone"], [event["status"] for event in shown["events"]]) == ("Asia/Tokyo", ["PENDING"])
    assert "PENDING" in said(run("people", "show", "ana"))
    assert [each["id"] for each in told(run("people", "--json"))] == ["ana"]
    assert "Ana Horvat" in said(run("people"))
    assert said(run("people", "remove", "ana")) == "ana is removed\n"
    assert run("people", "change", "ana").exit_code == 2
    assert run("people", "show", "ana").exit_code == 1
    assert actions(app) == ["person.added", "schedule.changed", "schedule.removed"]
