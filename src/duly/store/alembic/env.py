"""What alembic runs: the database is DULY_DATABASE_URL's (or duly.toml's), else the `sqlalchemy.url` of alembic.ini."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from duly.config import Settings, load
from duly.store import open_store
from duly.store.alembic import take_turn, upgrade_to

# Beside an alembic of the user's own in the same database, this one keeps its books in a table of its own.
VERSION_TABLE = "duly_alembic_version"


def database_url() -> str:
    ours = load().database_url
    return ours if ours != Settings.database_url else context.config.get_main_option("sqlalchemy.url") or ours


def engine_for(url: str) -> Engine:
    """An engine that connects as duly does: to the same place, with the same driver and settings."""
    if url.startswith("sqlite:"):
        return create_engine("sqlite://", creator=open_store(url).connect, poolclass=NullPool)  # type: ignore[attr-defined]
    if url.startswith(("postgresql:", "postgres:")):
        import psycopg

        return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    return create_engine(url, poolclass=NullPool)


def run() -> None:
    if context.is_offline_mode():
        upgrade_to(None, 0)
    engine = engine_for(database_url())
    with engine.begin() as connection:
        take_turn(connection)  # before alembic looks at what is there
        context.configure(connection=connection, version_table=VERSION_TABLE)
        with context.begin_transaction():
            context.run_migrations()


run()
