"""Products of a catalog: those of past hours are synced at first, and then a few every ten seconds."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import cycle

from duly.apps.catalog import Catalog
from duly.core.errors import WrongState
from duly.verbs import LOCAL

PRODUCTS = 240  # ten in each slot
FEW = 3
EVERY = timedelta(seconds=10)
# Products that the supplier has no longer.
GONE = frozenset(f"AC-{number}" for number in (1_002, 1_007, 1_031, 1_104))


class CatalogDemo:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._again_at: datetime | None = None

    def step(self) -> None:
        """Publish all products, and sync those whose hour has passed; later sync a few at a time."""
        now = self._catalog.app.clock.now()
        if self._again_at is None:
            self._catalog.publish_many({"user_id": "acme", "sku": f"AC-{1_000 + number}"} for number in range(PRODUCTS))
            products = self._catalog.products(most=PRODUCTS)
            self._ids = cycle([product.id for product in products])
            self._sync([product.id for product in products if product.hour_bucket <= now.astimezone(UTC).hour])
        elif now >= self._again_at:
            self._sync([next(self._ids) for _ in range(FEW)])
        else:
            return
        self._again_at = now + EVERY

    def _sync(self, ids: list[int]) -> None:
        for schedule_id in ids:
            with suppress(WrongState):  # it is deactivated, or being synced already
                self._catalog.app.verbs.schedules.run_now(LOCAL, schedule_id)


def offers(skus: list[str], now: datetime) -> list[dict[str, object]]:
    """The supplier's answer for these products. Quantities change from minute to minute."""
    minute = int(now.timestamp()) // 60
    return [
        {"sku": sku, "price": 5 + hash_of(sku) % 90 + 0.9, "quantity": (hash_of(sku) + minute) % 40, "in_stock": True}
        for sku in skus
        if sku not in GONE
    ]


def hash_of(sku: str) -> int:
    """A number for a SKU, the same in every process."""
    return sum(sku.encode()) * 31
