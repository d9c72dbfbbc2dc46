"""The doctor says what is wrong and what to do, changes nothing, and ends with 1 when something is wrong."""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly import Duly as App
from duly.cli import checkup as surgery
from duly.core.errors import StoreUnavailable
from duly.core.model import NewItem
from duly.intake.intake import kept_by
from duly.store.migrate import current, migrate
from duly.verbs import LOCAL
from tests.cli.conftest import Duly, call
from tests.support import KNOWN, app_migrations, new, opened, share

WARNED_ALWAYS = {"SQLite"} if sqlite3.sqlite_version_info < surgery.SQLITE_SAFE else set()


def findings(duly: Duly, code: int = 0, **env: str) -> dict[str, dict[str, str]]:
    result = duly("doctor", "--json", **env)
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return {each["subject"]: each for each in json.loads(result.stdout)}


def unwell(found: dict[str, dict[str, str]]) -> set[str]:
    return {subject for subject, each in found.items() if each["level"] != "ok"} - WARNED_ALWAYS - {"durability"}


def test_a_healthy_database_has_nothing_to_complain_of(duly: Duly, database_url: str) -> None:
    found = findings(duly)
    assert unwell(found) == set()
    assert {"versions", "settings", "database", "migrations", "leases", "due work"} <= set(found)
    expected = {"SQLite", "journal"} if database_url.startswith("sqlite") else {"PostgreSQL", "durability", "clock"}
    assert expected - set(found) <= {"SQLite"}
    result = duly("doctor")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "up to date at" in result.stdout


def test_missing_tables_of_apps_are_reported(blank_url: str) -> None:
    duly = partial(call, DULY_DATABASE_URL=blank_url)
    with opened(blank_url) as store:
        migrate(store)
        found = findings(duly)["app tables"]
        assert (found["level"], "catalog is at 0, needs 1" in found["text"]) == ("warn", True)
        named = findings(duly, 1, DULY_APPS="catalog")["app tables"]
        assert (named["level"], named["text"]) == ("bad", "catalog is at 0, needs 1")
        migrate(store, apps=app_migrations())
        assert findings(duly)["app tables"]["level"] == "ok"


def test_files_that_only_one_machine_has_are_told(duly: Duly, database_url: str, tmp_path: Path) -> None:
    app = App(database_url, files_url=str(tmp_path / "files"))
    app.job_type("csv", app.task(name="keep")(lambda **row: None))
    with app.internals.intake.receive() as writer:
        writer.write(b"title\ncup\n")
    app.internals.intake.create(LOCAL, kept_by(writer), "a.csv", job_type="csv")
    app.close()
    level = "ok" if database_url.startswith("sqlite") else "warn"
    assert findings(duly)["files"]["level"] == level
    for where in (str(tmp_path), "s3://bucket/files"):
        assert findings(duly, DULY_FILES_URL=where)["files"]["level"] == "ok"


def test_an_unmigrated_database_is_told_and_left_alone(blank_url: str) -> None:
    if blank_url.startswith("sqlite"):
        sqlite3.connect(blank_url.removeprefix("sqlite:///")).close()
        Path(blank_url.removeprefix("sqlite:///")).touch()
    result = call("doctor", "--database-url", blank_url)
    assert result.exit_code == 1
    assert "run `duly migrate`" in result.stdout
    with opened(blank_url) as store:
        assert current(store) == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:secret@127.0.0.1:1/x", "refused"),
        ("postgresql://u:se%zzcret@127.0.0.1/x", "does not understand this URL"),
        ("sqlite:///nowhere.db", "there is no file nowhere.db yet"),
        ("oracle://x", "'oracle' is not known"),
    ],
)
def test_an_unreachable_database_is_told_without_its_password(url: str, words: str) -> None:
    result = call("doctor", "--database-url", url)
    assert result.exit_code == 1
    assert words in " ".join(result.stdout.split())
    assert "→" in result.stdout
    assert "cret" not in result.output


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"not a database, and long enough to see that" * 100)
    result = call("doctor", "--database-url", f"sqlite:///{tmp_path / 'junk.db'}")
    assert result.exit_code == 1
    assert "not a SQLite database" in " ".join(result.stdout.split())


