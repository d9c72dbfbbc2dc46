"""The tables of plug-ins: migrations apart from the core's, on both databases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alembic import command

from duly.core.errors import ConfigError, NotMigrated
from duly.store import Store
from duly.store.migrate import check, migrate, migrations, version_on, versions
from tests.borrow.test_alembic import config
from tests.support import app_migrations, opened


def folder(root: Path, *names: str) -> Path:
    for database in ("sqlite", "postgres"):
        (root / database).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names, 1):
            (root / database / name).write_text(f"create table if not exists notes_{number} (n integer);\n")
    return root


def test_a_plug_in_is_migrated_after_the_core_and_only_once(blank_url: str, tmp_path: Path) -> None:
    apps = {"notes": folder(tmp_path / "m", "0001_first.sql")}
    with opened(blank_url) as store:
        assert versions(store, apps) == {"": 0}
        assert migrate(store, apps=apps)[-1] == "notes/0001_first"
        check(store, apps)
        folder(tmp_path / "m", "0001_first.sql", "0002_second.sql")
        message = "the tables of the app notes are at migration 1, it needs 2: run `duly migrate`"
        with pytest.raises(NotMigrated, match=re.escape(message)):
            check(store, apps)
        assert migrate(store, apps=apps) == ["notes/0002_second"]
        assert migrate(store, apps=apps) == []
        assert versions(store, apps)["notes"] == 2
        with store.migrations() as connection:
            assert version_on(connection, "notes") == 2
            assert version_on(connection, "others") == 0


@pytest.mark.parametrize(
    ("app", "names", "complaint"),
    [
        ("Notes'", ("0001_first.sql",), "so its name must be lower-case letters"),
        ("notes", ("0002_first.sql",), "0002_first.sql of notes is not migration 0001_name.sql"),
        ("notes", ("0001-first.sql",), "0001-first.sql of notes is not migration 0001_name.sql"),
    ],
)
def test_migrations_that_cannot_be_recorded_are_rejected(
    app: str, names: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        migrations("sqlite", folder(tmp_path, *names), app)


def test_a_plug_in_without_migrations_for_the_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="notes has no migrations for postgres"):
        migrations("postgres", tmp_path, "notes")


def test_the_apps_of_duly_have_the_same_migrations_for_both_databases() -> None:
    for app, place in app_migrations().items():
        assert [each.name for each in migrations("sqlite", place, app)] == [
            each.name for each in migrations("postgres", place, app)
        ]


def test_statements_of_plug_ins_run_on_both_databases(store: Store) -> None:
    insert = "insert into duly_app_migration (app, version, name) values (:app, :version, :name)"
    row = {"app": "queried", "version": 1, "name": "it's 100 %"}
    assert store.query(insert, row) == []
    with store.transaction() as connection:
        store.query(insert, {**row, "version": 2}, connection)
    rows = "select version, name from duly_app_migration where app = :app order by version"
    assert store.query(rows, {"app": "queried"}) == [(1, row["name"]), (2, row["name"])]
    store.query("delete from duly_app_migration where app = :app", {"app": "queried"})


def test_alembic_leaves_plug_ins_alone_until_the_schema_is_up_to_date(
    blank_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_DATABASE_URL", blank_url)
    monkeypatch.setenv("DULY_APPS", "reminders")
    command.upgrade(config(), "duly_0005")
    with opened(blank_url) as store:
        assert versions(store, app_migrations()) == {"": 5}
        command.upgrade(config(), "head")
        assert versions(store, app_migrations())["reminders"] == 1
