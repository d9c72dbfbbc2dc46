"""The durable table of due work: the contract of a store, and the databases that fulfil it."""

from __future__ import annotations

from urllib.parse import urlsplit

from duly.core.errors import ConfigError
from duly.store.contract import Store
from duly.store.dialects import Dialect, of_url, register
from duly.store.postgres import Postgres
from duly.store.sqlite import Sqlite

__all__ = ["Store", "known", "open_store"]

register(Sqlite())
register(Postgres())


def open_store(url: str, *, timeout: float = 30.0, pool_size: int = 10, listen: bool = True) -> Store:
    """The store behind a URL: `sqlite:///file.db`, `sqlite:////absolute/file.db` or `postgresql://…`."""
    return known(url).open(url, timeout=timeout, pool_size=pool_size, listen=listen)


def known(url: str) -> Dialect:
    """The database that a URL belongs to; ConfigError if none has its scheme."""
    dialect = of_url(url)
    if dialect is not None:
        return dialect
    shown = urlsplit(url).scheme or ("a connection string" if "=" in url else url)  # not the password
    plain, plus, _ = shown.partition("+")
    if plus and of_url(f"{plain}://") is not None:
        raise ConfigError(f"database_url: {shown!r} names a driver, and duly has its own; use {plain}://…")
    raise ConfigError(f"database_url: {shown!r} is not known; use sqlite:///file.db or postgresql://…")
