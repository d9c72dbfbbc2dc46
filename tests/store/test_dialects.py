"""A further store: one class, a folder of SQL, its migrations, and one line that registers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duly.core.errors import ConfigError
from duly.core.model import Done
from duly.store import Store, dialects, open_store
from duly.store.migrate import check, current, dialect_of, latest, migrate
from duly.store.sqlite import Sqlite
from duly.store.sqlite.store import SqliteStore
from tests.conformance import test_claim, test_put, test_schedules, test_settle
from tests.support import claim, opened, put, settle


class DrawerStore(SqliteStore):
    """Keeps its file in a drawer."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__(path, timeout, "OFF")
        self.url = f"drawer:///{path}"

    def twin(self, timeout: float | None = None) -> DrawerStore:
        return DrawerStore(self.path, self._timeout)


class Drawer(Sqlite):
    name = "drawer"
    schemes = ("drawer",)
    aliases = ("drawer",)

    def open(self, url: str, *, timeout: float, pool_size: int, listen: bool) -> Store:
        return DrawerStore(url.removeprefix("drawer:///"), timeout)


@pytest.fixture
def drawer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(dialects, "_DIALECTS", dict(dialects._DIALECTS))
    dialects.register(Drawer())
    return f"drawer:///{tmp_path}/duly.db"


@pytest.fixture
def store(drawer: str) -> Iterator[Store]:
    with opened(drawer) as one:
        migrate(one)
        yield one


def test_a_registered_store_is_opened_by_its_scheme_and_migrated_by_its_own_files(drawer: str) -> None:
    with opened(drawer) as store:
        assert isinstance(store, DrawerStore)
        assert dialect_of(store) == "drawer"
        assert current(store) == 0
        migrate(store)
        check(store)
        assert current(store) == latest(store) > 0
        put(store, 3)
        settle(store, claim(store), Done())


def test_what_nobody_registered_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'drawer' is not known"):
        open_store(f"drawer:///{tmp_path}/duly.db")
    assert dialects.called("drawer") is None


def conforming(*modules: Any) -> list[Any]:
    """The tests of the conformance suite that need nothing but a store."""
    found = [getattr(module, name) for module in modules for name in dir(module) if name.startswith("test_")]
    return [test for test in found if test.__code__.co_varnames[: test.__code__.co_argcount] == ("store",)]


@pytest.mark.parametrize(
    "conforms", conforming(test_put, test_claim, test_settle, test_schedules), ids=lambda test: test.__name__
)
def test_a_registered_store_is_held_to_the_same_contract(conforms: Any, store: Store) -> None:
    conforms(store)
