"""Claims in PostgreSQL: one statement claims unlocked items; under limits, the meters are locked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from duly.core.clock import EPOCH
from duly.core.model import Ask, Grant, Item, Share
from duly.core.shown import MeterRow
from duly.store.claims import Claims, families, in_order, meter_names
from duly.store.granting import Hits, Leases, MeterBudget
from duly.store.postgres.arrays import numbers, texts, times
from duly.store.postgres.connections import Connection
from duly.store.postgres.sessions import Sessions
from duly.store.records import ITEM, METER

# With more asks than this beyond what can be served, exhausted ones are sorted out before meters are locked.
FEW = 20


class PostgresClaims(Sessions, Claims[Connection]):
    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        given = {**_shares(shares), "worker": worker, "now": now, "lease": lease}
        return sorted(self._all(ITEM, "claim", given), key=in_order)

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        with self._writing() as connection:
            self._run("by_index", {}, connection)
            answers = self._refusals(asks, now, connection) if len(asks) > 2 * calls + FEW else [None] * len(asks)
            # Lock no more meters than these calls could need.
            served = [ask for ask, answer in zip(asks, answers, strict=True) if answer is None][: calls + FEW]
            grants = iter(self._grants(served, worker, now, lease, calls, batch, connection) if served else ())
        return [answer or next(grants, Grant(is_asked=False)) for answer in answers]

    def _refusals(self, asks: Sequence[Ask], now: datetime | None, connection: Connection) -> list[Grant | None]:
        """Refusals that can be given without a lock: of very many asks, most may be for keys that are exhausted."""
        meters = self._all(METER, "meters", {"names": meter_names(asks)}, connection)
        budget = MeterBudget(asks, meters, self._under_way(asks, connection), now or self.now(connection))
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

    def _pick(self, now: datetime, connection: Connection, shares: Sequence[Share]) -> list[list[Item]]:
        picked: list[list[Item]] = [[] for _ in shares]
        given = {
            **_shares(shares),
            "places": range(len(shares)),
            "started_sinces": [share.started_since for share in shares],
            "now": now,
        }
        for place, *row in self._run("pick", given, connection):
            picked[place].append(Item(*row))
        return [sorted(items, key=in_order) for items in picked]

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


def _shares(shares: Sequence[Share]) -> dict[str, Any]:
    return {
        "queues": [share.line.queue for share in shares],
        "tasks": [share.line.task for share in shares],
        "owners": [share.line.owner for share in shares],
        "lanes": [share.lane for share in shares],
        "limits": [share.limit for share in shares],
        "ranks": [numbers(share.ranks) for share in shares],
        "floors": [times(share.floors or [EPOCH] * len(share.ranks)) for share in shares],
        "families": sorted(families(shares)),
    }
