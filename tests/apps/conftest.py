"""A provider, and apps of reminders and of a catalog in virtual time on either database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import Duly
from duly.apps.reminders import Reminders, reminders_on
from duly.core.clock import ManualClock
from duly.testing import World
from tests.apps.catalog_api import CatalogApi
from tests.apps.catalog_shop import KEY as SHOP_KEY
from tests.apps.catalog_shop import START as SHOP_START
from tests.apps.catalog_shop import Open, Shop
from tests.outbound.provider import Answer, Provider

START = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
KEY = "sk-live-2718281828"
PATIENCE = 120.0  # bounds a hang, also where many other processes compute


@pytest.fixture
def call_desk() -> Iterator[Callable[..., Provider]]:
    providers: list[Provider] = []

    def open_with(*answers: Answer) -> Provider:
        providers.append(Provider(*answers).__enter__())
        return providers[-1]

    yield open_with
    for provider in providers:
        provider.__exit__()


class Office:
    """Reminders on an app whose time moves only when told, and the provider that they call."""

    def __init__(self, app: Duly, clock: ManualClock, provider: Provider | None, runner: asyncio.Runner) -> None:
        self.reminders: Reminders = reminders_on(app)
        self.provider = provider
        self.world = World(app, clock, runner)

    def remind(self, **more: Any) -> int:
        """Schedule a reminder for START."""
        given = {"phone": "+385 1 234", "message": "Dentist at 9", "at": START, **more}
        return self.reminders.schedule(**given).id


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture
def office(database_url: str, runner: asyncio.Runner) -> Iterator[Callable[..., Office]]:
    apps: list[Duly] = []

    def open_with(provider: Provider | None = None, **settings: Any) -> Office:
        clock = ManualClock(START)
        url = provider.url if provider else "http://127.0.0.1:9"
        given = {"vapi_base_url": url, "vapi_api_key": KEY, "vapi_timeout_seconds": 10.0, **settings}
        apps.append(Duly(database_url, clock=clock, **given))
        return Office(apps[-1], clock, provider, runner)

    yield open_with
    for app in apps:
        app.close()


@pytest.fixture
def shop(database_url: str, runner: asyncio.Runner) -> Iterator[Open]:
    apps: list[Duly] = []
    apis: list[CatalogApi] = []

    def open_with(
        *answers: Answer, start: datetime = SHOP_START, settings: Any = None, on: Any = None, **given: Any
    ) -> Shop:
        clock = ManualClock(start)
        apis.append(CatalogApi(*answers).__enter__())
        said = {"catalog_base_url": apis[-1].url, "catalog_api_key": SHOP_KEY, "catalog_timeout_seconds": 10.0, **given}
        apps.append(Duly(database_url, clock=clock, **said))
        return Shop(apps[-1], clock, apis[-1], runner, settings=settings, on_change=on(apps[-1]) if on else None)

    yield open_with
    for app in apps:
        app.close()
    for api in apis:
        api.__exit__()


def eventually(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What `look` says once it says something true; fails when it does not in time."""
    give_up = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up, f"nothing came of it in {seconds:g} s"
        time.sleep(0.02)
    return found


@contextmanager
def process(code: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs this code until the end of the block."""
    running = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        yield running
    finally:
        running.kill()
        running.wait()
