"""A connection to another database than the app's is rejected, with both names, and nothing is written anywhere."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest

from duly import Duly, InputError
from duly.core.errors import NotMigrated
from duly.store import home
from duly.store.dialects import at_once, every
from duly.store.home import HOMES, Remembered
from duly.store.migrate import migrate
from tests.borrow.callers import POSTGRES, SQLITE, OwnConnection, play
from tests.support import fresh_database, opened

CALLERS = {**POSTGRES, **SQLITE}


def app_on(url: str, **settings: Any) -> Duly:
    app = Duly(url, **settings)

    @app.task(name="ring")
    def ring(note: str) -> None: ...

    return app


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as light:
        return {row[0] for row in light.execute("select name from sqlite_master where type = 'table'")}


def refused(app: Duly, connection: Any) -> str:
    """What the error says, which all kinds of puts raise alike."""
    task = app.task_named("ring").options(connection=connection)
    said = set()
    for put in (lambda: task.put(note="a"), lambda: task.put_many([{"note": "a"}]), lambda: app.job(task, [])):
        with pytest.raises(InputError, match=r"^connection: is to the ") as error:
            put()
        said.add(str(error.value))
    (text,) = said
    return text


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = app_on(database_url)
    yield app
    assert app.read.page() == []
    app.close()


@pytest.mark.parametrize("name", CALLERS)
def test_a_connection_to_a_database_of_another_kind_is_rejected_by_every_library(
    postgres_url: str, sqlite_url: str, name: str
) -> None:
    own, other = (sqlite_url, postgres_url) if name in POSTGRES else (postgres_url, sqlite_url)
    app = app_on(own)

    async def story() -> None:
        async with CALLERS[name](other, app.task_named("ring")) as caller:
            for put in (
                lambda: caller.put(note="a"),
                lambda: caller.put_many([{"note": "a"}]),
                lambda: caller.job(app, [{"note": "a"}]),
            ):
                with pytest.raises(InputError, match=r"^connection: is to the (PostgreSQL database|SQLite file) "):
                    await put()
            await caller.execute("create table still_works (id integer)")  # the transaction is not aborted
            await caller.rollback()

    play(story(), name)
    assert app.read.page() == []
    app.close()


def test_both_databases_are_named_without_secrets(postgres_url: str, sqlite_url: str) -> None:
    secret = postgres_url.replace("@", ":s3cret@", 1)
    app = app_on(secret)
    with closing(sqlite3.connect(path_of(sqlite_url))) as light:
        said = refused(app, light)
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    assert f"is to the SQLite file {path_of(sqlite_url)}, but this app works on postgresql://" in said
    assert f"/{name}; use a connection to that one, or give the app the other one (DULY_DATABASE_URL)" in said
    assert "s3cret" not in said
    app.close()
    app = app_on(sqlite_url)
    with psycopg.connect(postgres_url) as other:
        said = refused(app, other)
    assert f"is to the PostgreSQL database {name}, schema public, " in said
    assert f"but this app works on sqlite:///{path_of(sqlite_url)}; " in said
    app.close()


# -- SQLite


def test_another_file_is_rejected_and_gets_no_tables(sqlite_url: str, tmp_path: Path) -> None:
    app, other = app_on(sqlite_url), tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as light:
        light.execute("create table mine (id integer)")
        said = refused(app, light)
        light.commit()
    assert f"is to the SQLite file {other}, but this app works on the SQLite file {path_of(sqlite_url)};" in said
    assert tables(other) == {"mine"}
    with closing(sqlite3.connect(":memory:")) as light:
        assert "is to the SQLite database in memory, but" in refused(app, light)
        assert light.execute("select count(*) from sqlite_master").fetchone() == (0,)
    app.close()


def test_a_file_is_the_same_by_any_name_and_a_copy_of_it_is_another(sqlite_url: str, tmp_path: Path) -> None:
    app, path = app_on(sqlite_url), path_of(sqlite_url)
    app.read.page()
    (tmp_path / "soft.db").symlink_to(path)
    shutil.copy(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(f"file:{tmp_path}/./soft.db?cache=private", uri=True)) as same, same:
        app.task_named("ring").options(connection=same).put(note="a")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as other:
        assert "copy.db, but this app" in refused(app, other)
        assert other.execute("select count(*) from duly_item").fetchone() == (0,)
    assert len(app.read.page()) == 1
    app.close()


def test_an_attached_file_counts_if_the_tables_are_found_in_it(sqlite_url: str, tmp_path: Path) -> None:
    app, shop = app_on(sqlite_url), tmp_path / "shop.db"
    app.read.page()
    task = app.task_named("ring")
    with closing(sqlite3.connect(shop)) as own:
        own.execute("create table sale (id integer)")
        own.execute("attach ? as work", [str(path_of(sqlite_url))])
        with own:
            own.execute("insert into sale values (1)")
            task.options(connection=own).put(note="a")
            task.options(connection=own).put_many([{"note": "b"}])
    assert [row.args for row in app.read.page()] == [{"note": "b"}, {"note": "a"}]
    assert tables(shop) == {"sale"}
    shutil.copy(path_of(sqlite_url), tmp_path / "second.db")
    with closing(sqlite3.connect(tmp_path / "second.db")) as own:  # its own tables come first
        own.execute("attach ? as work", [str(path_of(sqlite_url))])
        assert "second.db, but" in refused(app, own)
    app.close()


def test_a_file_that_was_made_again_is_found_again(sqlite_url: str) -> None:
    path = path_of(sqlite_url)
    app = app_on(f"sqlite:///{path.with_name('fresh.db')}")
    task = app.task_named("ring")
    for note in "ab":  # as a test suite does
        with closing(sqlite3.connect(path.with_name("fresh.db"))) as own, own:
            task.options(connection=own).put(note=note)
        with closing(sqlite3.connect(path.with_name("fresh.db"))) as own:
            assert own.execute("select count(*) from duly_item").fetchone() == (1,)
        path.with_name("fresh.db").unlink()


# -- PostgreSQL


def test_another_database_of_the_server_is_rejected_be_it_migrated_a_copy_or_blank(
    postgres_server: str, postgres_url: str
) -> None:
    app = app_on(postgres_url)
    with fresh_database(postgres_server) as other:
        name = other.rpartition("/")[2].partition("?")[0]
        with psycopg.connect(other) as blank:
            assert f"is to the PostgreSQL database {name}, schema public," in refused(app, blank)
            blank.execute("create table still_works (id integer)")
        with opened(other) as store:
            migrate(store)
        with psycopg.connect(other) as migrated:
            assert name in refused(app, migrated)
            assert migrated.execute("select count(*) from duly_item").fetchone() == (0,)
            blank_app = app_on(other)
            assert blank_app.task_named("ring").options(connection=migrated).put(note="a").fresh
            migrated.rollback()
            blank_app.close()
        assert app.read.page() == []
    app.close()


def test_two_schemas_are_two_databases_and_a_copy_on_another_server_has_to_get_its_own_id(
    blank_postgres_url: str,
) -> None:
    with psycopg.connect(blank_postgres_url, autocommit=True) as own:
        own.execute("create schema a; create schema b")
    mark = "&" if "?" in blank_postgres_url else "?"
    urls = [f"{blank_postgres_url}{mark}options=-csearch_path%3D{name}" for name in "ab"]
    apps = [app_on(url) for url in urls]
    for app in apps:
        app.migrate()
    with psycopg.connect(urls[0]) as own:
        apps[0].task_named("ring").options(connection=own).put(note="a")
        said = refused(apps[1], own)
        assert "schema a, " in said
        assert "schema b, " in said
        own.execute("set search_path to b")  # a connection that goes from tenant to tenant
        apps[1].task_named("ring").options(connection=own).put(note="b")
    assert [[row.args for row in app.read.page()] for app in apps] == [[{"note": "a"}], [{"note": "b"}]]
    with psycopg.connect(urls[0]) as own:  # a copy of a whole server has the same places, so its id has to be renewed
        own.execute("update duly_database set id = default")
        said = refused(apps[0], own)
        assert said.count("schema a, ") == 2
        own.rollback()
    for app in apps:
        app.close()


def test_a_role_that_may_only_put_is_told_apart_by_the_place(postgres_url: str) -> None:
    app = app_on(postgres_url)
    with psycopg.connect(postgres_url) as own:
        own.execute("create role putter")
        own.execute("grant select, insert on duly_item to putter; grant usage on schema public to putter")
        own.execute("set local role putter")
        assert app.task_named("ring").options(connection=own).put(note="a").fresh
        own.rollback()
    app.close()


def test_a_schema_that_was_created_again_under_a_running_app_is_found_again(blank_postgres_url: str) -> None:
    app = app_on(blank_postgres_url)
    with psycopg.connect(blank_postgres_url) as own:
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            app.task_named("ring").options(connection=own).put_many([{"note": "a"}])
        for _ in range(2):
            own.execute("drop schema public cascade")
            own.execute("create schema public")
            own.commit()
            app.migrate()
            app.task_named("ring").options(connection=own).put(note="a")
            own.commit()
            assert len(app.read.page()) == 1
    app.close()


# -- once per connection


@pytest.mark.parametrize("name", CALLERS)
def test_a_connection_is_asked_once_and_forgotten_when_it_is_gone(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    app = app_on(request.getfixturevalue("postgres_url" if name in POSTGRES else "sqlite_url"))
    known: Remembered[Any] = Remembered()
    monkeypatch.setattr(home, "HOMES", known)
    asked = []
    for dialect in every():
        locate = dialect.locate
        monkeypatch.setattr(dialect, "locate", lambda ask, locate=locate: asked.append(1) or locate(ask))
    app.internals.store.home()
    asked.clear()

    async def story() -> None:
        async with CALLERS[name](app.settings.database_url, app.task_named("ring")) as caller:
            for _ in range(3):
                await caller.put(note="a")
                await caller.put_many([{"note": "a"}])
            assert len(known) == 1
            await caller.rollback()

    play(story(), name)
    gc.collect()
    assert len(known) == 0
    assert len(asked) <= 2  # and once more for the app, as it is looked up anew when a connection is not known
    app.close()


def test_what_is_known_of_a_connection_ends_with_it() -> None:
    known: Remembered[str] = Remembered()
    light, own = sqlite3.connect(":memory:"), OwnConnection.__new__(OwnConnection)
    known.set(light, "a")
    known.set(light, "b")
    assert (known.get(light), known.get(5), len(known)) == ("b", None, 1)
    known.set(5, "nothing can be attached to a number")
    assert known.get(5) is None
    light.close()
    assert (known.get(light), len(known)) == (None, 0)
    del own
    assert HOMES is not known


# -- acts


def test_acts_on_a_connection_to_another_database_are_rejected(app: Duly, postgres_server: str, tmp_path: Path) -> None:
    if app.settings.database_url.startswith("sqlite"):
        shutil.copy(path_of(app.settings.database_url), tmp_path / "copy.db")
        with (
            closing(sqlite3.connect(tmp_path / "copy.db")) as other,
            pytest.raises(InputError, match=r"^connection: is to the SQLite file .*copy\.db, but"),
        ):
            app.pause("ring", connection=other)
        return
    with fresh_database(postgres_server) as url:
        with opened(url) as store:
            migrate(store)
        with psycopg.connect(url) as other, pytest.raises(InputError, match=r"^connection: is to the PostgreSQL"):
            app.pause("ring", connection=other)


def test_an_async_caller_is_told_the_same(app: Duly) -> None:
    async def story() -> None:
        async with aiosqlite.connect(":memory:") as other:
            with pytest.raises(InputError, match="SQLite database in memory, but this app works on"):
                await app.task_named("ring").options(connection=other).aput(note="a")

    asyncio.run(story())


def test_an_app_whose_file_does_not_exist_is_no_other_database(tmp_path: Path) -> None:
    app = app_on(f"sqlite:///{tmp_path / 'none.db'}")
    with closing(sqlite3.connect(tmp_path / "some.db")) as own:
        assert "none.db, which does not exist; use" in refused(app, own)
    assert not (tmp_path / "none.db").exists()


def test_what_has_to_wait_is_not_run_at_once() -> None:
    with pytest.raises(AssertionError, match="it waited"):
        at_once(asyncio.sleep(0))
