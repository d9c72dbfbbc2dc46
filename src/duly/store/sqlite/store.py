"""The store in one SQLite file: embedded, for any number of threads and processes of one host."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from duly.core.model import Item
from duly.store.contract import News
from duly.store.sqlite.claims import SqliteClaims
from duly.store.sqlite.schedules import SqliteSchedules
from duly.store.sqlite.values import item_of, to_int, to_json, typed

# Seconds between two looks for commits of other processes. A look reads one counter and needs no transaction.
GLANCE = 0.02
# Reads that take longer the more items wait.
LONG = frozenset({"depth"})


class SqliteStore(SqliteClaims, SqliteSchedules):
    def twin(self, timeout: float | None = None) -> SqliteStore:
        return SqliteStore(self.path, self._timeout, self._synchronous)

    def fetch(self, ids: Sequence[int], connection: sqlite3.Connection | None = None) -> list[Item]:
        given = {"ids": to_json(list(ids))}
        if connection is not None:
            return [item_of(row) for row in connection.execute(self._sql["fetch"], given)]
        return [item_of(row) for row in self._read("fetch", given)]

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        limit = to_int(before)
        looked = self._read("old", {"after": after, "most": most})
        old = [item_id for item_id, finished_at, _ in looked if finished_at is not None and finished_at < limit]
        if old:
            with self._writing() as writer:
                writer.execute(self._sql["prune"], {"ids": to_json(old)})
        goes_on = len(looked) == most and max(created_at for _, _, created_at in looked) < limit
        return len(old), looked[-1][0] if goes_on else None

    def pause(self, queue: str, now: datetime, connection: sqlite3.Connection | None = None) -> None:
        with self._joining(connection) as writer:
            writer.execute(self._sql["pause"], {"queue": queue, "now": to_int(now)})

    def resume(self, queue: str, connection: sqlite3.Connection | None = None) -> None:
        with self._joining(connection) as writer:
            writer.execute(self._sql["resume"], {"queue": queue})

    def read(
        self, name: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        if connection is not None:
            return self.write(name, parameters, connection)
        with self._reading_long() if name in LONG else self._reading() as reader:
            return typed(reader.execute(self._sql[name], _given(parameters)))

    def write(
        self, name: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        with self._joining(connection) as writer:
            return typed(writer.execute(self._sql[name], _given(parameters)))

    def query(
        self, sql: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        given = _given(parameters)
        if connection is not None:
            return typed(connection.execute(sql, given))
        with self._reading() if sql.lstrip().lower().startswith("select") else self._writing() as own:
            return typed(own.execute(sql, given))

    def listen_to_ends(self, tell: Callable[[], None], stop: threading.Event) -> None:
        for _ in self._strange_commits(stop, at_least=1.0):
            tell()

    def tell_of_ends(self) -> None:
        """Nothing to do: listeners see every commit."""

    def listen(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        for _ in self._strange_commits(stop):
            tell(None)

    def _strange_commits(self, stop: threading.Event, at_least: float = float("inf")) -> Iterator[None]:
        """Commits by other connections, which SQLite counts; with `at_least`, also once in that many seconds."""
        seen: tuple[sqlite3.Connection, int] | None = None
        last = 0.0
        while not stop.is_set():
            with self._reading() as reader:
                version = reader, reader.execute("pragma data_version").fetchone()[0]
            if version != seen or time.monotonic() - last >= at_least:
                seen, last = version, time.monotonic()
                yield
            stop.wait(GLANCE)


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_int(value) if isinstance(value, datetime) else value for name, value in parameters.items()}
