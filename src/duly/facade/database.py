"""The database of an app and its clock. Both are opened when they are first used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from duly.core.clock import Clock, DatabaseClock
from duly.core.forks import renew_in_children
from duly.core.settings import Settings
from duly.store import Store, known, open_store
from duly.store.migrate import migrate


class Database:
    """Opens the store that the settings name. An embedded one is also migrated, because nothing else does it.

    `migrations` returns the folders with the migrations of plug-ins, by name.
    """

    def __init__(
        self, settings: Settings, migrations: Callable[[], Mapping[str, Path]], store: Store | None, clock: Clock | None
    ) -> None:
        if store is None:
            known(settings.database_url)  # a wrong one is reported here, and not by the first put
        self._settings = settings
        self._migrations = migrations
        self._store = store
        self._bare: Store | None = None  # a store that was only used for its clock, and is not migrated
        self._clock = clock
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Make a new lock, in a forked process too: the old one may have been held when the process was forked."""
        self._opening = threading.Lock()

    @property
    def store(self) -> Store:
        if self._store is None:
            with self._opening:
                if self._store is None:
                    store = self._open()
                    if store.url.startswith("sqlite"):
                        migrate(store, apps=self._migrations())
                    self._store, self._bare = store, None
        return self._store

    def open_clock(self) -> Clock:
        if self._clock is None:
            self._clock = DatabaseClock(self._time)
        return self._clock

    def _time(self) -> datetime:
        """The database's time."""
        return self.unopened.now()

    @property
    def unopened(self) -> Store:
        """The store, which may not be migrated yet: the caller may hold SQLite's write lock."""
        store = self._store or self._bare
        if store is None:
            with self._opening:
                store = self._store or self._open()
        return store

    def _open(self) -> Store:
        settings = self._settings
        self._bare = self._bare or open_store(
            settings.database_url,
            timeout=settings.store_timeout_seconds,
            pool_size=settings.pool_size,
            listen=settings.listen,
        )
        return self._bare

    def migrate(self, report: Callable[[str], None]) -> list[str]:
        """Bring the database up to date; returns the names of the applied migrations."""
        with self._opening:
            store = self._store or self._open()
            applied = migrate(store, tell=report, apps=self._migrations())
            self._store, self._bare = store, None
        return applied

    def migrate_embedded(self) -> None:
        """Create the tables of a plug-in that was put on an app whose embedded database is open already."""
        if self._store is not None and self._store.url.startswith("sqlite"):
            migrate(self._store, apps=self._migrations())

    def replace(self, store: Store | None, clock: Clock | None) -> tuple[Store | None, Clock | None]:
        """Use this store and this clock from now on; returns those that were used before."""
        before = (self._store, self._clock)
        self._store, self._clock = store, clock
        return before

    def close(self) -> None:
        for store in (self._store, self._bare):
            if store is not None:
                store.close()
        self._store = self._bare = None
        if isinstance(self._clock, DatabaseClock):
            self._clock = None
