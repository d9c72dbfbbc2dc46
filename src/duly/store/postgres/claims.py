"""Lines and leases in PostgreSQL: finding what waits, claiming it, prolonging leases and finding lost ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from duly.core.clock import EPOCH
from duly.core.model import Ask, Grant, Head, Item, Share
from duly.core.shown import MeterRow
from duly.store.contract import START, SurveyPlace
from duly.store.granting import MeterBudget, grant_calls, leases_for, under
from duly.store.lines import are_open, families, family, heads_of, in_order, items_under, place_of
from duly.store.postgres.arrays import ints, maybe_texts, texts, times
from duly.store.postgres.connections import Connection
from duly.store.postgres.sessions import Sessions
from duly.store.records import ITEM, reader

# With more asks than this beyond what can be served, exhausted ones are sorted out before meters are locked.
FEW = 20

item_of = reader(ITEM, {})


class PostgresClaims(Sessions):
    def survey(self, after: SurveyPlace = START, most: int = 1_000) -> tuple[list[Head], SurveyPlace | None]:
        names = ("queue", "lane", "rank", "task", "owner")
        heads = heads_of(self._run("survey", {**dict(zip(names, after, strict=True)), "most": most}))
        return self._open(heads), place_of(heads, most)

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        parameters = {"now": now, "most": most}
        newest = heads_of(self._run("newest", parameters))
        oldest = heads_of(self._run("oldest", parameters)) if len(newest) == most else []
        return self._open([*newest, *oldest]), self._run("next_due", {"now": now})[0][0]

    def _open(self, heads: list[Head]) -> list[Head]:
        queues = self.open_queues(head.line.queue for head in heads)
        return [head for head in heads if head.line.queue in queues]

    def open_queues(self, names: Iterable[str], connection: Connection | None = None) -> set[str]:
        queues = set(names)
        if not queues:
            return queues
        wanted = texts({name for queue in queues for name in family(queue)})
        return are_open(queues, {row[0] for row in self._run("paused", {"names": wanted}, connection)})

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        rows = self._run("claim", {**_shares(shares), "worker": worker, "now": now, "lease": lease})
        return sorted([Item(*row) for row in rows], key=in_order)

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        with self._connection() as connection, connection.transaction():
            self._run("by_index", {}, connection)
            answers = self._refusals(asks, now, connection) if len(asks) > 2 * calls + FEW else [None] * len(asks)
            # Lock no more meters than these calls could need.
            served = [ask for ask, answer in zip(asks, answers, strict=True) if answer is None][: calls + FEW]
            grants = iter(self._grants(served, worker, now, lease, calls, batch, connection) if served else ())
        return [answer or next(grants, Grant(is_asked=False)) for answer in answers]

    def _refusals(self, asks: Sequence[Ask], now: datetime | None, connection: Connection) -> list[Grant | None]:
        """Refusals that can be given without a lock: of very many asks, most may be for keys that are exhausted."""
        rows = self._run("meters", {"names": texts(_meter_names(asks))}, connection)
        now = now or self._run("now", {}, connection)[0][0]
        budget = MeterBudget(asks, [MeterRow(*row) for row in rows], self._under_way(asks, connection), now)
        return [budget.refusal(ask) for ask in asks]

    def _grants(
        self,
        asks: Sequence[Ask],
        worker: str,
        now: datetime | None,
        lease: timedelta,
        calls: int,
        batch: int,
        connection: Connection,
    ) -> list[Grant]:
        names = _meter_names(asks)
        given = {"names": texts(names), "now": now}
        rows = self._run("lock_meters", given, connection)
        if len(rows) < len(names):
            self._run("new_meters", {"names": names}, connection)
            rows = self._run("lock_meters", given, connection)
        # The time is read under the last lock, when nobody else can be granted anything, so grants are in its order.
        at: datetime = max((row[-1] for row in rows), default=now) or self._run("now", {}, connection)[0][0]
        meters = [MeterRow(*row) for *row, _ in rows]
        budget = MeterBudget(asks, meters, self._under_way(asks, connection), at)
        grants = grant_calls(asks, budget, calls, batch, partial(self._pick, at, connection))
        if leases := leases_for(asks, grants, batch):
            fences = self._start(leases, dict(budget.hits()), worker, at, at + lease, connection)
            grants = under(fences, grants, claimed_by=worker, started_at=at)
        return grants

    def _under_way(self, asks: Sequence[Ask], connection: Connection) -> dict[str, int]:
        names = sorted({meter.name for ask in asks for meter in ask.meters if meter.is_concurrency})
        return dict(self._run("under_way", {"names": texts(names)}, connection)) if names else {}

    def _pick(self, now: datetime, connection: Connection, shares: Sequence[Share]) -> list[list[Item]]:
        picked: list[list[Item]] = [[] for _ in shares]
        given = {
            **_shares(shares),
            "places": ints(range(len(shares))),
            "started_sinces": times(share.started_since for share in shares),
            "now": now,
        }
        for place, *row in self._run("pick", given, connection):
            picked[place].append(Item(*row))
        return [sorted(items, key=in_order) for items in picked]

    def _start(
        self,
        leases: Sequence[tuple[list[Item], list[str] | None]],
        hits: Mapping[str, Sequence[datetime]],
        worker: str,
        now: datetime,
        lease_until: datetime,
        connection: Connection,
    ) -> dict[int, int]:
        """Mark these items as running; returns the fence of each item by its id."""
        fences: list[tuple[int, int]] = self._run(
            "start",
            {
                "worker": worker,
                "now": now,
                "lease_until": lease_until,
                "items": texts(ints(item.id for item in items) for items, _ in leases),
                "meters": maybe_texts(None if names is None else texts(names) for _, names in leases),
                "names": texts(hits),
                "hits": texts(times(log) for log in hits.values()),
            },
            connection,
        )
        return dict(fences)

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        return self._run(
            "extend",
            {
                "fences": ints(held),
                "ids": ints([item_id for item_id, _ in pairs]),
                "item_fences": ints([fence for _, fence in pairs]),
                "now": now,
                "lease_until": lease_until,
            },
        )

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self._run("held", {"ids": ints(ids)})

    def leases(self) -> list[tuple[int, str, datetime]]:
        return self._run("leases", {})

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        return self.under([row[0] for row in self._run("expired", {"now": now, "most": most})])

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        return items_under(self._run("under", {"fences": ints(fences)}), item_of)


def _shares(shares: Sequence[Share]) -> dict[str, Any]:
    return {
        "queues": texts(share.line.queue for share in shares),
        "tasks": texts(share.line.task for share in shares),
        "owners": texts(share.line.owner for share in shares),
        "lanes": texts(share.lane for share in shares),
        "limits": ints([share.limit for share in shares]),
        "ranks": texts(ints(share.ranks) for share in shares),
        "floors": texts(times(share.floors or [EPOCH] * len(share.ranks)) for share in shares),
        "families": texts(sorted(families(shares))),
    }


def _meter_names(asks: Iterable[Ask]) -> list[str]:
    return sorted({meter.name for ask in asks for meter in ask.meters})
