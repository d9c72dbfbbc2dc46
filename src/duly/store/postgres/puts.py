"""Puts in PostgreSQL: one item, many, and any number with COPY; and how workers are notified of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from duly.core.model import NewItem, Placed
from duly.store.postgres import new_item_parameters
from duly.store.postgres.arrays import copied
from duly.store.postgres.connections import Connection
from duly.store.postgres.herald import news_of
from duly.store.postgres.sessions import Sessions
from duly.store.puts import Puts, chunks
from duly.store.records import NEW_ITEM

# A load waits so long for the server, because the caller may produce its rows slowly.
LOAD_SECONDS = 600.0


class PostgresPuts(Sessions, Puts[Connection]):
    def put(self, new: Sequence[NewItem]) -> list[Placed[Any]]:
        return [self._put_one(new[0])] if len(new) == 1 else super().put(new)

    def _put_one(self, item: NewItem) -> Placed[Any]:
        news = news_of(item)
        parameters = new_item_parameters(item)
        while True:
            if news is not None and self._herald.lead():
                rows = self._run("put_one_and_tell", {**parameters, "news": news})
            else:
                rows = self._run("put_one", parameters)
                if news is not None:
                    self._herald.trail((news,))
            if rows:
                return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
            if found := self._holder(item, None):
                return found

    def _put_many(self, connection: Connection, new: Sequence[NewItem]) -> list[Placed[Any]]:
        rows = self._run_many("put", connection, NEW_ITEM, new)
        if len(rows) == len(new):
            return [Placed(id=row[0], execution_key=row[1], fresh=True) for row in rows]
        unkeyed = iter([row for row in rows if row[3] is None])
        keyed = {(row[2], row[3]): row for row in rows if row[3] is not None}
        placed = []
        for item in new:
            row = next(unkeyed) if item.key is None else keyed.pop((item.task, item.key), None)
            placed.append(
                Placed(id=row[0], execution_key=row[1], fresh=True)
                if row
                else self._holder(item, connection) or self._put_many(connection, [item])[0]
            )
        return placed

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        news: set[str] = set()
        with self._writing() as connection:
            connection.patience = LOAD_SECONDS
            connection.execute("set local idle_in_transaction_session_timeout = 0")  # rows may come slowly
            connection.execute("set local statement_timeout = 0")
            now = self.now(connection)
            rows = chunks(new, 1_000)
            for has_keys, group in groupby(rows, key=lambda chunk: any(item.key is not None for item in chunk)):
                if has_keys:
                    for chunk in group:
                        news |= _news(chunk)
                        fresh += sum(placed.fresh for placed in self._put_many(connection, chunk))
                    continue
                # One COPY for all chunks, so that the server reads while the next rows are made.
                with connection.cursor().copy(self._sql["load"]) as copy:
                    for chunk in group:
                        news |= _news(chunk)
                        copy.write(copied(chunk, now))
                        fresh += len(chunk)
        self._herald.trail(news)
        return fresh

    def _announce(self, new: Iterable[NewItem] | None, connection: Connection | None = None) -> None:
        """Notify when the caller's transaction commits; without one, a moment later."""
        news = {""} if new is None else _news(new)
        if connection is None:
            self._herald.trail(news)
        elif news:
            self._run("tell", {"news": sorted(news)}, connection)


def _news(new: Iterable[NewItem]) -> set[str]:
    return {news for item in new if (news := news_of(item))}
