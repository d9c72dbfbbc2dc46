"""URLs: which store they open, and what is said about those that open none."""

import sqlite3
import sys
from pathlib import Path

import pytest

from duly.core.errors import ConfigError, StoreError, StoreUnavailable
from duly.store import open_store
from duly.store.migrate import migrate
from tests.support import opened, put, query


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://host/db", "'mysql' is not known; use sqlite:///file.db or postgresql://"),
        ("duly.db", "'duly.db' is not known"),
        ("sqlite://", "SQLite needs a file"),
        ("sqlite:///", "SQLite needs a file"),
        ("sqlite:///:memory:", "SQLite needs a file"),
        ("sqlite:///x.db?synchronous=sometimes", "unknown option 'synchronous=sometimes'"),
        ("sqlite:///x.db?colour=red", "unknown option 'colour=red'"),
    ],
)
def test_a_bad_url_names_the_setting_and_what_would_do(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^database_url: ") as refused:
        open_store(url)
    assert said in str(refused.value)


def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duly.store.postgres.store", None)
    with pytest.raises(ConfigError, match=r"pip install 'duly\[postgres\]'"):
        open_store("postgresql://127.0.0.1/x")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_both_spellings_of_postgresql_are_known(postgres_url: str, scheme: str) -> None:
    with opened(postgres_url.replace("postgresql:", f"{scheme}:")) as store:
        assert put(store)


def test_a_relative_file_is_beside_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with opened("sqlite:///some%20place.db") as store:
        migrate(store)
    assert (tmp_path / "some place.db").exists()


@pytest.mark.parametrize(("option", "level"), [("", 2), ("?synchronous=normal", 1), ("?synchronous=off", 0)])
def test_a_file_is_safe_against_power_loss_unless_told_otherwise(sqlite_url: str, option: str, level: int) -> None:
    with opened(sqlite_url + option) as store, opened(sqlite_url + option) as first:
        assert query(store, "pragma synchronous") == [(level,)]
        twin = first.twin()
        assert query(twin, "pragma synchronous") == [(level,)], "and so is a twin"
        twin.close()


def test_a_folder_that_is_not_there_is_told_with_the_path(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/nowhere/duly.db") as store, pytest.raises(StoreUnavailable, match="nowhere"):
        store.survey()


def test_a_file_that_is_not_a_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "duly.db"
    path.write_text("dear diary, " * 100)
    with opened(f"sqlite:///{path}") as store:
        for act in (store.survey, lambda: put(store)):
            with pytest.raises(StoreError, match=r"duly.db is not a SQLite database"):
                act()
    assert path.read_text() == "dear diary, " * 100


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with opened("postgresql://duly@127.0.0.1:1/none", timeout=0.2) as store:
        for act in (store.survey, store.now, lambda: put(store), lambda: put(store, 2)):
            with pytest.raises(StoreUnavailable, match="cannot reach the database"):
                act()


def test_a_file_locked_by_a_stranger_is_unavailable_until_it_is_free(sqlite_url: str) -> None:
    stranger = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with opened(sqlite_url, timeout=0.05) as store:
        stranger.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="locked"):
            put(store)
        stranger.execute("rollback")
        assert put(store)
    stranger.close()
