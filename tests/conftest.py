"""Real databases for every test: one PostgreSQL database per worker process, one SQLite file per test.

`store` and `database_url` run a test on both kinds; `postgres_url` and `sqlite_url` give one kind. All are migrated and
empty. Asking twice in one test, by whatever name, gives the same database.

Files, and tests within a file, run in an order that DULY_TEST_SEED decides; tools/test sets and prints it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest
from coverage import Coverage

import legs
from duly.store import Store
from duly.store.migrate import migrate
from tests.support import app_migrations, fresh_database, opened

pytest_plugins = ["tests.rabbit"]

KINDS = ("sqlite", "postgres")
BEGUN = pytest.StashKey[float]()

# Small tables are emptied faster by a delete. Identities go on counting: a fence is never used twice, not even by two
# tests.
EMPTY = r"""
do $$
declare
    name text;
begin
    set local session_replication_role = replica;
    for name in select relname from pg_class
                 where relkind in ('r', 'p') and relname like 'duly\_%' and relname not like 'duly%migration'
                   and relname <> 'duly_database'
                   and relnamespace = current_schema()::regnamespace loop
        if pg_relation_size(name::regclass) > 500000 then
            execute format('truncate %I continue identity cascade', name);
        else
            execute format('delete from %I', name);
        end if;
    end loop;
end $$
"""


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of a server on which tests may create databases."""
    url = os.environ.get("DULY_TEST_POSTGRES")
    if not url:
        raise pytest.UsageError(
            "DULY_TEST_POSTGRES is not set: run the tests with tools/test, which starts a private PostgreSQL, "
            "or point it at a server on which databases may be created"
        )
    return url


@pytest.fixture(scope="session")
def worker_database(postgres_server: str) -> Iterator[str]:
    """The URL of this worker process's own database, migrated once; `postgres_url` empties it for each test."""
    with fresh_database(postgres_server) as url:
        with opened(url) as store:
            migrate(store, apps=app_migrations())
        yield url


@pytest.fixture
def blank_postgres_url(postgres_server: str) -> Iterator[str]:
    """A database without any of our tables."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_url(worker_database: str) -> str:
    with psycopg.connect(worker_database, autocommit=True) as connection:
        connection.execute(EMPTY)
    return worker_database


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "duly.db"
    with opened(f"sqlite:///{path}") as store:
        migrate(store, apps=app_migrations())
    return path


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    path = tmp_path / "duly.db"
    shutil.copy(migrated_file, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=KINDS)
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that nobody migrated."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'blank.db'}"
    url: str = request.getfixturevalue("blank_postgres_url")
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with opened(database_url) as one:
        yield one


@pytest.fixture
def other(store: Store) -> Iterator[Store]:
    """A second store on the same database, as another process has it."""
    twin = store.twin()
    yield twin
    twin.close()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a parameter of bytes by how many they are: a zip file has the time in it, and is another one next minute."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this leg, if tools/test runs the whole suite in legs, and put them in their order."""
    if (leg := os.environ.get(legs.VARIABLE)) is not None:
        here = [legs.leg_of(item.path.relative_to(legs.ROOT), "postgres" in _parameters(item)) == leg for item in items]
        config.hook.pytest_deselected(items=[item for item, is_kept in zip(items, here, strict=True) if not is_kept])
        items[:] = [item for item, is_kept in zip(items, here, strict=True) if is_kept]
    _shuffle(items)


def _parameters(item: pytest.Item) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return list(callspec.params.values()) if callspec else []


def _shuffle(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests of each file, in the same way in every worker process.

    Before pytest brings together the tests that share a costly fixture of several parameters.
    """
    seed = os.environ.get("DULY_TEST_SEED")
    if seed is None:
        return
    shuffled = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    shuffled.shuffle(files)
    for tests in files:
        shuffled.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write what was measured now: on a busy machine, xdist may kill a process that does so at its exit."""
    if (measuring := Coverage.current()) is not None:
        measuring.stop()
        measuring.save()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGUN] = _processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Record how much processor time a test took, for tools/minutes.py."""
    yield
    item.user_properties.append(("processor", f"{_processor_time() - item.stash[BEGUN]:.2f}"))


def _processor_time() -> float:
    """Seconds of this process and of those that it started and that ended."""
    return sum(os.times()[:4])