def test_bad_settings_are_told(duly: Duly) -> None:
    assert findings(duly, 1, DULY_CONCURRENCY="many")["settings"]["level"] == "bad"


def test_settings_in_force_are_shown_without_secrets(duly: Duly) -> None:
    text = findings(duly, DULY_VAPI_API_KEY="secret", DULY_CONCURRENCY="3")["settings"]["text"]
    assert "concurrency = 3 (DULY_CONCURRENCY)" in text
    assert "secret" not in text


def claimed(app: App, until: timedelta, item: NewItem) -> int:
    """The id of an item that a worker holds until so long after now."""
    placed = app.internals.store.put([item])[0]
    now = app.clock.now() + timedelta(seconds=1)  # its clock may be a little behind that of the database
    app.internals.store.claim([share(limit=1)], "w1", now, until)
    return placed.id


@pytest.fixture
def app(database_url: str) -> Any:
    app = App(database_url)
    yield app
    app.close()


def test_a_running_item_without_a_lease_is_an_orphan(duly: Duly, app: App) -> None:
    orphan = claimed(app, timedelta(seconds=20), new(due_at=None))
    with app.internals.store.transaction() as connection:
        connection.execute("delete from duly_lease")
    leases = findings(duly, 1)["leases"]
    assert f"item {orphan} running without a lease" in leases["text"]
    assert f"duly cancel {orphan}" in leases["advice"]


def test_leases_that_nobody_rescues_are_told(duly: Duly, app: App) -> None:
    claimed(app, timedelta(seconds=-60), new(due_at=None))
    leases = findings(duly)["leases"]
    assert leases["level"] == "warn"
    assert "were not rescued" in leases["text"]


def test_old_due_work_paused_queues_and_review_are_told(duly: Duly, app: App) -> None:
    app.internals.store.put([new("late", due_at=app.clock.now() - timedelta(hours=1)), new("held", due_at=None)])
    app.pause("held")
    found = findings(duly)
    assert unwell(found) == {"due work", "queues"}
    assert "1 items are due, the oldest for 36" in found["due work"]["text"]
    assert found["queues"]["text"] == "paused: held"


def test_a_database_whose_clock_is_off_is_told(postgres_url: str, duly: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    from duly.core.clock import DatabaseClock

    right = DatabaseClock.now
    monkeypatch.setattr(DatabaseClock, "now", lambda self: right(self) + timedelta(seconds=5))
    result = call("doctor", "--json", "--database-url", postgres_url)
    clock = next(each for each in json.loads(result.stdout) if each["subject"] == "clock")
    assert clock["level"] == "warn"
    assert re.search(r"4\.99|5\.0", clock["text"])  # measured, over a connection
    assert "NTP" in clock["advice"]


def test_a_database_that_does_not_wait_for_the_disk_is_told(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'alter database "{name}" set synchronous_commit = off')
    try:
        result = call("doctor", "--json", "--database-url", postgres_url)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f'alter database "{name}" reset synchronous_commit')
    durability = next(each for each in json.loads(result.stdout) if each["subject"] == "durability")
    assert durability["level"] == "warn"
    assert "synchronous_commit" in durability["text"]


def test_a_file_that_does_not_wait_for_the_disk_is_told(sqlite_url: str) -> None:
    result = call("doctor", "--json", "--database-url", f"{sqlite_url}?synchronous=off")
    journal = next(each for each in json.loads(result.stdout) if each["subject"] == "journal")
    assert journal["level"] == "warn"


def test_old_and_new_libraries_are_told_apart(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surgery, "SQLITE_SAFE", (99,))
    assert "has a bug" in call("doctor", "--database-url", sqlite_url).stdout
    monkeypatch.setattr(surgery, "SQLITE_SAFE", (3,))
    assert "has a bug" not in call("doctor", "--database-url", sqlite_url).stdout


def test_many_orphans_are_counted(duly: Duly, app: App) -> None:
    for _ in range(7):
        claimed(app, timedelta(seconds=20), new(due_at=None))
    with app.internals.store.transaction() as connection:
        connection.execute("delete from duly_lease")
    assert "and 2 more running without a lease" in findings(duly, 1)["leases"]["text"]


