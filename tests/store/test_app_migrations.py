"""The tables of plug-ins: migrations apart from the core's, on both databases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alembic import command

from duly.cli.alembic.run import _engine_for
from duly.core.errors import ConfigError, NotMigrated, StoreError, StoreUnavailable
from duly.store import Store
from duly.store.alembic import upgrade_apps
from duly.store.migrate import check, dialect_of, latest, migrate, migrations, version_on, versions
from tests.borrow.test_alembic import config
from tests.support import app_migrations, opened


def folder(root: Path, *names: str) -> Path:
    for database in ("sqlite", "postgres"):
        (root / database).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names, 1):
            (root / database / name).write_text(f"create table if not exists notes_{number} (n integer);\n")
    return root


def file(root: Path, text: str) -> Path:
    """A folder with one migration, the same for both databases."""
    folder(root, "0001_first.sql")
    for database in ("sqlite", "postgres"):
        (root / database / "0001_first.sql").write_text(text, encoding="utf8")
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


NOTES = {
    "no semicolon": "create table notes (n integer, t text)",
    "a comment after the last": "create table notes (n integer, t text); -- rows",
    "a last one without a semicolon": "create table notes (n integer);\nalter table notes add column t text",
    "two on a line": "create table notes (n integer); alter table notes add column t text;;",
    "a semicolon in a literal": "create table notes (n integer, t text default 'it''s a;\nb');",
    "a comment in a literal": "create table notes (n integer, t text default 'a\n-- b\nc');",
    "a semicolon in a comment": "/* a;\n b */ create table notes (n integer, -- a;\n t text) /* c; */;",
    "a semicolon in a name": 'create table notes (n integer, t text, "a;b" text);',
    "a byte-order mark": "\ufeffcreate table notes (n integer, t text);",
}


@pytest.mark.parametrize("sql", NOTES.values(), ids=NOTES)
def test_every_statement_of_a_file_is_applied_as_it_was_written(sql: str, blank_url: str, tmp_path: Path) -> None:
    with opened(blank_url) as store:
        migrate(store, apps={"notes": file(tmp_path, sql)})
        store.query("insert into notes (n) values (1)", {})
        ((text,),) = store.query("select t from notes", {})
        assert text == {"a semicolon in a literal": "it's a;\nb", "a comment in a literal": "a\n-- b\nc"}.get(
            next(name for name, each in NOTES.items() if each == sql)
        )


BODIES = {
    "sqlite": """CREATE TEMP TRIGGER unused AFTER INSERT ON notes BEGIN SELECT 1; END;
CREATE TRIGGER louder AFTER INSERT ON notes
BEGIN
  UPDATE notes SET n = CASE WHEN n < 5 THEN n * 2 ELSE 0 END;
  UPDATE notes SET n = n + 1;
END;""",
    "postgres": r"""create function louder(n integer) returns integer language plpgsql as $body$
begin
  n := n * 2; -- it's $$
  return n + length(E'\';');
end; $body$;
create function quiet(n integer) returns integer begin atomic select 1; select n; end;
create function loud() returns trigger language plpgsql as $$ begin new.n := louder(new.n) - 1; return new; end $$;
create trigger louder before insert on notes for each row execute function loud();""",
}


def test_the_body_of_a_trigger_or_a_function_is_one_statement(blank_url: str, tmp_path: Path) -> None:
    with opened(blank_url) as store:
        sql = f"create table notes (n integer);\n{BODIES[dialect_of(store)]}\ncreate table more (n integer);"
        migrate(store, apps={"notes": file(tmp_path, sql)})
        store.query("insert into notes (n) values (1)", {})
        assert store.query("select n from notes", {}) == [(3,)]
        assert store.query("select n from more", {}) == []


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("create tabel x (n integer);", "syntax error"),
        ("create table x (n integer);\nCOMMIT;\ncreate table y (n integer);", "must not contain COMMIT"),
        ("create table x (n integer); savepoint s;", "must not contain SAVEPOINT"),
        ("-- nothing;\n", "it has no statement"),
        ("create view x as select n from nowhere_at_all;\nselect * from x;", "nowhere_at_all"),
        ("create table x (n integer primary key);\ninsert into x values (1), (1);", "it violates x"),
    ],
)
def test_a_file_that_cannot_be_applied_is_named_at_once_and_leaves_nothing(
    sql: str, complaint: str, blank_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it tries again what cannot succeed"))
    apps = {"notes": file(tmp_path, sql)}
    with opened(blank_url) as store:
        migrate(store)
        message = f"migration 0001_first.sql of the app notes cannot be applied: .*{complaint}"
        with pytest.raises(StoreError, match=message) as raised:
            migrate(store, apps=apps)
        assert not isinstance(raised.value, NotMigrated | StoreUnavailable)
        assert "run `duly migrate`" not in str(raised.value)
        assert versions(store, apps) == {"": latest(store)}
        store.query("create table x (n integer)", {})


def test_alembic_names_the_file_that_it_cannot_apply(
    blank_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(blank_url) as store:
        migrate(store)
    engine = _engine_for(blank_url)
    with pytest.raises(StoreError, match=r"0001_first\.sql of the app notes cannot be applied"), engine.begin() as on:
        upgrade_apps(on, {"notes": file(tmp_path, "create tabel x (n integer);")})


def test_while_the_database_is_away_no_further_plug_in_is_tried(blank_postgres_url: str, tmp_path: Path) -> None:
    lost = file(tmp_path / "lost", "select pg_terminate_backend(pg_backend_pid());")
    apps = {"lost": lost, "notes": folder(tmp_path / "notes", "0001_first.sql")}
    with opened(blank_postgres_url) as store:
        with pytest.raises(StoreUnavailable, match=r"migration 0001_first\.sql of the app lost cannot be applied"):
            migrate(store, patience=0, apps=apps)
        assert "notes" not in versions(store, apps)


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    folder(tmp_path, "0001_first.sql")
    (tmp_path / "sqlite" / "0001_first.sql").write_bytes("create table žir (n integer);".encode("cp1250"))
    with pytest.raises(ConfigError, match=r"0001_first\.sql of notes is not UTF-8"):
        migrations("sqlite", tmp_path, "notes")


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
