"""Numbered SQL files per database, forward only, each applied once and in a transaction of its own.

`duly migrate` and `alembic upgrade head` end here, so whichever runs first, the other finds the work done. Migrators
queue up behind one another; a migration that cannot get its locks in two seconds steps back and tries again, so live
work never piles up behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from msgspec import Struct

from duly.errors import NotMigrated, StoreUnavailable
from duly.store.base import Store

_LEDGER = """
create table if not exists duly_migration (
    version     integer primary key,
    name        text not null,
    applied_at  timestamp not null default current_timestamp
)
"""
# Version and name come from our own file names; no parameter style fits every driver that may carry this.
_APPLIED = "insert into duly_migration (version, name) values ({:d}, '{:.200}')"


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str


def migrations(dialect: str, folder: Traversable | None = None) -> list[Migration]:
    """The files of one dialect, in order."""
    folder = folder or files("duly.store") / "migrations"
    found = sorted((file for file in (folder / dialect).iterdir() if file.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(file.name[:4]), file.name[:-4], file.read_text(encoding="utf8")) for file in found]


def dialect_of(store: Store) -> str:
    return "sqlite" if store.url.startswith("sqlite") else "postgres"


def migrate(
    store: Store,
    folder: Traversable | None = None,
    tell: Callable[[str], None] = lambda _: None,
    patience: float = 60.0,
) -> list[str]:
    """Bring the schema up to date; returns the names of what was applied."""
    done = []
    for migration in migrations(dialect_of(store), folder):
        give_up = time.monotonic() + patience
        while True:
            try:
                with store.migrations() as connection:
                    if apply(connection, migration):
                        tell(migration.name)
                        done.append(migration.name)
                break
            except StoreUnavailable:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
    return done


def apply(connection: Any, migration: Migration) -> bool:
    """Run one migration on a connection inside a transaction; False when it was applied before."""
    if version_on(connection, create=True) >= migration.version:
        return False
    for statement in statements(migration.sql):
        connection.execute(statement)
    connection.execute(_APPLIED.format(migration.version, migration.name))
    return True


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


def version_on(connection: Any, create: bool = False) -> int:
    if create:
        connection.execute(_LEDGER)
    row = connection.execute("select coalesce(max(version), 0) from duly_migration").fetchone()
    return int(row[0])


def current(store: Store) -> int:
    """The version of the database's schema; 0 when it has none."""
    try:
        with store.transaction() as connection:
            return version_on(connection)
    except NotMigrated:
        return 0


def latest(store: Store) -> int:
    return migrations(dialect_of(store))[-1].version


def check(store: Store) -> None:
    """Refuse to work on a schema that is older than this code. A newer one is fine: migrations only add."""
    have, need = current(store), latest(store)
    if have < need:
        raise NotMigrated(f"the database is at migration {have}, this version of duly needs {need}: run `duly migrate`")
