"""Days of a simulated catalog, and everything that must hold in all of them, checked from the ledger."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta

from duly import Duly
from duly.apps.catalog import Catalog, catalog_on, simulated
from duly.core.policy.retry import windows_of
from duly.virtual.simulation import Conditions, Simulation
from duly.virtual.story import SimulationResult, busiest_minute
from duly.virtual.world import stage

START = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"done", "unchanged"}


def live(products: int, days: int, model: Conditions) -> tuple[SimulationResult, Simulation, Catalog]:
    """So many days of a catalog; all that must hold, holds."""
    app = Duly("sqlite:///unused.db")
    catalog = catalog_on(app)
    end = START + timedelta(days=days)
    with stage(app, START - timedelta(minutes=1)) as (clock, runner):
        world = Simulation(app, clock, runner, model)
        simulated(catalog, world, products)
        loads = [slot.members for slot in catalog.slots()]
        assert max(loads) - min(loads) <= 1, "slots differ by more than one at the start"
        world.run_until(end - timedelta(microseconds=1))
        story = world.story(START, end)
        check_hours(story, days)
        check_account(story)
        check_windows(story, world, catalog, model)
        assert busiest_minute(world.ledger.calls) <= 2
        check_once_a_day(world)
        check_breakers(world, catalog)
    return story, world, catalog


def check_hours(story: SimulationResult, days: int) -> None:
    assert len(story.hours) == 24 * days
    assert [hour for hour in story.hours if hour.dispatched != hour.members] == []
    assert {(hour.at.hour, hour.at.minute) for hour in story.hours} == {(hour, 0) for hour in range(24)}
    assert all(hour.slot == hour.at.hour for hour in story.hours)


def check_account(story: SimulationResult) -> None:
    """Everything that was planned ended somewhere, and is counted once."""
    assert story.planned == sum(hour.dispatched for hour in story.hours)
    ends = (story.done, story.late, story.in_review, story.deactivated, story.skipped, story.still_failing)
    assert story.planned == sum(ends) + story.waiting


def check_windows(story: SimulationResult, world: Simulation, catalog: Catalog, model: Conditions) -> None:
    windows = windows_of(catalog.task.rules.retry)
    assert windows is not None
    assert {(window.at.hour, window.at.minute) for window in story.windows} <= {(hour, 30) for hour in range(2, 24, 4)}
    assert all(window.dispatched <= window.cap for window in story.windows)
    # While the supplier is down, there is a probe now and then, and no window is used up.
    usual = [window for window in story.windows if not any(window.at in outage for outage in model.outages)]
    starved = [window for window in usual if window.dispatched < min(window.cap, window.waiting)]
    assert starved == [], "a window took less than its cap while enough waited"
    for opened, picked in world.ledger.retried.items():
        # Whoever a crash tore from its try comes back out of order, and need not wait for a window.
        orderly = [item for item in picked if not item.crashes]
        order = [(item.failures_in_a_row, item.due_at, item.id) for item in orderly]
        assert order == sorted(order), f"the window of {opened} was not: fewest failures first, then oldest"
        assert all(item.due_at <= opened + timedelta(hours=4) for item in orderly)


def check_once_a_day(world: Simulation) -> None:
    synced: dict[tuple[int, date], int] = defaultdict(int)
    for at, change in world.ledger.ends:
        if change.member is not None and change.outcome in GOOD:
            synced[change.member.schedule_id, at.date()] += 1
    assert [each for each in synced.items() if each[1] > 1] == [], "someone was synced twice on one day"


def check_breakers(world: Simulation, catalog: Catalog) -> None:
    """Five failures in a row deactivate, and nothing less does. Those that an outage explains are taken back."""
    row: dict[int, int] = defaultdict(int)
    broken: set[int] = set()
    for _, change in world.ledger.ends:
        if change.member is None:
            continue
        schedule_id = change.member.schedule_id
        assert schedule_id not in broken, "a deactivated product was synced"
        if change.member.is_excused:
            row[schedule_id] = min(row[schedule_id], change.member.failures)
            continue
        row[schedule_id] = 0 if change.outcome in GOOD else row[schedule_id] + 1
        if row[schedule_id] >= 5:
            broken.add(schedule_id)
    assert {product.id for product in catalog.products(is_active=False, most=100_000)} == broken
