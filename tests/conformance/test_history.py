"""History: workers add what they have counted to shared rows, of which the old ones are forgotten."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from duly.store import Store
from tests.support import NOW, after, query, together

DONE = {"kind": "task", "subject": "ring", "measure": "done", "n": 2, "total": 0.0, "most": 0.0}
RUN = {"kind": "task", "subject": "ring", "measure": "run", "n": 3, "total": 1.5, "most": 0.75}


def add(store: Store, *rows: dict[str, Any], short: datetime | None = NOW, long: datetime | None = NOW) -> None:
    given = {"short": 10, "short_bucket": short, "long": 300, "long_bucket": long, "rows": json.dumps(rows)}
    store.write("add_history", given)


def history(store: Store, step: int = 10, since: datetime = NOW, **more: Any) -> list[tuple[Any, ...]]:
    """When, of whom, what, and the numbers; the oldest first."""
    given = {"step": step, "since": since, "measure": None, "most": 100, **more}
    rows = store.read("history_of" if "subject" in more else "history", given)
    return [(row[0].astimezone(NOW.tzinfo), *row[2:]) for row in reversed(rows)]


def forget(store: Store, step: int, before: datetime, most: int = 100) -> int:
    return len(store.write("forget_history", {"step": step, "before": before, "most": most}))


def test_what_is_added_twice_adds_up_and_the_largest_value_stays(store: Store) -> None:
    add(store, RUN, DONE)
    add(store, {**RUN, "n": 1, "total": 2.0, "most": 0.5})
    assert history(store) == [(NOW, "ring", "run", 4, 3.5, 0.75), (NOW, "ring", "done", 2, 0.0, 0.0)]
    assert history(store, step=300) == history(store)


def test_steps_are_kept_apart_by_their_times_and_lengths(store: Store) -> None:
    for seconds in (0, 10, 20):
        add(store, DONE, short=after(seconds))
    assert [row[0] for row in history(store)] == [NOW, after(10), after(20)]
    assert [row[0] for row in history(store, since=after(5))] == [after(10), after(20)]
    assert history(store, step=300) == [(NOW, "ring", "done", 6, 0.0, 0.0)]


def test_a_step_that_is_not_kept_is_not_written(store: Store) -> None:
    add(store, DONE, short=None)
    add(store, DONE, long=None)
    assert query(store, "select step, n from duly_history order by step") == [(10, 2), (300, 2)]
    add(store, DONE, short=None, long=None)
    assert query(store, "select sum(n) from duly_history") == [(4,)]


def test_one_subject_or_measure_is_found_alone_and_jobs_only_when_asked_for(store: Store) -> None:
    add(store, DONE, RUN, {**DONE, "subject": "call"}, {**DONE, "kind": "job", "subject": "7"})
    assert {row[1] for row in history(store)} == {"ring", "call"}
    assert [row[2] for row in history(store, kind="task", subject="ring")] == ["run", "done"]
    assert [row[2] for row in history(store, kind="task", subject="ring", measure="done")] == ["done"]
    assert [row[1:4] for row in history(store, kind="job", subject="7")] == [("7", "done", 2)]
    assert history(store, kind="pace", subject="ring") == []
    assert history(store, measure="run") == [(NOW, "ring", "run", 3, 1.5, 0.75)]


def test_the_latest_are_told_when_there_are_too_many(store: Store) -> None:
    for seconds in (0, 10, 20):
        add(store, DONE, short=after(seconds))
    assert [row[0] for row in history(store, most=2)] == [after(10), after(20)]


def test_workers_that_add_at_the_same_time_lose_nothing(store: Store, other: Store) -> None:
    rows = [{**DONE, "subject": f"t{number}"} for number in range(20)]

    def often(mine: Store, some: list[dict[str, Any]]) -> None:
        for _ in range(20):
            add(mine, *some)

    together(partial(often, store, rows), partial(often, other, rows[::-1]))
    assert query(store, "select step, count(*), min(n), max(n) from duly_history group by step order by step") == [
        (10, 20, 80, 80), (300, 20, 80, 80),
    ]  # fmt: skip


def test_old_steps_are_forgotten_in_portions_and_others_stay(store: Store) -> None:
    for seconds in range(0, 100, 10):
        add(store, DONE, short=after(seconds))
    assert forget(store, 10, after(50), most=3) == 3
    assert forget(store, 10, after(50), most=3) == 2
    assert forget(store, 10, after(50)) == 0
    assert [row[0] for row in history(store)] == [after(seconds) for seconds in range(50, 100, 10)]
    assert len(history(store, step=300)) == 1
    assert forget(store, 300, NOW + timedelta(seconds=1)) == 1


def test_how_often_something_happened_lately_by_task(store: Store) -> None:
    for seconds in (0, 10, 20):
        add(
            store, DONE, RUN, {**DONE, "subject": "call"}, {**DONE, "kind": "job", "subject": "7"}, short=after(seconds)
        )
    rows = store.read("lately", {"step": 10, "since": after(10)})
    assert sorted((task, measure, int(n), float(total)) for task, measure, n, total in rows) == [
        ("call", "done", 4, 0.0), ("ring", "done", 4, 0.0), ("ring", "run", 6, 3.0),
    ]  # fmt: skip
