"""The store on PostgreSQL: any number of machines, any number of workers.

Nearly every method runs one statement from the folder `sql` on a pooled connection in autocommit, so it works behind a
transaction pooler too. A claim takes what nobody else has locked; under limits, the meters are locked first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import psycopg

from duly.core import codec
from duly.core.clock import EPOCH
from duly.core.errors import ConstraintViolated, WrongState
from duly.core.model import Ask, Change, Grant, Item, NewItem, NewRow, Placed, Share
from duly.core.shown import MeterRow
from duly.store.claims import Terms, families, in_order, meter_names
from duly.store.contract import AWAITED, News, Store
from duly.store.dialects import at_once, named
from duly.store.granting import Hits, Leases, MeterBudget
from duly.store.postgres import new_item_parameters, sessions
from duly.store.postgres.arrays import columns, copied, copied_rows, numbers, texts, times
from duly.store.postgres.connections import Connection
from duly.store.postgres.herald import head_of, news_of
from duly.store.puts import chunks
from duly.store.records import CHANGE, ITEM, METER, NEW_ITEM, TRIED
from duly.store.sql import to_psycopg
from duly.store.statements import Home

log = logging.getLogger("duly.store")

# Seconds after which a listener that heard nothing checks that its connection still works.
PULSE = 10.0
# Seconds between two looks for ends of items: while news of them comes, and where none can come.
AT_LEAST = 1.0
UNHEARD = 0.2
# Seconds after which workers are asked again to notify of ends; they keep doing so for a while longer.
ASK_AGAIN = 10.0
# A load waits so long for the server, because the caller may produce its rows slowly.
LOAD_SECONDS = 600.0
# With more asks than this beyond what can be served, exhausted ones are sorted out before meters are locked.
FEW = 20


class PostgresStore(sessions.Sessions, Store):
    def twin(self, timeout: float | None = None) -> PostgresStore:
        return PostgresStore(self.url, pool_size=2, timeout=timeout or self._timeout, listen=self._listen)

    def _locate(self) -> Home:
        async def ask(name: str, parameters: dict[str, Any]) -> list[Any]:
            return self.read(name, parameters)

        return at_once(named("postgres").locate(ask))

    # -- items come in

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
            if found := self.holder(item, None):
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
                else self.holder(item, connection) or self._put_many(connection, [item])[0]
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
            self._run("tell", {"news": codec.text(sorted(news))}, connection)

    # -- items are claimed and held

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        given = {**_shares(shares), "worker": worker, "now": now, "lease": lease}
        return sorted(self._all(ITEM, "claim", given), key=in_order)

    def _grants(self, asks: Sequence[Ask], terms: Terms, connection: Connection) -> list[Grant]:
        self._run("by_index", {}, connection)
        answers: list[Grant | None] = [None] * len(asks)
        if len(asks) > 2 * terms.calls + FEW:
            answers = self._refusals(asks, terms, connection)
        # Lock no more meters than these calls could need.
        served = [ask for ask, answer in zip(asks, answers, strict=True) if answer is None][: terms.calls + FEW]
        grants = iter(super()._grants(served, terms, connection) if served else ())
        return [answer or next(grants, Grant(is_asked=False)) for answer in answers]

    def _refusals(self, asks: Sequence[Ask], terms: Terms, connection: Connection) -> list[Grant | None]:
        """Refusals that can be given without a lock: of very many asks, most may be for keys that are exhausted."""
        meters = self._all(METER, "meters", {"names": meter_names(asks)}, connection)
        now = terms.now or self.now(connection)
        budget = MeterBudget(asks, meters, self._under_way(asks, connection), now, terms.timing)
        return [budget.refusal(ask) for ask in asks]

    def _meters(
        self, names: list[str], now: datetime | None, connection: Connection
    ) -> tuple[list[MeterRow], datetime]:
        given = {"names": names, "now": now}
        rows = self._run("lock_meters", given, connection)
        if len(rows) < len(names):
            self._run("new_meters", given, connection)
            rows = self._run("lock_meters", given, connection)
        # The time is read under the last lock, when no other claim can be granted, so grants are ordered by it.
        at = max((row[-1] for row in rows), default=now) or self.now(connection)
        return [MeterRow(*row) for *row, _ in rows], at

    def _pick(
        self, now: datetime, connection: Connection, shares: Sequence[Share], clean_first: bool = False
    ) -> list[list[Item]]:
        picked: list[list[Item]] = [[] for _ in shares]
        parts = ("false", "true") if clean_first else ("null",)  # of each share: whether its items are under suspicion
        given = {
            **_shares(shares, len(parts)),
            "suspected": ["{" + ",".join(part for part in parts for _ in share.ranks) + "}" for share in shares],
            "places": range(len(shares)),
            "started_sinces": [share.started_since for share in shares],
            "now": now,
        }
        for place, *row in self._run("pick", given, connection):
            picked[place].append(Item(*row))
        return [sorted(items, key=in_order) for items in picked]

    def _keep_hits(self, hits: Hits, connection: Connection) -> None:
        given = {"names": list(hits), "hits": [times(log) for log in hits.values()]}
        self._run("keep_hits", given, connection)

    def _start(
        self, leases: Leases, hits: Hits, worker: str, now: datetime, lease_until: datetime, connection: Connection
    ) -> dict[int, int]:
        given = {
            "worker": worker,
            "now": now,
            "lease_until": lease_until,
            "items": [numbers(item.id for item in items) for items, _ in leases],
            "meters": [None if names is None else texts(names) for _, names in leases],
            "names": list(hits),
            "hits": [times(log) for log in hits.values()],
        }
        return dict(self._run("start", given, connection))

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        given = {
            "fences": list(held),
            "ids": [item_id for ids in held.values() for item_id in ids],
            "item_fences": [fence for fence, ids in held.items() for _ in ids],
            "lease_until": lease_until,
        }
        return self._run("extend", given)

    # -- items end

    def _settle_any(
        self, changes: list[Change], closed: set[int], connection: Connection | None
    ) -> list[tuple[int, int]]:
        tried = [change for change in changes if change.tried]
        of_items = {"item_id": [change.id for change in tried], "fence": [change.fence for change in tried]}
        given = {
            **columns(CHANGE, changes, {}),
            **columns(TRIED, [change.tried for change in tried], of_items),
            "closed": list(closed),
        }
        try:
            return self._run("settle", given, connection)
        except ConstraintViolated:
            raise WrongState("another live item has its key now; cancel that item first") from None

    def _load_rows(self, rows: Sequence[NewRow], now: datetime, connection: Connection) -> None:
        with connection.cursor().copy(self._sql["load_rows"]) as copy:
            copy.write(copied_rows(rows, now))

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        ((gone, go_on),) = self._run("prune", {"before": before, "after": after, "most": most})
        return gone, go_on

    def query(
        self, sql: str, parameters: Mapping[str, Any], connection: Connection | None = None
    ) -> list[tuple[Any, ...]]:
        with self._connection() if connection is None else nullcontext(connection) as own:
            cursor = own.execute(to_psycopg(sql), parameters, binary=True)
            return cursor.fetchall() if cursor.description else []

    # -- news

    def listen(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        while self._listen and not stop.is_set():
            try:
                if self.is_pooled():
                    log.warning(
                        "LISTEN does not work behind this transaction pooler: going on without, new work is found by "
                        "sweeps; set DULY_LISTEN=false, or give workers the server's own address"
                    )
                    break
                with self._dial(application_name="duly-watch") as ear:
                    ear.execute("listen duly")
                    tell(None)
                    self._listen_on(ear, tell, stop)
            except psycopg.OperationalError:
                stop.wait(1.0)
        stop.wait()

    def listen_to_ends(self, tell: Callable[[], None], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                if not self._listen or self.is_pooled():
                    while not stop.wait(UNHEARD):
                        tell()
                    return
                with self._dial(application_name="duly-ends") as ear:
                    ear.execute("listen duly_ended")
                    ear.patience = sessions.PULSE_PATIENCE
                    while not stop.is_set():
                        ear.execute(self._sql["tell"], {"news": codec.text([AWAITED])}, prepare=False)
                        again = time.monotonic() + ASK_AGAIN
                        while time.monotonic() < again and not stop.is_set():
                            tell()
                            deque(ear.notifies(timeout=AT_LEAST, stop_after=1), maxlen=0)
            except psycopg.OperationalError:
                stop.wait(1.0)

    def tell_of_ends(self) -> None:
        self._ends.trail(("",))

    def _listen_on(self, ear: Connection, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Pass news on until `stop`, or until this connection no longer answers."""
        ear.patience = sessions.PULSE_PATIENCE
        pulse = time.monotonic() + PULSE
        while not stop.is_set():
            for note in ear.notifies(timeout=2.5):
                tell(AWAITED if note.payload == AWAITED else head_of(note.payload))
                if stop.is_set():
                    break
            if time.monotonic() > pulse:
                ear.execute("select 1", prepare=False)
                pulse = time.monotonic() + PULSE


def _news(new: Iterable[NewItem]) -> set[str]:
    return {news for item in new if (news := news_of(item))}


def _shares(shares: Sequence[Share], parts: int = 1) -> dict[str, Any]:
    return {
        "queues": [share.line.queue for share in shares],
        "tasks": [share.line.task for share in shares],
        "owners": [share.line.owner for share in shares],
        "lanes": [share.lane for share in shares],
        "limits": [share.limit for share in shares],
        "ranks": [numbers(share.ranks * parts) for share in shares],
        "floors": [times([*(share.floors or [EPOCH] * len(share.ranks))] * parts) for share in shares],
        "families": sorted(families(shares)),
    }
