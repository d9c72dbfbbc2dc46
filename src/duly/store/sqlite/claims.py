"""Lines and leases in a SQLite file: finding what waits, claiming it, prolonging leases and finding lost ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import Any

from duly.core.clock import EPOCH
from duly.core.model import Ask, Grant, Head, Item, Share
from duly.store.contract import START, SurveyPlace
from duly.store.granting import MeterBudget, grant_calls, leases_for, once, under
from duly.store.lines import are_open, families, family, heads_of, in_order, items_under, place_of
from duly.store.records import METER, reader
from duly.store.sqlite.file import SqliteFile
from duly.store.sqlite.values import READ, item_of, maybe_int, maybe_time, to_int, to_json, to_time

_meter_of = reader(METER, READ)


class SqliteClaims(SqliteFile):
    def survey(self, after: SurveyPlace = START, most: int = 1_000) -> tuple[list[Head], SurveyPlace | None]:
        names = ("queue", "lane", "rank", "task", "owner")
        heads = self._heads("survey", {**dict(zip(names, after, strict=True)), "most": most})
        return self._open(heads), place_of(heads, most)

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        parameters = {"now": to_int(now), "most": most}
        newest = self._heads("newest", parameters)
        oldest = self._heads("oldest", parameters) if len(newest) == most else []
        return self._open([*newest, *oldest]), maybe_time(self._read("next_due", {"now": to_int(now)})[0][0])

    def _heads(self, name: str, parameters: Mapping[str, Any]) -> list[Head]:
        return heads_of((*line, to_time(due_at)) for *line, due_at in self._read(name, parameters))

    def _open(self, heads: list[Head]) -> list[Head]:
        queues = self.open_queues(head.line.queue for head in heads)
        return [head for head in heads if head.line.queue in queues]

    def open_queues(self, names: Iterable[str], connection: sqlite3.Connection | None = None) -> set[str]:
        queues = set(names)
        wanted = sorted({name for queue in queues for name in family(queue)})
        with self._reading() if connection is None else nullcontext(connection) as reader:
            paused = reader.execute(self._sql["paused"], {"names": to_json(wanted)}).fetchall()
        return are_open(queues, {row[0] for row in paused})

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        with self._writing() as writer:
            now = now or self.now()
            items = [item for some in once(self._pick(writer, now, shares)) for item in some]
            if not items:
                return []
            (claimed,) = self._start(writer, [(items, None)], [Grant(items)], worker, now, lease)
        return sorted(claimed.items, key=in_order)

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        with self._writing() as writer:
            now = now or self.now()
            names = {"names": to_json(sorted({meter.name for ask in asks for meter in ask.meters}))}
            meters = [_meter_of(row) for row in writer.execute(self._sql["meters"], names)]
            budget = MeterBudget(asks, meters, dict(writer.execute(self._sql["under_way"], names).fetchall()), now)
            grants = grant_calls(asks, budget, calls, batch, partial(self._pick, writer, now))
            if not (leases := leases_for(asks, grants, batch)):
                return grants
            for name, log in budget.hits():
                writer.execute(self._sql["hit"], {"name": name, "hits": to_json([*map(to_int, log)])})
            return self._start(writer, leases, grants, worker, now, lease)

    def _pick(self, writer: sqlite3.Connection, now: datetime, shares: Sequence[Share]) -> list[list[Item]]:
        """The due items of each share, without those of paused queues."""
        names = {"names": to_json(sorted(families(shares)))}
        closed = {row[0] for row in writer.execute(self._sql["paused"], names)}
        return [
            self._picked(writer, now, share) if not closed or closed.isdisjoint(family(share.line.queue)) else []
            for share in shares
        ]

    def _picked(self, writer: sqlite3.Connection, now: datetime, share: Share) -> list[Item]:
        items: list[Item] = []
        queue, task, owner = share.line
        for rank, floor in zip_longest(share.ranks, share.floors, fillvalue=EPOCH):
            room = share.limit - len(items)
            if room <= 0:
                break
            parameters = {
                "queue": queue, "lane": share.lane, "rank": rank, "task": task, "owner": owner, "most": room,
                "since": to_int(floor), "now": to_int(now), "started_since": maybe_int(share.started_since),
            }  # fmt: skip
            rows = writer.execute(self._sql["pick"], parameters)
            items.extend(map(item_of, rows))
        return items

    def _start(
        self,
        writer: sqlite3.Connection,
        leases: Sequence[tuple[list[Item], list[str] | None]],
        grants: Sequence[Grant],
        worker: str,
        now: datetime,
        lease: timedelta,
    ) -> list[Grant]:
        """Mark the picked items as running, each under its fence."""
        (last,) = writer.execute(self._sql["last_fence"]).fetchone()
        common = {"worker": worker, "now": to_int(now), "lease_until": to_int(now + lease)}
        rows = [
            {
                **common,
                "fence": fence,
                "items": to_json([item.id for item in items]),
                "meters": None if names is None else to_json(names),
            }
            for fence, (items, names) in enumerate(leases, last + 1)
        ]
        writer.executemany(self._sql["lease"], rows)
        writer.executemany(self._sql["claim"], rows)
        fences = {item.id: fence for fence, (items, _) in enumerate(leases, last + 1) for item in items}
        return under(fences, grants, claimed_by=worker, started_at=now)

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        with self._writing() as writer:
            kept = {
                row[0]
                for row in writer.execute(
                    self._sql["extend"],
                    {"fences": to_json(list(held)), "now": to_int(now), "lease_until": to_int(lease_until)},
                ).fetchall()
            }
            running = set(writer.execute(self._sql["held"], {"ids": to_json([item_id for item_id, _ in pairs])}))
        return [pair for pair in pairs if pair[1] not in kept or pair not in running]

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self._read("held", {"ids": to_json(list(ids))})

    def leases(self) -> list[tuple[int, str, datetime]]:
        if not self._read("leases", {}):  # without leases there is no need to wait for a turn to write
            return []
        # Reads never wait in SQLite, but heartbeats do. Once it is our turn to write, those before us were written.
        with self._writing() as writer:
            rows = writer.execute(self._sql["leases"]).fetchall()
        return [(fence, worker, to_time(lease_until)) for fence, worker, lease_until in rows]

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        return self.under([row[0] for row in self._read("expired", {"now": to_int(now), "most": most})])

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        rows = self._read("under", {"fences": to_json(list(fences))})
        return items_under(rows, item_of)
