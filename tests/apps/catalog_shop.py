"""A catalog in virtual time, with the API of its supplier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from duly import Duly
from duly.apps.catalog import Catalog, Product, catalog_on
from duly.core.clock import ManualClock
from duly.testing import World
from tests.apps.catalog_api import CatalogApi

Open = Callable[..., "Shop"]

START = datetime(2024, 1, 15, 9, 30, tzinfo=UTC)
KEY = "ck-live-3141592653"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Shop:
    """A catalog on an app whose time moves only when told, and the API that it asks."""

    def __init__(self, app: Duly, clock: ManualClock, api: CatalogApi, runner: asyncio.Runner, **more: Any) -> None:
        self.app = app
        self.api = api
        self.catalog: Catalog = catalog_on(app, **more)
        self.world = World(app, clock, runner)
        self.calls: list[datetime] = []
        ask = self.catalog.ask
        self.catalog.ask = lambda skus: (self.calls.append(clock.now()), ask(skus))[1]

    def fill(self, slot: int, *skus: str, user_id: str = "u") -> None:
        """Publish these into one slot: a person seats them there."""
        from duly.verbs.timetable import Move

        for sku in skus:
            product = self.catalog.publish(user_id, sku)
            self.app.schedules.move([Move(product.id, "", product.hour_bucket, slot)])

    def until(self, text: str) -> None:
        self.world.run_until(utc(text))

    def product(self, sku: str, user_id: str = "u") -> Product:
        return self.catalog.product(user_id, sku)

    def dispatched(self, slot_at: str) -> int:
        """How many items were made for this hour."""
        return sum(row.planned_at == utc(slot_at) for row in self.app.read.pages(task="catalog.sync"))
