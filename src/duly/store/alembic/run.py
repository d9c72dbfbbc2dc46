"""One run of alembic: on the database of DULY_DATABASE_URL or duly.toml, else the `sqlalchemy.url` of alembic.ini."""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from duly.config import Settings, load
from duly.store import open_store
from duly.store.alembic import take_turn, upgrade_to

# Beside an alembic of the user's own in the same database, this one keeps its books in a table of its own.
VERSION_TABLE = "duly_alembic_version"


def run() -> None:
    if context.is_offline_mode():
        upgrade_to(None, 0)
    with _engine_for(_database_url()).begin() as connection:
        take_turn(connection)  # before alembic looks at what is there
        if connection.dialect.name == "postgresql":
            # Step back rather than let live work pile up behind us; it may be run again at any time.
            connection.exec_driver_sql("set local lock_timeout = '2s'")
        context.configure(connection=connection, version_table=VERSION_TABLE)
        with context.begin_transaction():
            context.run_migrations()


def _database_url() -> str:
    ours = load().database_url
    return ours if ours != Settings.database_url else context.config.get_main_option("sqlalchemy.url") or ours


def _engine_for(url: str) -> Engine:
    """An engine that connects as duly does: to the same place, with the same driver and settings."""
    if url.startswith("sqlite:"):
        store: Any = open_store(url)
        return create_engine("sqlite://", creator=store.connect, poolclass=NullPool)
    if url.startswith(("postgresql:", "postgres:")):
        import psycopg

        return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    return create_engine(url, poolclass=NullPool)
