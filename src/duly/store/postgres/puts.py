"""Puts in PostgreSQL: one item, many, any number with COPY, and rows that are armed again under their key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from duly.core.model import Armed, NewItem, Placed
from duly.store.arming import Arming, chunks, conflict, key_parameters, not_ours
from duly.store.contract import Merge
from duly.store.postgres import new_item_parameters
from duly.store.postgres.arrays import arrays, copied, ints
from duly.store.postgres.connections import Connection
from duly.store.postgres.herald import news_of
from duly.store.postgres.sessions import Sessions

# A load waits so long for the server, because the caller may produce its rows slowly.
LOAD_SECONDS = 600.0

_new_items = arrays("new_item")


class PostgresPuts(Sessions):
    def put(self, new: Sequence[NewItem]) -> list[Placed[Any]]:
        if len(new) == 1:
            return [self._put_one(new[0])]
        placed = self._whole(lambda connection: self._put_many(connection, new))
        self._herald.trail(news for item in new if (news := news_of(item)))
        return placed

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
        rows = self._run("put", _new_items(new), connection)
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

    def _holder(self, item: NewItem, connection: Connection | None) -> Placed[Any] | None:
        """The live item that has this key; None if it has ended in the meantime. Other content is an error."""
        for item_id, execution_key, args, planned_at in self._run("live", key_parameters(item), connection):
            if refusal := conflict(item, item_id, args.encode(), planned_at):
                raise refusal
            return Placed(id=item_id, execution_key=execution_key, fresh=False)
        return None

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        news: set[str] = set()
        with self._connection() as connection, connection.transaction():
            connection.patience = LOAD_SECONDS
            connection.execute("set local idle_in_transaction_session_timeout = 0")  # rows may come slowly
            connection.execute("set local statement_timeout = 0")
            now = self._run("now", {}, connection)[0][0]
            rows = chunks(new, 1_000)
            for has_keys, group in groupby(rows, key=lambda chunk: any(item.key is not None for item in chunk)):
                if has_keys:
                    for chunk in group:
                        news.update(each for item in chunk if (each := news_of(item)))
                        fresh += sum(placed.fresh for placed in self._put_many(connection, chunk))
                    continue
                # One COPY for all chunks, so that the server reads while the next rows are made.
                with connection.cursor().copy(self._sql["load"]) as copy:
                    for chunk in group:
                        news.update(each for item in chunk if (each := news_of(item)))
                        copy.write(copied(chunk, now))
                        fresh += len(chunk)
        self._herald.trail(news)
        return fresh

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        if not new:
            return []
        armed = self._whole(lambda connection: self._arm(connection, new, merge))
        made = (item for item, answer in zip(new, armed, strict=True) if answer.how != "known")
        self._herald.trail(news for item in made if (news := news_of(item)))
        return armed

    def _arm(self, connection: Connection, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        task, arming = new[0].task, Arming(new, merge)
        for _ in range(3):  # again only if someone else inserts the same keys at the same time
            found = self._run("arm_find", {"task": task, "keys": arming.keys}, connection) if arming.keys else []
            if again := arming.again(found):
                ids = ints([item_id for item_id, _ in again])
                self._run("arm_leave", {"ids": ids}, connection)
                self._run("arm_again", {"new_item_id": ids, **_new_items([item for _, item in again])}, connection)
            if fresh := arming.fresh():
                arming.inserted(self._run("arm_new", _new_items(fresh), connection))
            if not arming.keys:
                return arming.answers()
        raise not_ours(task, arming.keys)
