"""Numbered SQL files per database, forward only, each applied once and in a transaction of its own.

`duly migrate` and `alembic upgrade head` both use this, so whichever runs first, the other finds the work done.
Migrators wait for one another. A migration that cannot get its locks within two seconds gives up and tries again, so
that workers do not wait behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from msgspec import Struct

from duly.core.errors import NotMigrated, StoreUnavailable
from duly.store import dialects
from duly.store.contract import Store

T = TypeVar("T")

LEDGER = """
create table if not exists duly_migration (
    version     integer primary key,
    name        text not null,
    applied_at  timestamp not null default current_timestamp
)
"""
VERSION = "select coalesce(max(version), 0) from duly_migration"
# Formatted, since no style of parameters fits every driver that may run this; the values are our own file names.
_APPLIED = "insert into duly_migration (version, name) values ({:d}, '{:.200}')"


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str


def migrations(dialect: str, folder: Traversable | None = None) -> list[Migration]:
    """The migrations of one dialect in order: its own, or those in the folder of its name in another place."""
    own = dialects.named(dialect).migrations if folder is None else folder / dialect
    found = sorted((file for file in own.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name[:-4], file.read_text(encoding="utf8")) for file in found]


def dialect_of(store: Store) -> str:
    """The name of the database that a store is on."""
    dialect = dialects.of_url(store.url)
    assert dialect is not None, "it could not have been opened"
    return dialect.name


def migrate(
    store: Store,
    folder: Traversable | None = None,
    tell: Callable[[str], None] = lambda _: None,
    patience: float = 60.0,
) -> list[str]:
    """Bring the schema up to date; returns the names of what was applied."""

    def act(migration: Migration) -> bool:
        with store.migrations() as connection:
            return apply(connection, migration)

    done = []
    # Look first: that needs no lock, and nearly always there is nothing to do.
    have = _patiently(partial(current, store), patience)
    for migration in migrations(dialect_of(store), folder):
        if migration.version > have and _patiently(partial(act, migration), patience):
            tell(migration.name)
            done.append(migration.name)
    return done


def _patiently(act: Callable[[], T], patience: float) -> T:
    give_up = time.monotonic() + patience
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def apply(connection: Any, migration: Migration) -> bool:
    """Run one migration on a connection inside a transaction; False when it was applied before."""
    if version_on(connection) >= migration.version:
        return False
    for statement in statements_of(migration):
        connection.execute(statement)
    return True


def statements_of(migration: Migration) -> Iterator[str]:
    """The statements of a migration, and the one that notes that it was applied."""
    yield from statements(migration.sql)
    yield _APPLIED.format(migration.version, migration.name)


def statements(sql: str) -> Iterator[str]:
    """The statements of a file: each ends with a semicolon at the end of a line, outside the body of a function."""
    lines: list[str] = []
    for line in sql.splitlines():
        if not line.lstrip().startswith("--"):
            lines.append(line)
        text = "\n".join(lines).strip()
        is_trigger = text.startswith("create trigger") and "\nbegin\n" in text
        if text.endswith(";") and text.count("$$") % 2 == 0 and (not is_trigger or text.endswith("\nend;")):
            yield text.removesuffix(";") if not is_trigger else text
            lines = []


def version_on(connection: Any) -> int:
    """The version of the schema, on a connection inside a transaction; creates the table of migrations if missing."""
    connection.execute(LEDGER)
    return int(connection.execute(VERSION).fetchone()[0])


def current(store: Store) -> int:
    """The version of the database's schema; 0 when it has none."""
    try:
        return int(store.read("schema_version", {})[0][0])
    except NotMigrated:
        return 0


def latest(store: Store) -> int:
    return migrations(dialect_of(store))[-1].version


def check(store: Store) -> None:
    """Refuse to work on a schema that is older than this code. A newer one is fine: migrations only add."""
    have, need = current(store), latest(store)
    if have < need:
        raise NotMigrated(f"the database is at migration {have}, this version of duly needs {need}: run `duly migrate`")
