"""Workers that die, stop, hang or lie about the time."""

from __future__ import annotations

import os
import random
import signal
from datetime import datetime, timedelta
from pathlib import Path

from duly.core.shown import Row
from tests.process.fleet import Fleet, fleet, freeze, until
from tests.process.workload import app as workload

QUICK = {"lease_seconds": 3, "beat_seconds": 0.5, "sweep_seconds": 0.5}
KILLS = 6  # twenty in `make chaos`
ITEMS = 3_000


def put(ours: Fleet, task: str, at: datetime | None = None, **args: object) -> int:
    (placed,) = ours.app.internals.store.put([workload.tasks[task].options(at=at).new(**args)])
    return placed.id


def item(ours: Fleet, item_id: int) -> Row:
    return ours.app.read.item(item_id)


def longest_stuck(ours: Fleet) -> timedelta:
    """For how long the oldest running item has been without a valid lease."""
    now = ours.app.internals.store.now()
    rows = ours.app.internals.store.expired(now, 100)[0]
    if not rows:
        return timedelta()
    leases = [ours.app.read.story(row.id).lease_until for row in rows[:20]]
    return max((now - lease for lease in leases if lease is not None), default=timedelta())


def kill_while_draining(ours: Fleet, choose: random.Random, items: int, kills: int) -> tuple[timedelta, int]:
    """Four workers drain items while they are killed; how long a row was stuck, and how many effects repeated.

    The oldest is spared: who has watched all along finds the dead in time, who has just come watches for a lease first.
    """
    ours.app.internals.store.load(workload.tasks["mark"].new(n=n) for n in range(items))
    stuck = timedelta()
    # Not paced by a clock: the next kill falls when about a twentieth more of the work has been seen.
    for kill in range(1, kills + 1):
        while len(ours.workers) < 4:
            ours.start()
        goal = items * kill // (kills + 1)
        until(lambda goal=goal: len(ours.lines("marks")) >= goal or ours.states()["done"] == items, 120)
        ours.kill_one(choose, spare=1)
        stuck = max(stuck, longest_stuck(ours))
    while len(ours.workers) < 4:
        ours.start()

    def all_done() -> bool:
        nonlocal stuck
        stuck = max(stuck, longest_stuck(ours))
        return ours.states() == {"done": items}

    until(all_done, 120, lambda: (ours.states(), ours.logs()[-3000:]))
    ours.stop()
    marks = ours.per_key("marks")
    assert len(marks) == items, "an effect is missing"
    assert {row.execution_key for row in ours.app.read.pages()} == set(marks), "an effect has a key of no item"
    return stuck, sum(marks.values()) - items


