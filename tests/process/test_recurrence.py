"""Schedules and limits under many workers, and under workers that die."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from duly.core.model import NewSchedule
from duly.policy import Every
from tests.process.fleet import Fleet, fleet, until
from tests.process.test_crashes import QUICK
from tests.process.workload import app as workload

YEAR = timedelta(days=365)


def new_schedules(task: str, times: Iterator[datetime]) -> Iterator[NewSchedule]:
    """One yearly schedule per time, due at that time, be it past or to come."""
    for n, at in enumerate(times):
        args = workload.tasks[task].checked_args({"n": n})
        rule = str(Every(YEAR, anchor=at))
        yield NewSchedule(task, str(n), task, args, rule, "UTC", at, catch_up="all")


def enroll(ours: Fleet, news: Iterator[NewSchedule]) -> int:
    portion: list[NewSchedule] = []
    count = 0
    for new in news:
        portion.append(new)
        if len(portion) == 1_000:
            count += len(ours.app.internals.store.enroll(portion, _nowhere))
            portion = []
    return count + len(ours.app.internals.store.enroll(portion, _nowhere))


def _nowhere(new: NewSchedule, slot: int) -> tuple[str, datetime]:
    raise AssertionError("there are no slots here")


def occurrences(ours: Fleet) -> list[tuple[int, object]]:
    with ours.app.internals.store.transaction() as connection:
        rows = connection.execute("select schedule_id, planned_at from duly_item where schedule_id is not null")
        return [tuple(row) for row in rows.fetchall()]


def all_due_at_once(ours: Fleet, choose: random.Random, schedules: int, workers: int, kills: int) -> None:
    """All schedules fall due in the same instant, while workers are killed: each becomes one item, and is done."""
    due_at = ours.app.clock.now() + timedelta(seconds=3)
    enroll(ours, new_schedules("mark", iter([due_at] * schedules)))
    ours.start(workers)
    for kill in range(1, kills + 1):
        goal = schedules * kill // (kills + 1)
        until(lambda goal=goal: len(occurrences(ours)) >= goal, 120, ours.logs)
        ours.kill_one(choose)
        ours.start()
    until(lambda: ours.states()["done"] == schedules, 180, lambda: (ours.states(), ours.logs()[-3000:]))
    ours.stop()
    made = occurrences(ours)
    assert len(made) == schedules, "an occurrence was doubled or missed"
    assert len({schedule_id for schedule_id, _ in made}) == schedules
    assert len(ours.per_key("marks")) == schedules, "an effect is missing"
    assert {row.next_at - due_at for row in ours.app.schedules.pages()} == {YEAR}


def test_schedules_that_fall_due_together_are_each_had_once_in_spite_of_kills(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        all_due_at_once(ours, random.Random(3), schedules=2_000, workers=4, kills=4)


def make_up_for_a_day(ours: Fleet, missed: int, workers: int, fresh_every: float) -> tuple[int, float]:
    """A day of downtime full of events, and new ones all the while: how many of those, and how late at worst."""
    now = ours.app.clock.now()
    enroll(ours, new_schedules("greet", (now - timedelta(days=1) * (n + 1) / (missed + 1) for n in range(missed))))
    ours.start(workers)
    until(lambda: ours.lines("greeted"), 60, ours.logs)
    fresh: list[datetime] = []

    def go_on() -> bool:
        """Put the next fresh events while the backlog lasts."""
        soon = ours.app.clock.now() + timedelta(seconds=1)
        if not fresh or soon - fresh[-1] >= timedelta(seconds=fresh_every):
            ours.app.internals.store.put([workload.tasks["greet"].at(soon).new(n=-1)])
            fresh.append(soon)
        return sum(line[1] != "-1" for line in ours.lines("greeted")) >= missed

    until(go_on, 600, lambda: (ours.states(), ours.logs()[-3000:]))
    until(lambda: ours.states() == {"done": missed + len(fresh)}, 120, lambda: (ours.states(), ours.logs()[-3000:]))
    ours.stop()
    lines = ours.lines("greeted")
    assert len({line[0] for line in lines}) == len(lines) == missed + len(fresh), "an event is missing, or came twice"
    late = [float(line[3]) - float(line[2]) for line in lines if line[1] == "-1"]
    return len(late), max(late)


def test_a_day_of_missed_events_is_made_up_while_fresh_ones_stay_punctual(sqlite_url: str, tmp_path: Path) -> None:
    with fleet(sqlite_url, tmp_path) as ours:
        count, worst = make_up_for_a_day(ours, missed=3_000, workers=2, fresh_every=0.1)
        assert count > 0
        assert worst < 5


def ration_for(ours: Fleet, seconds: float, workers: int) -> tuple[list[float], float]:
    """When calls began under a limit of 2 in 6 s, with more work than it allows."""
    ours.app.internals.store.load(workload.tasks["ration"].new(n=n) for n in range(int(seconds)))
    ours.start(workers)
    until(lambda: ours.lines("rations"), 60, ours.logs)
    begun = float(ours.lines("rations")[0][1])
    until(lambda: ours.app.clock.now().timestamp() >= begun + seconds, seconds + 60)
    ours.stop()
    times = sorted(float(line[1]) for line in ours.lines("rations"))
    assert all(later - earlier >= 6 for earlier, later in zip(times, times[2:], strict=False)), times
    return [time for time in times if time < begun + seconds], begun


def test_no_window_of_a_limit_is_exceeded_by_many_processes(postgres_url: str, tmp_path: Path) -> None:
    with fleet(postgres_url, tmp_path, **QUICK) as ours:
        times, _ = ration_for(ours, 14, workers=4)
        assert len(times) >= 5


def test_a_limit_on_calls_at_the_same_time_holds_over_processes(sqlite_url: str, tmp_path: Path) -> None:
    with fleet(sqlite_url, tmp_path, **QUICK) as ours:
        ours.app.internals.store.load(workload.tasks["crowd"].new(n=n) for n in range(30))
        ours.start(3)
        until(lambda: ours.states() == {"done": 30}, 120, lambda: (ours.states(), ours.logs()[-3000:]))
        ours.stop()
    inside, most = Counter[str](), 0
    for _key, _at, way in sorted(ours.lines("crowd"), key=lambda line: float(line[1])):
        inside["now"] += 1 if way == "in" else -1
        most = max(most, inside["now"])
    assert 1 < most <= 3
