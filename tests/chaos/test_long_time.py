"""Ten thousand schedules at once, a hundred thousand missed events, three minutes under a limit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from duly.virtual.simulation import Conditions, interval
from tests.process.fleet import fleet
from tests.process.test_recurrence import all_due_at_once, make_up_for_a_day, ration_for
from tests.virtual.days import live
from tests.virtual.test_simulation import check_windows_after_downtime


def test_ten_thousand_schedules_that_fall_due_together_are_each_had_once(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        all_due_at_once(ours, random.Random(5), schedules=10_000, workers=8, kills=20)


def test_a_hundred_thousand_missed_events_are_made_up_while_fresh_ones_go_on(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        count, worst = make_up_for_a_day(ours, missed=100_000, workers=2, fresh_every=0.2)
        print(f"{count} fresh events meanwhile, the latest {worst:.2f} s after its time")
        assert count > 0


def test_eight_processes_use_a_limit_up_and_never_exceed_it(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        times, _ = ration_for(ours, 180, workers=8)
        print(f"{len(times)} calls in 180 s of {2 * 180 // 6} allowed")
        assert len(times) >= 0.95 * 2 * 180 / 6


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_thirty_days_of_five_thousand_products_stay_even(rate: float) -> None:
    outage = (interval("outage", "2026-01-03T10:00/6h"),)
    story, _, _ = live(5_000, 30, Conditions(failure_rate=rate, outages=outage, crash_rate=0.01, seed=7))
    print(f"rate {rate}: {story.calls.total:,} calls, {story.recovered:,} recovered, {story.deactivated:,} deactivated")


@pytest.mark.parametrize("batch", [9, 25])
def test_after_a_day_of_downtime_windows_are_used_whatever_a_call_costs(batch: int) -> None:
    check_windows_after_downtime(batch)