def test_kills_lose_nothing_and_leave_no_row_stuck(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        stuck, _ = kill_while_draining(ours, random.Random(7), ITEMS, KILLS)
        assert stuck < timedelta(seconds=5)


def test_a_worker_that_was_stopped_for_longer_than_its_lease_has_its_late_result_refused(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        item_id = put(ours, "linger", seconds=1.0)
        ours.start()
        until(lambda: ours.lines("began"))
        (stale,) = ours.workers
        freeze(ours, stale)
        ours.start()
        until(lambda: item(ours, item_id).state == "done", 60, ours.logs)
        fence = item(ours, item_id).fence
        os.kill(stale.pid, signal.SIGCONT)
        until(lambda: "no longer ours" in ours.logs() or "rejected" in ours.logs() or "in time" in ours.logs(), 60)
        assert ours.stop() == [0, 0]
        after = item(ours, item_id)
        assert (after.state, after.fence) == ("done", fence), "the stale worker overwrote the newer attempt"
        assert after.attempt == 2
        assert ours.app.read.story(item_id).tries[0].outcome == "lost"


def test_an_async_handler_that_blocks_the_cpu_keeps_its_lease(database_url: str, tmp_path: Path) -> None:
    seconds = 7.0  # more than two leases; `make chaos` takes a minute
    with fleet(database_url, tmp_path, **QUICK) as ours:
        item_id = put(ours, "spin", seconds=seconds)
        ours.start(2)
        until(lambda: item(ours, item_id).state == "done", 60, ours.logs)
        assert ours.stop() == [0, 0]
        assert item(ours, item_id).attempt == 1
        assert len(ours.lines("began")) == 1


def test_a_handler_that_segfaults_its_worker_ends_in_review_and_its_neighbours_finish(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        neighbours = [put(ours, "linger", seconds=0.3) for _ in range(15)]
        item_id = put(ours, "poison", n=1)
        neighbours += [put(ours, "linger", seconds=0.3) for _ in range(15)]

        def over() -> bool:
            ours.workers = [worker for worker in ours.workers if worker.poll() is None]
            if not ours.workers:
                ours.start()
            return ours.states() == {"done": len(neighbours), "failed": 1}

        until(over, 90, lambda: (ours.states(), ours.logs()[-3000:]))
        ours.stop()
        row = item(ours, item_id)
        assert (row.state, row.crashes, row.attempt) == ("failed", 3, 3)
        tries = ours.app.read.story(item_id).tries
        assert [each.outcome for each in tries] == ["lost", "crashed", "crashed"]
        assert all(each.worker for each in tries)
        assert "SIGSEGV" in (tries[-1].error or "")
        assert len(ours.lines("began")) >= 3


def test_a_cpu_handler_that_segfaults_takes_only_its_own_process_down(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        item_id = put(ours, "poison_apart", n=1)
        squares = [put(ours, "square", n=n) for n in range(5)]
        ours.start()
        until(lambda: ours.states() == {"done": 5, "failed": 1}, 60, lambda: (ours.states(), ours.logs()))
        assert ours.stop() == [0]
        assert item(ours, item_id).crashes == 3
        assert [item(ours, each).result for each in squares] == [0, 1, 4, 9, 16]


def test_a_handler_that_hangs_is_killed_at_its_deadline(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:  # leases as they are: a busy machine must not end them first
        item_id = put(ours, "hang", n=1)
        ours.start()
        until(lambda: item(ours, item_id).state == "failed", 60, ours.logs)
        assert ours.stop() == [0]
        assert item(ours, item_id).attempt == 2
        assert item(ours, item_id).error_class == "duly.DeadlineExceeded"


def test_five_hundred_overdue_items_of_a_day_of_downtime_are_all_done_after_a_start(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path) as ours:
        start: datetime = ours.app.internals.store.now()
        spread = [start - timedelta(days=1) + timedelta(seconds=n * 170) for n in range(500)]
        ours.app.internals.store.load(workload.tasks["mark"].at(at).new(n=n) for n, at in enumerate(spread))
        ours.start()
        until(lambda: ours.states() == {"done": 500}, 60, ours.logs)
        ours.stop()
        late = [row.started_at - row.due_at for row in ours.app.read.pages() if row.started_at]
        assert max(late) >= timedelta(hours=23)
        assert "Late event execution (recovery)" in ours.logs()
        assert "latenessMinutes" in ours.logs()


def test_a_worker_whose_clock_is_wrong_neither_fires_early_nor_steals(postgres_url: str, tmp_path: Path) -> None:
    preload = os.environ["DULY_TEST_FAKETIME"]
    for offset in ("+10m", "-10m"):
        folder = tmp_path / offset
        folder.mkdir()
        with fleet(postgres_url, folder, lease_seconds=4, beat_seconds=1, sweep_seconds=0.5) as ours:
            soon = ours.app.internals.store.now() + timedelta(seconds=3)
            later = ours.app.internals.store.now() + timedelta(minutes=5)
            early = put(ours, "mark", n=1, at=soon)
            never = put(ours, "mark", n=2, at=later)
            held = put(ours, "linger", seconds=6.0)
            ours.start()
            until(lambda ours=ours: ours.lines("began"))
            ours.start(LD_PRELOAD=preload, FAKETIME=offset)
            until(lambda ours=ours, early=early: item(ours, early).state == "done", 60, ours.logs)
            until(lambda ours=ours, held=held: item(ours, held).state == "done", 60, ours.logs)
            ours.stop()
            started = item(ours, early).started_at
            assert started is not None
            assert started >= soon, "fired early"
            assert item(ours, never).state == "waiting"
            assert item(ours, held).attempt == 1, "stolen from a worker that was alive"
            ours.app.cancel(never)
