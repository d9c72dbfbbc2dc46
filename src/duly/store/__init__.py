"""The durable table of due work: one contract, two databases."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from duly.errors import ConfigError
from duly.store.base import Store

__all__ = ["Store", "open_store"]


def open_store(url: str, *, timeout: float = 30.0, pool_size: int = 10, listen: bool = True) -> Store:
    """The store behind a URL: `sqlite:///file.db`, `sqlite:////absolute/file.db` or `postgresql://…`."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from duly.store.sqlite import SqliteStore

        path, _, query = url.removeprefix("sqlite://").partition("?")
        path = unquote(path.removeprefix("/"))
        if not path or path == ":memory:":
            raise ConfigError("database_url: SQLite needs a file, such as sqlite:///duly.db")
        synchronous = query.removeprefix("synchronous=").upper() if query else "FULL"
        if synchronous not in ("FULL", "NORMAL", "OFF", "EXTRA"):
            raise ConfigError(f"database_url: unknown option {query!r}; synchronous=full|normal|off is known")
        return SqliteStore(path, timeout, synchronous)
    if scheme in ("postgresql", "postgres"):
        try:
            from duly.store.postgres import PostgresStore
        except ImportError as error:
            raise ConfigError(f"database_url: PostgreSQL needs `pip install duly[postgres]` ({error})") from error

        return PostgresStore(url, pool_size, timeout, listen)
    shown = scheme or ("a connection string" if "=" in url else url)  # which may hold a password
    raise ConfigError(f"database_url: {shown!r} is not known; use sqlite:///file.db or postgresql://…")
