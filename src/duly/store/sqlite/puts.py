"""Puts in a SQLite file: some items, any number, and rows that are armed again under their key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from duly.core.model import Armed, NewItem, Placed
from duly.store.arming import Arming, chunks, conflict, key_parameters, not_ours
from duly.store.contract import Merge
from duly.store.sqlite.file import SqliteFile
from duly.store.sqlite.values import new_item_parameters, new_item_row, to_int, to_json, to_time


class SqlitePuts(SqliteFile):
    def put(self, new: Sequence[NewItem]) -> list[Placed[Any]]:
        with self._writing() as writer:
            return [self._put_one(writer, item) for item in new]

    def _put_one(self, writer: sqlite3.Connection, item: NewItem) -> Placed[Any]:
        rows = writer.execute(self._sql["put_one"], new_item_parameters(item, to_int(self.now()))).fetchall()
        if rows:
            return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
        item_id, execution_key, args, planned_at = writer.execute(self._sql["live"], key_parameters(item)).fetchone()
        if refusal := conflict(item, item_id, args.encode(), to_time(planned_at)):
            raise refusal
        return Placed(id=item_id, execution_key=execution_key, fresh=False)

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        # Read all rows first: they may come slowly, or from code that puts, and a transaction keeps writers waiting.
        ready = list(chunks(new, 5_000))
        with self._writing() as writer:
            now = to_int(self.now())
            for chunk in ready:
                if any(item.key is not None for item in chunk):
                    fresh += sum(self._put_one(writer, item).fresh for item in chunk)
                    continue
                writer.executemany(self._sql["load"], [new_item_row(item, now) for item in chunk])
                fresh += len(chunk)
        return fresh

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        if not new:
            return []
        task, arming, now = new[0].task, Arming(new, merge), to_int(self.now())
        with self._writing() as writer:
            found = writer.execute(self._sql["arm_find"], {"task": task, "keys": to_json(arming.keys)}).fetchall()
            again = arming.again(
                (one, key, version, args.encode(), *stands) for one, key, version, args, *stands in found
            )
            writer.execute(self._sql["arm_leave"], {"ids": to_json([item_id for item_id, _ in again]), "now": now})
            for item_id, item in again:
                writer.execute(self._sql["arm_again"], {**new_item_parameters(item, now), "now": now, "id": item_id})
            fresh = [new_item_parameters(item, now) for item in arming.fresh()]
            arming.inserted([row for given in fresh for row in writer.execute(self._sql["arm_new"], given)])
            if arming.keys:
                raise not_ours(task, arming.keys)
        return arming.answers()
