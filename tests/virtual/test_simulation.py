"""Days in virtual time: whatever fails, the load stays even and nobody is called too often."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from duly import Duly, Every, InputError
from duly.cli import main
from duly.virtual.simulation import Conditions, Simulation, interval
from duly.virtual.world import stage
from tests.support import scaled
from tests.virtual.days import START, live

OUTAGE = (interval("outage", "2026-01-02T10:00/6h"),)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_an_even_catalog_stays_even_through_failures_an_outage_and_crashes(rate: float) -> None:
    story, _, _ = live(240, 3, Conditions(failure_rate=rate, outages=OUTAGE, crash_rate=0.02, seed=7))
    assert story.crashes > 0
    assert story.done + story.late > 240
    assert (story.recovered > 0) == (rate > 0), "nobody is blamed for the outage, but for failures of his own"


def test_failures_day_after_day_deactivate() -> None:
    story, _, _ = live(240, 5, Conditions(failure_rate=0.9, seed=1))
    assert story.deactivated > 0
    assert story.hours[-1].members < 10


def test_a_slow_upstream_makes_late_but_not_uneven() -> None:
    story, _, _ = live(240, 1, Conditions(slow=45.0, seed=1))
    assert story.calls.max_per_minute <= 2
    assert story.done == 240


def test_the_same_seed_gives_the_same_days() -> None:
    model = Conditions(failure_rate=0.2, crash_rate=0.05, outages=OUTAGE, seed=42)
    first, second = (live(120, 2, model)[0] for _ in range(2))
    assert first == second
    other = live(120, 2, Conditions(failure_rate=0.2, crash_rate=0.05, outages=OUTAGE, seed=43))[0]
    assert other != first


def test_handlers_of_an_app_are_not_called() -> None:
    app = Duly("sqlite:///unused.db")

    @app.task
    def dangerous() -> None:
        raise AssertionError("a simulation touched the outside")

    dangerous.every(Every("1h")).put()
    with stage(app, START) as (clock, runner):
        world = Simulation(app, clock, runner, Conditions(downtimes=(interval("down", "2026-01-01T03:30/5h"),)))
        world.run_until(START + timedelta(days=1))
        story = world.story(START, START + timedelta(days=1))
    assert (story.planned, story.done, story.late) == (23, 18, 1), "one of those missed is made up for, late"
    assert story.skipped == 4, "of the five hours down, the latest is made up for and four are skipped"
    (gone,) = story.interruptions
    assert (gone.what, gone.late, gone.seconds, gone.in_review) == ("down", 1, 0.0, 0)
    assert story.lateness.max_s == 1_800


@pytest.mark.parametrize(
    "text", ["tomorrow/6h", "2026-01-01/6h/7", "2026-01-01T00:00", "2026-01-01T00:00/soon", "", "/"]
)
def test_a_stretch_of_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"outage|at:"):
        interval("outage", text)


@pytest.mark.parametrize("field", ["failure_rate", "crash_rate", "slow"])
def test_a_model_out_of_this_world_is_refused(field: str) -> None:
    with pytest.raises(InputError, match=field):
        Conditions(**{field: -0.1})


def test_simulate_answers_in_json_by_its_contract() -> None:
    command = (
        "simulate catalog --products 48 --days 1 --failure-rate 0.1 --outage 2026-01-01T10:00/2h --crash-rate 0.01"
    )
    result = CliRunner().invoke(main, [*command.split(), "--seed", "7", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    story = json.loads(result.stdout)
    assert len(story["hours"]) == 24
    assert set(story["hours"][0]) == {"at", "slot", "members", "dispatched"}
    assert len(story["windows"]) == 6
    assert set(story["windows"][0]) == {"at", "cap", "waiting", "dispatched"}
    assert set(story["calls"]) == {"total", "max_per_minute"}
    assert set(story["lateness"]) == {"p50_s", "p99_s", "max_s"}
    assert set(story["interruptions"][0]) == {"what", "start", "end", "late", "seconds", "in_review"}
    ends = ("done", "late", "in_review", "deactivated", "skipped", "still_failing", "waiting")
    assert story["planned"] == sum(story[name] for name in ends) == 48
    assert datetime.fromisoformat(story["hours"][0]["at"]) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "what",
    [
        "catalog --products 100", "birthdays --people 300", "reminders --reminders 50", "messages --messages 50",
        "tests.process.workload:app",
    ],
)  # fmt: skip
def test_simulate_draws_a_chart(what: str) -> None:
    result = CliRunner().invoke(main, ["simulate", *what.split(), "--days", "2", "--failure-rate", "0.1"])
    assert result.exit_code == 0, result.output
    assert "load by hour" in result.output
    assert "lateness" in result.output
    counted = re.findall(r"^(planned|  [a-z ]+?) {2,}([0-9,]+)", result.output, re.MULTILINE)
    numbers = {name.strip(): int(count.replace(",", "").rstrip(",")) for name, count in counted}
    assert len(numbers) == 8
    assert numbers.pop("planned") == sum(numbers.values())


def test_nothing_runs_while_no_worker_does_however_often_one_looks() -> None:
    app = Duly("sqlite:///unused.db")

    @app.task
    def once() -> None: ...

    with stage(app, START) as (clock, runner):
        down = interval("down", "2026-01-01T01:00/5h")
        world = Simulation(app, clock, runner, Conditions(downtimes=(down,)))
        once.at(START + timedelta(hours=2)).put()
        for hour in range(1, 9):
            world.run_until(START + timedelta(hours=hour))
        assert [at for at, _ in world.ledger.attempts] == [down.end]


def test_birthdays_missed_in_a_day_of_downtime_are_all_had() -> None:
    command = "simulate birthdays --people 1000 --days 4 --down 2026-01-02T00:00/24h --json"
    story = json.loads(CliRunner().invoke(main, command.split(), catch_exceptions=False).stdout)
    assert story["planned"] == sum(hour["dispatched"] for hour in story["hours"]) > 0
    assert story["planned"] == story["done"] + story["late"]
    assert 3_600 < story["lateness"]["max_s"] <= 86_400
    (gone,) = story["interruptions"]
    assert gone["late"] == story["late"] > 0
    assert gone["seconds"] < 60


@pytest.mark.parametrize("batch", [1, 10])
def test_after_a_day_of_downtime_every_window_takes_its_cap_or_all_that_wait(batch: int) -> None:
    """A backlog of a day takes most of the calls, and leaves a quarter of them to retries, whatever a call costs."""
    check_windows_after_downtime(batch)


def check_windows_after_downtime(batch: int) -> None:
    products, rate = (scaled(1_500, 3_000), 0.2) if batch > 1 else (300, 0.3)
    command = f"simulate catalog --products {products} --days 3 --failure-rate {rate}"
    command += " --down 2026-01-01T06:00/24h --json"
    result = CliRunner(env={"DULY_CATALOG_BATCH_SIZE": str(batch)}).invoke(
        main, command.split(), catch_exceptions=False
    )
    windows = json.loads(result.stdout)["windows"]
    assert {window["dispatched"] for window in windows if "2026-01-01T06:00" < window["at"] < "2026-01-02T06:00"} == {0}
    after_restart = [window for window in windows if window["at"] >= "2026-01-02T06:00"]
    assert len(after_restart) == 11
    for window in after_restart:
        assert window["dispatched"] == min(window["cap"], window["waiting"]), window
    assert sum(window["dispatched"] for window in after_restart) >= 100
