"""Simulated days account for everything that was planned: each item ends in one line, and says how late it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Backoff, Daily, Duly, GiveUp, Skip, Snooze
from duly.apps.messages import message_retry_on
from duly.apps.messages.simulated import fill
from duly.apps.reminders import reminders_on, simulated
from duly.core.model import Cancel, Done, Failed, Item
from duly.engine.calls import Verdicts
from duly.tasks.task import Task
from duly.virtual.simulation import Conditions, Interval, Simulation, interval
from duly.virtual.story import SimulationResult
from duly.virtual.world import stage

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


@contextmanager
def world_of(app: Duly, days: int = 1, **model: Any) -> Iterator[Simulation]:
    with stage(app, START) as (clock, runner):
        yield Simulation(app, clock, runner, Conditions(**model), until=START + days * DAY)


def told(world: Simulation) -> SimulationResult:
    """What happened until the end of its time, all of it accounted for."""
    world.run_until(world.until - INSTANT)
    story = world.story(START, world.until)
    ends = (story.done, story.late, story.in_review, story.deactivated, story.skipped, story.still_failing)
    assert story.planned == sum(ends) + story.waiting
    return story


def test_each_way_in_which_an_item_can_end_has_its_own_line() -> None:
    app = Duly("sqlite:///unused.db")
    outcomes = {
        "done": Done(), "again": Failed("busy"), "twice": Failed("busy"), "skip": Skip("no"), "cancel": Cancel("no"),
        "refused": GiveUp("no"), "asleep": Snooze(2 * DAY),
    }  # fmt: skip

    @app.task(retry=Backoff(base=3_600, factor=1_000, cap=1e7))
    def act(how: str) -> None: ...

    @app.task(breaker=2, retry=Backoff(base=3_600, tries=5))
    def watch() -> None: ...

    @app.task(retry=Backoff(base=100_000, cap=100_000))
    def report() -> None: ...

    def answer(task: Task[..., Any], items: Sequence[Item]) -> Verdicts:
        if task.name != "act":
            return [Failed("busy")]
        how = json.loads(items[0].args)["how"]
        return [Done() if how == "again" and items[0].failures else outcomes[how]]

    with world_of(app, days=3) as world:
        world.answer = answer
        for how in outcomes:
            act.at(START + timedelta(hours=1)).put(how=how)
        act.at(START + 3 * DAY - timedelta(minutes=1)).put(how="done")
        act.at(START + 9 * DAY).put(how="done")  # after these days
        app.schedules.create("watch", Daily("12:00"), {}, key="x")
        app.schedules.create("report", Daily("18:00"), {}, key="y", overlap="supersede")
        story = told(world)
    assert (story.planned, story.done, story.late) == (12, 2, 1)
    assert (story.in_review, story.deactivated) == (1, 1)
    assert (story.skipped, story.replaced) == (4, 2), "skipped, cancelled, and two reports that failed for a day"
    assert (story.still_failing, story.waiting) == (2, 1)
    assert story.recovered == 1


def test_lateness_is_that_of_the_send_and_not_of_the_first_try() -> None:
    app = Duly("sqlite:///unused.db")

    @app.task(retry=Backoff(base=600, tries=5))
    def send() -> None: ...

    with world_of(app, bursts=(interval("burst", "2026-01-01T10:00/5m@1"),)) as world:
        for hour in (9, 10, 11):
            send.at(START + timedelta(hours=hour)).put()
        story = told(world)
        assert (story.lateness.p50_s, story.lateness.max_s) == (0.0, 600.0)
        assert (story.done, story.late) == (2, 1)
        patient = world.story(START, world.until, late_after=600)
    assert (patient.done, patient.late, patient.late_after_s) == (3, 0, 600)


@pytest.mark.parametrize("kind", ["downtimes", "outages"])
def test_after_an_interruption_it_is_told_how_many_were_late_and_how_long_that_took(kind: str) -> None:
    app = Duly("sqlite:///unused.db", concurrency=1)

    @app.task(retry=Backoff(base=60, factor=2, cap=600, tries=100))
    def send() -> None: ...

    gone = Interval(START + timedelta(hours=10), START + timedelta(hours=12))
    with world_of(app, slow=30.0, **{kind: (gone,)}) as world:
        for minute in range(24 * 60 // 20):
            send.at(START + timedelta(minutes=20 * minute)).put()
        story = told(world)
    (told_of,) = story.interruptions
    assert (told_of.start, told_of.end, told_of.late) == (gone.start, gone.end, 6)
    assert told_of.seconds is not None
    assert 0 < told_of.seconds <= 660
    assert story.late == 6


def test_an_outage_that_sends_items_to_review_says_so_and_one_without_end_too() -> None:
    app = Duly("sqlite:///unused.db")
    made = reminders_on(app)
    out = (interval("outage", "2026-01-01T06:00/2h"),)
    never = (interval("down", "2026-01-01T20:00/4h"),)
    with world_of(app, outages=out, downtimes=never) as world:
        simulated(made, world, reminders=240)
        story = told(world)
    down, outage = story.interruptions
    assert story.planned == 240
    assert (outage.late, outage.in_review) == (story.late, story.in_review)
    assert 15 <= outage.in_review <= 20, "three tries within three minutes"
    assert 35 <= down.late <= 45
    assert down.seconds is None, "the days were over before they were sent"
    assert story.waiting == down.late


def test_messages_are_retried_until_their_retries_are_used_up() -> None:
    def days(seed: int) -> SimulationResult:
        app = Duly("sqlite:///unused.db")
        service = message_retry_on(app)
        out = (interval("outage", "2026-01-01T06:00/1h"),)
        with world_of(app, failure_rate=0.5, outages=out, seed=seed) as world:
            fill(service, world, 200)
            return told(world)

    story = days(7)
    assert story == days(7) != days(8)
    assert story.in_review > 5, "half of a half of a half"
    assert story.planned > 200, "each retry is planned"
    (gone,) = story.interruptions
    assert 0 < gone.late < 20
    assert gone.seconds == 0.0
