"""A provider of products on a real socket, and the enrichment app in virtual time on either database."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from duly import Duly
from duly.apps.enrichment import enrichment_on
from duly.apps.enrichment.lookups import Enrichment
from duly.apps.enrichment.searches import SearchEvent
from duly.core.clock import ManualClock
from duly.core.model import Job
from duly.core.shown import ExportRow
from duly.testing import World
from duly.verbs import LOCAL
from tests.intake.conftest import send
from tests.outbound.provider import Answer, Provider, Request, answer
from tests.outbound.provider import Desk as Waiter

START = datetime(2031, 5, 1, 8, 0, tzinfo=UTC)
KEY = "sk-live-3141592653"
POT: dict[str, Any] = {
    "title": "Tea pot, blue", "brand": "Acme", "sku": "TP-7", "price": 19.90, "currency": "EUR",
    "url": "https://acme.example/tp-7", "image": "https://acme.example/tp-7.jpg", "retailer": "acme",
}  # fmt: skip


def told(*products: Any) -> Answer:
    """A 200 with these products."""
    return answer(200, json.dumps({"products": products}).encode())


def hang(waiter: Waiter) -> None:
    """Never answer."""
    waiter.provider.closing.wait()


class Shop(Provider):
    """Has what it is given, under the words by which it is asked for; answers as it was told before that."""

    def __init__(self) -> None:
        super().__init__()
        self.has: dict[tuple[str, str], Answer] = {}  # by query and retailer
        self.before: dict[str, deque[Answer]] = defaultdict(deque)  # by query

    def accept(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            query, retailer = request.body["query"], request.body["retailer"] or ""
            if self.before[query]:
                return self.before[query].popleft()
            return self.has.get((query, retailer), answer(404))

    def asked(self) -> list[tuple[str, str, str | None]]:
        return [(each.body["by"], each.body["query"], each.body["retailer"]) for each in self.requests]


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as one:
        assert isinstance(one, Shop)
        yield one


class Desk:
    """The enrichment app on an app whose time moves only when told."""

    def __init__(self, app: Duly, runner: asyncio.Runner) -> None:
        self.app = app
        self.enrichment: Enrichment = enrichment_on(app)
        assert isinstance(app.clock, ManualClock)
        self.world = World(app, app.clock, runner)

    def send(self, content: str | bytes, name: str = "products.csv", **more: Any) -> Job:
        """Send a file, and work off what is due."""
        job = send(self.app, content, name, **more)
        self.world.run()
        return job

    def rows(self, job: Job) -> list[ExportRow]:
        return list(self.app.internals.verbs.job_rows.each(LOCAL, job.id))

    def row(self, job: Job) -> ExportRow:
        (row,) = self.rows(job)
        return row

    def events(self, job: Job) -> list[SearchEvent]:
        return self.enrichment.events(job.id)

    def story(self, job: Job) -> list[tuple[str, str, str]]:
        return [(event.variant, event.retailer, event.status) for event in self.events(job)]


Open = Callable[..., Desk]


@pytest.fixture
def open_desk(database_url: str, tmp_path: Path, shop: Shop) -> Iterator[Open]:
    with asyncio.Runner() as runner:
        opened: list[Duly] = []

        def build(**settings: Any) -> Desk:
            given = {
                "files_url": str(tmp_path / "files"), "enrichment_base_url": shop.url, "enrichment_api_key": KEY,
                **settings,
            }  # fmt: skip
            opened.append(Duly(database_url, clock=ManualClock(START), **given))
            return Desk(opened[-1], runner)

        yield build
        for app in opened:
            app.close()


@pytest.fixture
def desk(open_desk: Open) -> Desk:
    return open_desk()
