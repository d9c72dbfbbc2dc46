"""Numbered SQL files per database, forward only, each applied once and in a transaction of its own.

`duly migrate` and `alembic upgrade head` both use this, so whichever runs first, the other finds the work done.
Migrators wait for one another. A migration that cannot get its locks within two seconds gives up and tries again, so
that workers do not wait behind it.

A plug-in brings migrations of its own, which are numbered, applied and recorded apart from the core's, in
`duly_app_migration`. They come after the core's, so they may use any table of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from duly.core.errors import ConfigError, NotMigrated, StoreUnavailable
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
_APP_VERSION = "select coalesce(max(version), 0) from duly_app_migration where app = '{}'"
_APP_APPLIED = "insert into duly_app_migration (app, version, name) values ('{}', {:d}, '{:.200}')"
_APP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_FILE_NAME = re.compile(r"\d{4}_[a-z0-9_]+\.sql")

# The folders of the migrations of plug-ins, by the names of these.
Apps: TypeAlias = Mapping[str, Traversable]
NO_APPS: Apps = MappingProxyType({})


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str
    app: str = ""  # the plug-in that it is of; empty: the core

    @property
    def title(self) -> str:
        return f"{self.app}/{self.name}" if self.app else self.name


def migrations(dialect: str, folder: Traversable | None = None, app: str = "") -> list[Migration]:
    """The migrations of one dialect in order: its own, or those in the folder of its name in another place."""
    own = dialects.named(dialect).migrations if folder is None else folder / dialect
    if app and not _APP_NAME.fullmatch(app):
        raise ConfigError(f"apps: {app!r:.60} has migrations, so its name must be lower-case letters, digits, _ and -")
    if not own.is_dir():
        raise ConfigError(f"apps: {app} has no migrations for {dialect}: there is no folder {own}")
    files = sorted((file for file in own.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    for number, file in enumerate(files, 1):
        if not _FILE_NAME.fullmatch(file.name) or int(file.name[:4]) != number:
            raise ConfigError(f"apps: {file.name} of {app or 'duly'} is not migration {number:04}_name.sql")
    return [Migration(int(file.name[:4]), file.name[:-4], file.read_text(encoding="utf8"), app) for file in files]


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
    apps: Apps = NO_APPS,
) -> list[str]:
    """Bring the schema up to date, then the tables of these plug-ins; returns the names of the applied migrations."""

    def act(migration: Migration) -> bool:
        with store.migrations() as connection:
            return apply(connection, migration)

    done = []
    dialect = dialect_of(store)
    wanted = [*migrations(dialect, folder), *(each for app in apps for each in migrations(dialect, apps[app], app))]
    # Look first: that needs no lock, and nearly always there is nothing to do.
    have = _patiently(partial(versions, store, apps), patience)
    for migration in wanted:
        if migration.version > have.get(migration.app, 0) and _patiently(partial(act, migration), patience):
            tell(migration.title)
            done.append(migration.title)
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
    if version_on(connection, migration.app) >= migration.version:
        return False
    for statement in statements_of(migration):
        connection.execute(statement)
    return True


def statements_of(migration: Migration) -> Iterator[str]:
    """The statements of a migration, and the one that notes that it was applied."""
    yield from statements(migration.sql)
    if migration.app:
        yield _APP_APPLIED.format(migration.app, migration.version, migration.name)
    else:
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


def version_on(connection: Any, app: str = "") -> int:
    """The version of the schema, or of the tables of a plug-in, on a connection inside a transaction.

    It creates the core's table of migrations if that is missing.
    """
    if not app:
        connection.execute(LEDGER)
    return int(connection.execute(_APP_VERSION.format(app) if app else VERSION).fetchone()[0])


def current(store: Store) -> int:
    """The version of the database's schema; 0 when it has none."""
    try:
        return int(store.read("schema_version", {})[0][0])
    except NotMigrated:
        return 0


def versions(store: Store, apps: Apps = NO_APPS) -> dict[str, int]:
    """The version of the schema under an empty name, and that of the tables of each of these plug-ins."""
    have = {"": current(store)}
    if apps:
        with suppress(NotMigrated):
            have.update((app, version) for app, version in store.read("app_versions", {}) if app in apps)
    return have


def latest(store: Store) -> int:
    return migrations(dialect_of(store))[-1].version


def check(store: Store, apps: Apps = NO_APPS) -> None:
    """Refuse to work on tables that are older than this code. Newer ones are fine: migrations only add."""
    have, need = versions(store, apps), latest(store)
    if have[""] < need:
        raise NotMigrated(
            f"the database is at migration {have['']}, this version of duly needs {need}: run `duly migrate`"
        )
    for app, folder in apps.items():
        needs = len(migrations(dialect_of(store), folder, app))
        if have.get(app, 0) < needs:
            raise NotMigrated(
                f"the tables of the app {app} are at migration {have.get(app, 0)}, it needs {needs}: "
                "run `duly migrate`, with the MODULE:APP that it is on, or with the app in DULY_APPS"
            )
