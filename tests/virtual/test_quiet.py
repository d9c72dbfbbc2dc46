"""A week in which everything goes as planned: no alert is raised, and nothing is logged that looks like trouble.

`make chaos` does the same for thirty days.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Struct

from duly import Duly, Limit
from duly.apps.birthdays import birthdays_on
from duly.apps.birthdays import simulated as people_born
from duly.apps.catalog import CatalogTuning, catalog_on
from duly.apps.catalog import simulated as products_listed
from duly.apps.reminders import reminders_on
from duly.core.model import Item
from duly.engine.calls import Verdicts
from duly.tasks.task import Task
from duly.virtual.simulation import Conditions, Interval, Simulation
from duly.virtual.world import stage
from tests.support import scaled
from tests.virtual.watching import DAY, START, Ear, watch

DAYS = scaled(7, 30)
LOOK = timedelta(minutes=7.5)
# Six slots of 20 products each, at two calls of one product in a minute: a slot takes ten minutes by design.
PRODUCTS, SLOTS = 120, 6
PEOPLE = 732  # two birthdays on each day of the year
REMINDERS = 3 * DAYS
JOBS, ROWS = (DAYS + 1) // 3, 120  # twelve rows a minute, so that a job takes ten minutes too
WORK = {"catalog.sync": DAYS * PRODUCTS, "birthday": DAYS * PEOPLE // 366, "remind": REMINDERS, "look_up": JOBS * ROWS}


class Days(Struct, frozen=True):
    """What the days were like."""

    ear: Ear
    done: Counter[str]  # items by task
    records: list[logging.LogRecord]
    alerts: list[str]  # those that still stand

    @property
    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self.records if record.levelno >= logging.WARNING]

    @property
    def recoveries(self) -> list[dict[str, Any]]:
        said = [vars(each) for each in self.records if each.getMessage() == "Scheduler job completed"]
        assert said, "there were no summaries"
        return [each for each in said if each["recoveryMode"] or each["eventsLate"]]


def live(model: Conditions, caplog: pytest.LogCaptureFixture) -> Days:
    """A catalog, birthdays, reminders and bulk jobs, whose outside world is as the model says."""
    app = Duly("sqlite:///unused.db", alert_again_seconds=600)
    settings = CatalogTuning(hour_buckets=SLOTS, batch_size=1, calls_per_minute=2)
    catalog, birthdays, reminders = catalog_on(app, settings=settings), birthdays_on(app), reminders_on(app)

    @app.task(limits=Limit("lookups", 12, per="1m"))
    def look_up(row: int) -> None: ...

    ear = Ear()
    with stage(app, START - LOOK) as (clock, runner), caplog.at_level(logging.INFO, "duly"):
        world = Simulation(app, clock, runner, model)
        products_listed(catalog, world, PRODUCTS)
        people_born(birthdays, world, PEOPLE)
        for n in range(REMINDERS):
            reminders.schedule("+38591123456", "Ring", START + n * timedelta(hours=7, minutes=50))

        def answer(task: Task[..., Any], items: Sequence[Item]) -> Verdicts:
            return world.call(task, items) if task is catalog.task else world.upstream.answer(task, items)

        world.answer = answer
        one, was_down = watch(app, world, ear), False
        until = START + DAYS * DAY - timedelta(microseconds=1)
        while clock.now() < until:
            day, time = divmod(clock.now() - START, DAY)
            if day % 3 == 1 and timedelta(hours=13) <= time < timedelta(hours=13) + LOOK:
                app.job(look_up, ({"row": row} for row in range(ROWS)))
            world.run_until(min(clock.now() + LOOK, until))
            is_down = any(clock.now() in each for each in model.downtimes)
            if was_down and not is_down:
                one = watch(app, world, ear, "another")
            if not is_down:
                one.tick(clock.now())
            was_down = is_down
        done = Counter(change.task for _, change in world.ledger.ends if change.state == "done" and change.task in WORK)
        return Days(ear, done, list(caplog.records), [alert.name for alert in app.read.alerts()])


def test_normal_days_raise_no_alert_no_warning_and_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    found = live(Conditions(), caplog)
    assert found.done == WORK
    assert found.ear.heard == {}
    assert found.alerts == []
    assert found.warnings == []
    assert found.recoveries == []


def test_failures_now_and_then_raise_no_alert_either(caplog: pytest.LogCaptureFixture) -> None:
    found = live(Conditions(failure_rate=0.02, seed=3), caplog)
    assert sum(found.done.values()) > 0.98 * sum(WORK.values())
    assert found.ear.heard == {}
    assert found.alerts == []
    assert [each for each in found.warnings if "failed, scheduling retry" in each] != []
    assert [each for each in found.warnings if "failed, scheduling retry" not in each] == []


def test_six_hours_of_downtime_are_one_alert_that_is_told_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    down = Interval(START + timedelta(days=3, hours=7), START + timedelta(days=3, hours=13))
    found = live(Conditions(downtimes=(down,)), caplog)
    assert found.done == WORK, "all of it was made up"
    assert found.ear.names == ["no_tick"]
    assert found.ear.heard.total() >= 2
    assert found.alerts == [], "it was cleared"
    first, *again = [each for each in found.warnings if "Late" not in each]
    assert first.startswith("Scheduler appears to have been down")
    assert all(each.startswith("still: Scheduler appears to have been down") for each in again)
    assert len(found.recoveries) > 0
