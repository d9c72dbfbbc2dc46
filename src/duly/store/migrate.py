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
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from duly.core.errors import ConfigError, DulyError, NotMigrated, StoreError, StoreUnavailable
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

# What SQL of both databases consists of. A semicolon inside of a comment, a literal or a quoted name ends nothing.
_TOKEN = re.compile(
    r"""
      (?P<line> ^[ \t]*--.*\n? )                              # a comment on a line of its own: left out
    | (?P<gap> \s | --.* | /\*(?s:.*?)\*/ )
    | [eE]'(?:[^'\\]|(?s:\\.))*' | '[^']*' | "[^"]*" | `[^`]*`
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$(?s:.*?)\$(?P=tag)\$
    | [^\W\d][\w$]* | .
    """,
    re.MULTILINE | re.VERBOSE,
)
# Statements with statements inside, up to `; end ;`: triggers of SQLite, and functions of PostgreSQL.
_BODY = re.compile(
    r"create (or replace |temp |temporary )*(trigger .* begin |(function|procedure) .* begin atomic )", re.S
)
_BODY_ENDS = [";", "end", ";"]
_CONTROL = re.compile(r"(abort|begin|commit|end|prepare transaction|release|rollback|savepoint|start)\b")

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
    return [Migration(int(file.name[:4]), file.name[:-4], _text(file, app), app) for file in files]


def _text(file: Traversable, app: str) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # without the byte-order mark that some editors write
    except UnicodeDecodeError as error:
        raise ConfigError(f"apps: {file.name} of {app or 'duly'} is not UTF-8: {error}") from error


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
        with naming(migration), store.migrations() as connection:
            return apply(connection, migration)

    def advance(app: str) -> None:
        for migration in migrations(dialect_of(store), apps[app] if app else folder, app):
            if migration.version > have.get(app, 0) and _patiently(partial(act, migration), patience):
                tell(migration.title)
                done.append(migration.title)

    done: list[str] = []
    # Look first: that needs no lock, and nearly always there is nothing to do.
    have = _patiently(partial(versions, store, apps), patience)
    advance("")
    failed: list[DulyError] = []
    for app in apps:
        try:
            advance(app)
        except StoreUnavailable:
            raise
        except DulyError as error:  # the tables of the other plug-ins do not wait for this one
            failed.append(error)
    if failed:
        raise type(failed[0])("; ".join(map(str, failed))) from failed[0]
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


@contextmanager
def naming(migration: Migration) -> Iterator[None]:
    """Name the file, and the plug-in that it is of, in every error of applying it."""
    try:
        yield
    except Exception as error:
        kind = type(error) if isinstance(error, StoreUnavailable) else StoreError
        why = (error.__cause__ or error) if isinstance(error, NotMigrated) else error  # without its advice to migrate
        of = f"the app {migration.app}" if migration.app else "duly"
        raise kind(f"migration {migration.name}.sql of {of} cannot be applied: {why}") from error


def apply(connection: Any, migration: Migration) -> bool:
    """Run one migration on a connection inside a transaction; False when it was applied before."""
    if version_on(connection, migration.app) >= migration.version:
        return False
    for statement in statements_of(migration):
        connection.execute(statement)
    return True


def statements_of(migration: Migration) -> Iterator[str]:
    """The statements of a migration, and the one that notes that it was applied."""
    own = list(statements(migration.sql))
    if migration.app and not own:
        raise ConfigError("it has no statement")
    yield from own
    if migration.app:
        yield _APP_APPLIED.format(migration.app, migration.version, migration.name)
    else:
        yield _APPLIED.format(migration.version, migration.name)


def statements(sql: str) -> Iterator[str]:
    """The statements of a file, each without its semicolon. The last one may have none."""
    text, tokens = "", list[str]()
    for token in _TOKEN.finditer(sql):
        if token.lastgroup == "line" or (token.lastgroup == "gap" and not tokens):
            continue
        text += token[0]
        if token.lastgroup == "gap":
            continue
        tokens.append(token[0].lower())
        if tokens[-1] == ";" and (tokens[-3:] == _BODY_ENDS or not _BODY.match(" ".join(tokens))):
            yield from _checked(text, tokens)
            text, tokens = "", []
    yield from _checked(text, tokens)


def _checked(text: str, tokens: list[str]) -> Iterator[str]:
    """This statement, unless it is empty."""
    if _CONTROL.match(" ".join(tokens)):
        raise ConfigError(f"a migration is a transaction of its own, so it must not contain {tokens[0].upper()}")
    if tokens not in ([], [";"]):
        yield text.strip().removesuffix(";")


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


def too_old(store: Store) -> str | None:
    """Why this version of duly must not work on the database, if it is too old for its tables."""
    known, needed = latest(store), least(store)
    if known >= needed:
        return None
    return (
        f"this version of duly is too old: it knows migrations up to {known}, and the database needs workers that know "
        f"{needed}; upgrade duly"
    )


def least(store: Store) -> int:
    """The migration that a worker has to know at least; 0 when the tables are older than that."""
    try:
        return int(store.read("least_migration", {})[0][0])
    except NotMigrated:
        return 0


def check(store: Store, apps: Apps = NO_APPS) -> None:
    """Refuse to work on tables that are older than this code, or for which this code is too old.

    Newer ones are fine otherwise: migrations only add.
    """
    if problem := too_old(store):
        raise NotMigrated(problem)
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
