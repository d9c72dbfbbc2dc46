"""The store in one SQLite file: embedded, for any number of threads and processes of one host."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from duly.core.errors import ConstraintViolated, WrongState
from duly.core.model import Change, NewItem, NewRow, Placed
from duly.store.contract import News, Store
from duly.store.puts import chunks
from duly.store.records import CHANGE, NEW_ITEM, TRIED
from duly.store.sqlite.claims import SqliteClaims
from duly.store.sqlite.values import given, new_item_row, new_row_values, to_int, turns_of, typed, written

# Seconds between two looks for commits of other processes. A look reads one counter and needs no transaction.
GLANCE = 0.02

_new_item = written(NEW_ITEM)
_change = written(CHANGE)


class SqliteStore(SqliteClaims, Store):
    def twin(self, timeout: float | None = None) -> SqliteStore:
        return SqliteStore(self.path, self._timeout, self._synchronous)

    def _put_many(self, connection: sqlite3.Connection, new: Sequence[NewItem]) -> list[Placed[Any]]:
        return [self._put_one(connection, item) for item in new]

    def _put_one(self, connection: sqlite3.Connection, item: NewItem) -> Placed[Any]:
        rows = self._rows(connection, "put_one", _new_item(item, to_int(self.now())))
        if rows:
            return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
        holder = self._holder(item, connection)
        assert holder is not None, "there is no other writer in the meantime"
        return holder

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        # Read all rows first: they may come slowly, or from code that puts, and a transaction keeps writers waiting.
        ready = list(chunks(new, 5_000))
        with self._writing() as writer:
            now = to_int(self.now())
            for chunk in ready:
                if any(item.key is not None for item in chunk):
                    fresh += sum(placed.fresh for placed in self._put_many(writer, chunk))
                    continue
                writer.executemany(self._sql["load"], [new_item_row(item, now) for item in chunk])
                fresh += len(chunk)
        return fresh

    def _load_rows(self, rows: Sequence[NewRow], now: datetime, connection: sqlite3.Connection) -> None:
        connection.executemany(self._sql["load_rows"], [new_row_values(row, to_int(now)) for row in rows])

    def _settle_any(
        self, changes: list[Change], closed: set[int], connection: sqlite3.Connection | None
    ) -> Iterator[tuple[int, int]]:
        assert connection is not None, "it always settles in a transaction"
        for change in changes:
            try:
                settled = self._rows(connection, "settle", _change(change))
            except ConstraintViolated:
                raise WrongState("another live item has its key now; cancel that item first") from None
            if settled:
                yield change.id, change.fence
                if change.tried:
                    of_item = {"item_id": change.id, "fence": change.fence}
                    self._rows(connection, "tried", {**written(TRIED)(change.tried), **of_item})

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        looked = self._run("old", {"after": after, "most": most})
        old = [item_id for item_id, finished_at, _ in looked if finished_at is not None and finished_at < before]
        if old:
            self._run("prune", {"ids": old})
        goes_on = len(looked) == most and max(created_at for _, _, created_at in looked) < before
        return len(old), looked[-1][0] if goes_on else None

    def query(
        self, sql: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        if connection is None:
            with self._reading() if sql.lstrip().lower().startswith("select") else self._writing() as own:
                return self.query(sql, parameters, own)
        cursor = connection.execute(sql, given(parameters))
        return typed(cursor, turns_of(cursor))

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
