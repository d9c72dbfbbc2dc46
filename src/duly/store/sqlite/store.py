"""The store in one SQLite file: embedded, for any number of threads and processes of one host.

A writer has the file alone, so what a claim picked is still there to be taken.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product, zip_longest
from typing import Any

from duly.core.clock import EPOCH
from duly.core.errors import ConstraintViolated, WrongState
from duly.core.model import Change, Grant, Item, NewRow, Share
from duly.core.shown import MeterRow
from duly.store.claims import families, family, in_order
from duly.store.contract import News
from duly.store.granting import Hits, Leases, once, under
from duly.store.records import CHANGE, ITEM, METER, TRIED
from duly.store.sqlite import home_of
from duly.store.sqlite.portions import Portions
from duly.store.sqlite.values import given, new_row_values, to_int, to_json, turns_of, typed, written
from duly.store.statements import Home

# Seconds between two looks for commits of other processes. A look reads one counter and needs no transaction.
GLANCE = 0.02

_change = written(CHANGE)


class SqliteStore(Portions):
    def twin(self, timeout: float | None = None) -> SqliteStore:
        return SqliteStore(self.path, self._timeout, self._synchronous)

    def _locate(self) -> Home:
        return home_of(self.path)

    def _load_rows(self, rows: Sequence[NewRow], now: datetime, connection: sqlite3.Connection) -> None:
        connection.executemany(self._sql["load_rows"], [new_row_values(row, to_int(now)) for row in rows])

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

    def _pick(
        self, now: datetime, connection: sqlite3.Connection, shares: Sequence[Share], clean_first: bool = False
    ) -> list[list[Item]]:
        names = sorted(families(shares))
        closed = {row[0] for row in self._run("paused", {"names": names}, connection)}
        parts = (False, True) if clean_first else (None,)
        return [
            self._picked(connection, now, share, parts)
            if not closed or closed.isdisjoint(family(share.line.queue))
            else []
            for share in shares
        ]

    def _picked(
        self, connection: sqlite3.Connection, now: datetime, share: Share, parts: Sequence[bool | None]
    ) -> list[Item]:
        """The items of a share, those under suspicion in a part of their own if there are parts."""
        items: list[Item] = []
        queue, task, owner = share.line
        ranks = [*zip_longest(share.ranks, share.floors, fillvalue=EPOCH)]
        for suspected, (rank, floor) in product(parts, ranks):
            room = share.limit - len(items)
            if room <= 0:
                break
            parameters = {
                "queue": queue, "lane": share.lane, "rank": rank, "task": task, "owner": owner, "most": room,
                "since": floor, "now": now, "started_since": share.started_since, "suspected": suspected,
            }  # fmt: skip
            items += self._all(ITEM, "pick", parameters, connection)
        return items

    def _keep_hits(self, hits: Hits, connection: sqlite3.Connection) -> None:
        for name, log in hits.items():
            self._run("hit", {"name": name, "hits": [*map(to_int, log)]}, connection)

    def _start(
        self,
        leases: Leases,
        hits: Hits,
        worker: str,
        now: datetime,
        lease_until: datetime,
        connection: sqlite3.Connection,
    ) -> dict[int, int]:
        self._keep_hits(hits, connection)
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
