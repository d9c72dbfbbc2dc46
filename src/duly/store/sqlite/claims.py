"""Claims in a SQLite file: there is only one writer, so the selected items can be claimed afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

from duly.core.clock import EPOCH
from duly.core.model import Grant, Item, Share
from duly.core.shown import MeterRow
from duly.store.claims import Claims, families, family, in_order
from duly.store.granting import Hits, Leases, once, under
from duly.store.records import ITEM, METER
from duly.store.sqlite.file import SqliteFile
from duly.store.sqlite.values import to_int, to_json


class SqliteClaims(SqliteFile, Claims[sqlite3.Connection]):
    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        with self._writing() as writer:
            now = now or self.now()
            items = [item for some in once(self._pick(now, writer, shares)) for item in some]
            if not items:
                return []
            fences = self._start([(items, None)], {}, worker, now, now + lease, writer)
        (claimed,) = under(fences, [Grant(items)], claimed_by=worker, started_at=now)
        return sorted(claimed.items, key=in_order)

    def _meters(
        self, names: list[str], now: datetime | None, connection: sqlite3.Connection
    ) -> tuple[list[MeterRow], datetime]:
        return self._all(METER, "meters", {"names": names}, connection), now or self.now()

    def _pick(self, now: datetime, connection: sqlite3.Connection, shares: Sequence[Share]) -> list[list[Item]]:
        names = sorted(families(shares))
        closed = {row[0] for row in self._run("paused", {"names": names}, connection)}
        return [
            self._picked(connection, now, share) if not closed or closed.isdisjoint(family(share.line.queue)) else []
            for share in shares
        ]

    def _picked(self, connection: sqlite3.Connection, now: datetime, share: Share) -> list[Item]:
        items: list[Item] = []
        queue, task, owner = share.line
        for rank, floor in zip_longest(share.ranks, share.floors, fillvalue=EPOCH):
            room = share.limit - len(items)
            if room <= 0:
                break
            parameters = {
                "queue": queue, "lane": share.lane, "rank": rank, "task": task, "owner": owner, "most": room,
                "since": floor, "now": now, "started_since": share.started_since,
            }  # fmt: skip
            items += self._all(ITEM, "pick", parameters, connection)
        return items

    def _start(
        self,
        leases: Leases,
        hits: Hits,
        worker: str,
        now: datetime,
        lease_until: datetime,
        connection: sqlite3.Connection,
    ) -> dict[int, int]:
        for name, log in hits.items():
            self._run("hit", {"name": name, "hits": [*map(to_int, log)]}, connection)
        ((last,),) = self._run("last_fence", {}, connection)
        common = {"worker": worker, "now": to_int(now), "lease_until": to_int(lease_until)}
        rows = [
            {
                **common,
                "fence": fence,
                "items": to_json([item.id for item in items]),
                "meters": None if names is None else to_json(names),
            }
            for fence, (items, names) in enumerate(leases, last + 1)
        ]
        connection.executemany(self._sql["lease"], rows)
        connection.executemany(self._sql["claim"], rows)
        return {item.id: fence for fence, (items, _) in enumerate(leases, last + 1) for item in items}

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        with self._writing() as writer:
            prolonged = self._run("extend", {"fences": list(held), "lease_until": lease_until}, writer)
            running = set(self._run("held", {"ids": [item_id for item_id, _ in pairs]}, writer))
        kept = {row[0] for row in prolonged}
        return [pair for pair in pairs if pair[1] not in kept or pair not in running]

    def leases(self) -> list[tuple[int, str, datetime]]:
        if not super().leases():  # without leases there is no need to wait for a turn to write
            return []
        # Reads never wait in SQLite, but heartbeats do. Once it is our turn to write, those before us were written.
        with self._writing() as writer:
            return self._run("leases", {}, writer)
