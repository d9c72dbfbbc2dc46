"""Worlds in virtual time with somebody who watches them, and a supplier that is down for a day in a week."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct

from duly import Duly
from duly.apps.catalog import CatalogTuning, catalog_on, simulated
from duly.engine.metering import holds_of
from duly.engine.watch import Watch
from duly.virtual.simulation import Conditions, Interval, Simulation
from duly.virtual.story import SimulationResult
from duly.virtual.world import World, stage

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LOOK = timedelta(minutes=5)


class Ear:
    """A webhook that remembers how often it heard of which alert: its name, and since when it stands."""

    def __init__(self) -> None:
        self.heard: Counter[tuple[str, str]] = Counter()

    @property
    def names(self) -> list[str]:
        """The names of alerts that it heard of; a name is there twice if there were two of them."""
        return sorted(name for name, _ in self.heard)

    def __call__(self, _: str, body: Mapping[str, Any]) -> None:
        self.heard[body["alert"], body["since"]] += 1


def watch(app: Duly, world: World, ear: Ear, name: str = "w") -> Watch:
    settings = replace(app.settings, alert_webhook_url="http://x")
    return Watch(
        app.internals.store, name, sorted(app.tasks), settings,
        post=ear, summary=app.internals.telemetry.summary, holds=holds_of(app.tasks), outages=world.outages,
    )  # fmt: skip


class Week(Struct, frozen=True):
    """What became of a week in which the supplier was down for a day."""

    story: SimulationResult
    out: Interval
    calls: list[datetime]  # while it was down
    first: list[datetime]  # calls of the first minutes of it, by which it was found out
    ear: Ear
    alerts: int  # that still stand at the end
    blamed: int  # the most failures in a row that any product has
    last_synced: date  # the day of the last success of whoever was synced longest ago
    caught_up: timedelta  # how long after its return the last product was done that had to wait


def week(products: int, settings: CatalogTuning | None = None) -> Week:
    """The supplier is away for 24 hours from the second noon on."""
    out = Interval(START + timedelta(hours=36), START + timedelta(hours=60))
    app = Duly("sqlite:///unused.db")
    catalog = catalog_on(app, settings=settings)
    ear = Ear()
    with stage(app, START - timedelta(minutes=1)) as (clock, runner):
        world = Simulation(app, clock, runner, Conditions(outages=(out,)))
        simulated(catalog, world, products)
        one = watch(app, world, ear)
        until = START + 7 * DAY
        while clock.now() < until:
            world.run_until(clock.now() + LOOK)
            one.tick(clock.now())
        found = catalog.products(most=products)
        late = {item.id for _, item in world.ledger.attempts if item.planned_at < out.end}
        done = [at for at, change in world.ledger.ends if change.id in late and change.state == "done"]
        calls = [at for at in world.ledger.calls if at in out]
        return Week(
            story=world.story(START, until),
            out=out,
            calls=[at for at in calls if at >= out.start + LOOK],
            first=[at for at in calls if at < out.start + LOOK],
            ear=ear,
            alerts=len(app.read.alerts()),
            blamed=max(product.consecutive_failures for product in found),
            last_synced=min(product.last_successful_sync or START.date() for product in found),
            caught_up=max(done) - out.end,
        )
