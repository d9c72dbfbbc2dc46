"""One run of alembic: on the database of DULY_DATABASE_URL or duly.toml, else the `sqlalchemy.url` of alembic.ini."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from duly.config import load
from duly.core.settings import Settings
from duly.plugins import chosen
from duly.store.alembic import dialect_on, upgrade_apps, upgrade_to
from duly.store.dialects import of_url

# A table of its own for the version, because the user's own alembic may run in the same database.
VERSION_TABLE = "duly_alembic_version"


def run() -> None:
    if context.is_offline_mode():
        upgrade_to(None, 0)
    with _engine_for(_database_url()).begin() as connection:
        dialect = dialect_on(connection)
        dialect.take_turn(connection)  # before alembic reads the version
        dialect.step_back(connection)  # it can be run again at any time
        context.configure(connection=connection, version_table=VERSION_TABLE)
        with context.begin_transaction():
            context.run_migrations()
        _upgrade_plugins_on(connection)


def upgrade_plugins(engine: Engine) -> None:
    """Apply the migrations of the plug-ins in DULY_APPS. Call it at the end of the `env.py` of your own alembic.

    It has a transaction of its own: on SQLite alembic commits each revision by itself, and nothing after the last.
    """
    with engine.begin() as connection:
        _upgrade_plugins_on(connection)


def _upgrade_plugins_on(connection: Connection) -> None:
    upgrade_apps(connection, {each.name: each.migrations for each in chosen(load().apps) if each.migrations})


def _database_url() -> str:
    ours = load().database_url
    return ours if ours != Settings.database_url else context.config.get_main_option("sqlalchemy.url") or ours


def _engine_for(url: str) -> Engine:
    """An engine that connects as duly does: to the same place, with the same driver and settings."""
    if dialect := of_url(url):
        name, connect = dialect.engine_of(url)
        return create_engine(name, creator=connect, poolclass=NullPool)
    return create_engine(url, poolclass=NullPool)