def test_items_in_review_are_counted(duly: Duly, app: App) -> None:
    item = claimed(app, timedelta(seconds=20), new(due_at=None))
    with app.internals.store.transaction() as connection:
        connection.execute("update duly_item set state = 'failed'")
    assert item
    assert findings(duly)["review"]["text"].startswith("1 items have failed")


def test_a_database_that_breaks_under_the_doctors_eyes_is_told(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StoreUnavailable("disk I/O error")

    monkeypatch.setattr(surgery, "_work", broken)
    result = call("doctor", "--database-url", sqlite_url)
    assert result.exit_code == 1
    assert "disk I/O error" in result.stdout


def test_a_library_that_is_not_installed_is_told(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(surgery, "version", absent)
    assert "no psycopg" in call("doctor", "--database-url", sqlite_url).stdout


def test_an_old_server_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surgery, "POSTGRES_OLDEST", 990_000)
    assert "is out of support" in call("doctor", "--database-url", postgres_url).stdout


def test_workers_that_are_too_old_are_told(duly: Duly, app: App) -> None:
    now = app.clock.now()
    store = app.internals.store
    for name, migration in (("new", 13), ("old", None)):
        life = {"name": name, "tasks": "[]", "started_at": now, "now": now}
        store.write("alive", {**KNOWN, **life, "migration": migration})
    assert "workers" not in findings(duly)
    store.query("insert into duly_least (migration) values (13)", {})
    found = findings(duly, 1)["workers"]
    assert found["level"] == "bad"
    assert found["text"].startswith("old knows migrations up to 12, and the database needs workers that know 13")
    assert found["text"].endswith("it does not know, and claims")


def test_jobs_whose_counters_are_wrong_are_told_and_mended(
    duly: Duly, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.task(name="ring")(lambda: None)
    jobs = [app.job("ring", [{}] * 3) for _ in range(2)]
    assert findings(duly)["jobs"]["text"] == "the counters of all open jobs, 2, are true"
    assert "the counters of all jobs, 2, are true" in duly("jobs", "check").output
    app.internals.store.query("update duly_item set state = 'cancelled' where job_id = :id", {"id": jobs[0].id})
    app.internals.store.query("update duly_job set failed = 2 where id = :id", {"id": jobs[1].id})
    found = findings(duly, 1)["jobs"]
    assert (found["level"], found["text"]) == ("bad", f"the counters of job {jobs[0].id}, {jobs[1].id} are wrong")
    one = duly("jobs", "check", str(jobs[1].id))
    assert (one.exit_code, one.output) == (1, f"job {jobs[1].id} is wrong: failed 2 of 0\n")
    both = duly("jobs", "check", "--fix")
    assert (both.exit_code, both.output.count("was wrong and is true now")) == (0, 2)
    assert jobs[0].counts().finished_at is not None
    assert findings(duly)["jobs"]["level"] == "ok"
    monkeypatch.setattr(surgery, "JOBS", 0)
    assert findings(duly)["jobs"]["level"] == "warn", "there is another one"


def test_a_worker_in_which_handlers_run_on_is_reported(duly: Duly, database_url: str) -> None:
    with opened(database_url) as store:
        life = {**KNOWN, "tasks": "[]", "started_at": store.now(), "now": store.now()}
        store.write("alive", {**life, "name": "w1", "runaways": 0, "ailing": None})
        assert "workers" not in findings(duly)
        store.write("alive", {**life, "name": "w1", "runaways": 3, "ailing": None})
        found = findings(duly)["workers"]
        assert (found["level"], found["text"]) == ("warn", "w1: 3 handlers run on after they were stopped")
        store.write("alive", {**life, "name": "w1", "runaways": 10, "ailing": "handlers that run on: 10 thread"})
        found = findings(duly, 1)["workers"]
        assert (found["level"], found["text"]) == ("bad", "w1: handlers that run on: 10 thread")
        app = App(database_url)
        reasons = [reason.text for reason in app.client.now().reasons]
        app.close()
        assert reasons == ["worker w1: handlers that run on: 10 thread"]
        store.write(
            "alive", {**life, "name": "w1", "runaways": 0, "ailing": None, "now": store.now() - timedelta(hours=1)}
        )
        assert "workers" not in findings(duly), "it has not reported for long"
