"""Migrations: each file once, in order, one migrator at a time, while workers work."""

import sqlite3
import threading
from functools import partial
from pathlib import Path

import psycopg
import pytest

from duly.core.errors import StoreUnavailable
from duly.core.model import Done, NewSchedule, Snooze
from duly.plugins import plugins
from duly.store import Store
from duly.store import migrate as migrating
from duly.store.migrate import check, current, dialect_of, latest, migrate, migrations
from tests.support import NOW, after, claim, counts, is_sqlite, new, opened, put, query, settle, show, together

OURS = len(migrations("sqlite"))
MORE, EVEN_MORE = f"{OURS + 1:04}_more", f"{OURS + 2:04}_even_more"
LATER = {
    MORE: """
-- Adds what a later version wants.
alter table duly_item add column colour text;

create index duly_item_colour on duly_item (colour) where colour is not null;
""",
    EVEN_MORE: "create table duly_extra (id integer primary key);\n",
}


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The folder of a later version: our migrations and two more."""
    for dialect in ("sqlite", "postgres"):
        folder = tmp_path / "later" / dialect
        folder.mkdir(parents=True)
        for migration in migrations(dialect):
            (folder / f"{migration.name}.sql").write_text(migration.sql)
        for name, text in LATER.items():
            (folder / f"{name}.sql").write_text(text)
        (folder / "README").write_text("not a migration")
    return tmp_path / "later"


def ledger(store: Store) -> list[tuple[int, str]]:
    return [(row[0], row[1]) for row in query(store, "select version, name from duly_migration order by version")]


def test_a_blank_database_is_brought_up_to_date(blank_url: str) -> None:
    with opened(blank_url) as store:
        assert current(store) == 0
        told: list[str] = []
        names = [migration.name for migration in migrations(dialect_of(store))]
        assert migrate(store, tell=told.append) == told == names
        assert current(store) == latest(store)
        check(store)
        assert put(store)


def test_migrating_twice_changes_nothing(store: Store) -> None:
    before = ledger(store)
    put(store)
    assert migrate(store) == []
    assert ledger(store) == before
    assert counts(store) == {"waiting": 1}


def test_two_migrators_at_once_apply_the_schema_once(blank_url: str) -> None:
    with opened(blank_url) as store, opened(blank_url) as other:
        applied: list[str] = []
        start = threading.Barrier(2)

        def run(mine: Store) -> None:
            start.wait()
            applied.extend(migrate(mine))

        together(partial(run, store), partial(run, other))
        assert sorted(applied) == [name for _, name in ledger(store)]
        assert [migration.name for migration in migrations(dialect_of(store))] == sorted(applied)


def test_both_databases_have_the_same_migrations() -> None:
    names = {dialect: [migration.name for migration in migrations(dialect)] for dialect in ("sqlite", "postgres")}
    assert names["sqlite"] == names["postgres"]
    assert [int(name[:4]) for name in names["sqlite"]] == list(range(1, len(names["sqlite"]) + 1))


def test_acts_that_were_ordered_before_they_had_a_table_of_their_name_are_kept(blank_url: str, later: Path) -> None:
    with opened(blank_url) as store:
        for file in (later / dialect_of(store)).iterdir():
            if file.name >= "0007":
                file.unlink()
        migrate(store, later)
        at = "0" if is_sqlite(store) else "now()"
        query(
            store,
            "insert into duly_bulk (author, action, filter, options, total, until, created_at) "
            f"values ('ana', 'cancel', '{{}}', '{{}}', 3, 9, {at}) returning id",
        )
        assert "0007_acts" in migrate(store)
        assert query(store, "select author, action, total from duly_act") == [("ana", "cancel", 3)]
        assert query(store, "select author, action, total from duly_bulk") == [("ana", "cancel", 3)]
        if not is_sqlite(store):  # a process of the version before goes on with acts of its own
            (made,) = query(
                store,
                "insert into duly_bulk (author, action, filter, options, total, until, created_at) "
                "values ('bob', 'retry', '{}', '{}', 1, 9, now()) returning id, state",
            )
            assert query(store, f"update duly_bulk set seen = 1 where id = {made[0]} returning state") == [("running",)]
            assert query(store, "select author, seen from duly_act order by id") == [("ana", 0), ("bob", 1)]


def test_only_birthdays_of_the_app_lose_those_that_are_long_over(blank_url: str, later: Path) -> None:
    with opened(blank_url) as store:
        for file in (later / dialect_of(store)).iterdir():
            if file.name >= "0010":
                file.unlink()
        migrate(store, later)
        kinds = {
            "app": ("birthdays", '{"person_id": "ana"}'),
            "queue": ("mine", '{"person_id": "ana"}'),
            "args": ("birthdays", "{}"),
        }
        made = [
            NewSchedule(
                task="birthday", key=key, queue=queue, args=args.encode(), rule="0 9 * * *", zone="UTC", next_at=NOW
            )
            for key, (queue, args) in kinds.items()
        ]
        store.enroll(made, lambda *_: ("", NOW))
        folder = plugins()["birthdays"].migrations
        assert folder is not None
        assert "birthdays/0001_views" in migrate(store, apps={"birthdays": folder})
        found = dict(query(store, "select key, max_lateness from duly_schedule"))
        assert found == {"app": 604_800, "queue": None, "args": None}


def test_a_newer_schema_is_fine_because_migrations_only_add(blank_url: str, later: Path) -> None:
    with opened(blank_url) as store:
        migrate(store, later)
        check(store)
        assert current(store) == latest(store) + 2
        put(store)
        settle(store, claim(store), Done())
        assert counts(store) == {"done": 1}


def test_a_migration_that_fails_leaves_nothing_of_itself(blank_url: str, later: Path) -> None:
    with opened(blank_url) as store:
        migrate(store)
        file = later / dialect_of(store) / f"{EVEN_MORE}.sql"
        file.write_text("create table duly_extra (id integer primary key);\ninsert into duly_extra values (1), (1);\n")
        with pytest.raises(Exception, match="violates duly_extra"):
            migrate(store, later)
        assert current(store) == latest(store) + 1, "what came before it stays"
        file.write_text("create table duly_extra (id integer primary key);\n")
        assert migrate(store, later) == [EVEN_MORE]


def test_workers_work_on_while_a_migration_is_applied(blank_url: str, later: Path) -> None:
    with opened(blank_url) as store, opened(blank_url) as other:
        migrate(store)
        warm, migrated = threading.Event(), threading.Event()
        rounds = 0

        def work() -> None:
            nonlocal rounds
            left = 5  # rounds after the migration: statements that were prepared before it must go on
            while left:
                left -= migrated.is_set()
                work_once(store)
                rounds += 1
                if rounds == 5:
                    warm.set()

        def change() -> None:
            warm.wait()
            try:
                assert migrate(other, later) == [MORE, EVEN_MORE]
            finally:
                migrated.set()

        together(work, change)
        assert counts(store) == {"done": rounds * 4}


def work_once(store: Store) -> None:
    """Every statement of a worker's life."""
    ids = put(store) + put(store, 2)
    store.load([new()])
    store.survey()
    items = claim(store)
    assert store.extend({items[0].fence: [item.id for item in items]}, NOW, after(30)) == []
    store.report(items[0].id, items[0].fence, b"1")
    store.expired(after(60), 10)
    store.fetch(ids)
    show(store, ids[0])
    store.read("depth", {"now": NOW})
    settle(store, items[0], Snooze(0))
    (again,) = claim(store)
    settle(store, [again, *items[1:]], Done(), closed=[items[0].fence, again.fence])
    store.prune(after(-60), 0, 10)


def test_a_migration_that_cannot_get_its_locks_steps_back_and_tries_again(
    blank_url: str, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(blank_url, timeout=0.2) as store:
        migrate(store)
        if is_sqlite(store):
            blocker = sqlite3.connect(blank_url.removeprefix("sqlite:///"), isolation_level=None)
            blocker.execute("begin immediate")
        else:
            blocker = psycopg.connect(blank_url)
            blocker.execute("lock table duly_item in access share mode")
        naps: list[float] = []

        def nap(seconds: float) -> None:
            naps.append(seconds)
            blocker.rollback()

        monkeypatch.setattr(migrating.time, "sleep", nap)
        try:
            assert migrate(store, later) == [MORE, EVEN_MORE]
        finally:
            blocker.close()
        assert len(naps) == 1


def test_a_migrator_without_patience_gives_up_when_the_database_is_away(blank_url: str) -> None:
    url = "sqlite:////no/such/folder/duly.db" if blank_url.startswith("sqlite") else "postgresql://127.0.0.1:1/none"
    with opened(url, timeout=0.1) as store, pytest.raises(StoreUnavailable):
        migrate(store, patience=0)
