"""The durable table of due work: the contract of a store, and the databases that fulfil it."""

from __future__ import annotations

from urllib.parse import urlsplit

from duly.core.errors import ConfigError
from duly.store.contract import Store
from duly.store.dialects import of_url, register
from duly.store.postgres import Postgres
from duly.store.sqlite import Sqlite

__all__ = ["Store", "open_store"]

register(Sqlite())
register(Postgres())


def open_store(url: str, *, timeout: float = 30.0, pool_size: int = 10, listen: bool = True) -> Store:
    """The store behind a URL: `sqlite:///file.db`, `sqlite:////absolute/file.db` or `postgresql://…`."""
    dialect = of_url(url)
    if dialect is None:
        shown = urlsplit(url).scheme or ("a connection string" if "=" in url else url)  # not the password
        raise ConfigError(f"database_url: {shown!r} is not known; use sqlite:///file.db or postgresql://…")
    return dialect.open(url, timeout=timeout, pool_size=pool_size, listen=listen)
