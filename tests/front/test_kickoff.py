"""A kickoff: rows of one job are worked off for a while, in the process of whoever asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from duly import NEVER, Backoff, Duly, GiveUp, InputError, NotFound, Snooze
from duly.core.errors import ConfigError, DoesNotExist, WrongState
from duly.core.model import Job
from duly.facade import kickoff
from duly.facade.jobs import RunningJob
from duly.verbs import Principal
from tests.support import query

LONG = 20.0


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, concurrency=4)

    @app.task(retry=NEVER)
    def look_up(n: int, how: str = "well") -> int:
        if how == "badly":
            raise GiveUp("no")
        if how == "nowhere":
            raise NotFound("nobody")
        return n

    @app.task(retry=Backoff(base=3_600))
    def flaky(n: int) -> None:
        raise ConnectionError("away")

    @app.task
    def slow(n: int) -> None:
        started.set()
        time.sleep(0.05)

    @app.task
    def long(n: int) -> None:
        begun.append(n)
        started.set()
        finish.wait(LONG)

    @app.task
    def later(n: int) -> Snooze:
        return Snooze(3_600)

    app.migrate()
    started.clear()
    finish.clear()
    begun.clear()
    yield app
    app.close()


started = threading.Event()
finish = threading.Event()
begun: list[int] = []


def counts(job: RunningJob) -> tuple[int, int, int, int]:
    seen: Job = job.counts()
    return seen.done, seen.failed, seen.not_found, seen.total - seen.ended


def test_all_rows_of_the_job_and_no_others_are_worked_off(app: Duly) -> None:
    mine = app.job("look_up", [{"n": 1}, {"n": 2}, {"n": 3, "how": "badly"}, {"n": 4, "how": "nowhere"}])
    other = app.job("look_up", [{"n": 9}])
    plain = app.put("look_up", n=8)
    did = mine.kickoff(LONG)
    assert (did.processed, did.ended) == (4, {"DONE": 2, "ERROR": 1, "NOT_FOUND": 1})
    assert (did.job.queue_state, did.tried_again) == ("DONE", 0)
    assert did.seconds < LONG
    assert counts(mine) == (2, 1, 1, 0)
    assert counts(other) == (0, 0, 0, 1)
    assert app.read.item(plain.id).state == "waiting"
    assert [line.action for line in app.internals.verbs.audit.page(most=1)] == ["job.kickoff"]
    assert mine.kickoff().processed == 0, "it is over"


def test_rows_that_fail_are_tried_again_later(app: Duly) -> None:
    job = app.job("flaky", [{"n": n} for n in range(3)])
    did = job.kickoff(1.0)
    assert (did.processed, did.tried_again, did.ended) == (0, 3, {})
    assert counts(job) == (0, 0, 0, 3)


def test_it_ends_in_time_and_leaves_the_rest_to_others(app: Duly) -> None:
    job = app.job("slow", [{"n": n} for n in range(2_000)])
    did = job.kickoff(1.0)
    assert 0 < did.processed < 2_000
    assert counts(job) == (did.processed, 0, 0, 2_000 - did.processed)
    assert query(app.internals.store, "select count(*) from duly_item where state = 'running'") == [(0,)]


def test_one_at_a_time(app: Duly) -> None:
    job, other = app.job("long", [{"n": 1}]), app.job("look_up", [{"n": 2}])
    first = threading.Thread(target=job.kickoff, args=(LONG,))
    first.start()
    assert started.wait(LONG)
    with pytest.raises(WrongState, match="under way"):
        other.kickoff(1.0)
    finish.set()
    first.join()
    assert other.kickoff(LONG).processed == 1


def test_a_paused_job_and_an_unknown_one_are_refused(app: Duly) -> None:
    job = app.job("look_up", [{"n": 1}], owner="ana")
    job.pause()
    with pytest.raises(WrongState, match="is paused"):
        job.kickoff()
    stranger = Principal("bob", "user", frozenset(("read", "write")), "key")
    with pytest.raises(DoesNotExist):
        app.internals.kickoffs.run(stranger, job.id, 1.0)
    wrong: Any
    for wrong in (0, -1, 21):
        with pytest.raises(InputError, match="durationMs"):
            job.kickoff(wrong)
    job.resume()
    assert job.kickoff(LONG).processed == 1


def test_a_row_that_takes_longer_keeps_its_lease_and_runs_once(app: Duly) -> None:
    job = app.job("long", [{"n": 1}])
    kickoff.TO_END, before = 0.2, kickoff.TO_END
    try:
        while not begun:  # on a slow machine, it may take more than one
            with suppress(WrongState):
                did = job.kickoff(0.3)
    finally:
        kickoff.TO_END = before
    assert (did.processed, did.tried_again) == (0, 0)
    with pytest.raises(WrongState, match="under way"):
        job.kickoff()
    worker = app.worker(["long"])
    worker.start()
    finish.set()
    job.wait(LONG)
    worker.stop()
    worker.drain()
    assert begun == [1]


def test_rows_that_are_put_off_did_not_fail(app: Duly) -> None:
    job = app.job("later", [{"n": n} for n in range(5)])
    did = job.kickoff(1.0)
    assert (did.processed, did.tried_again, did.ended) == (0, 0, {})


def test_it_is_found_behind_any_number_of_other_lines(app: Duly) -> None:
    app.tasks["look_up"].put_many({"n": n} for n in range(10))
    for n in range(600):
        app.put("look_up", n=n)
    jobs = [app.job("look_up", [{"n": n}]) for n in range(30)]
    assert jobs[17].kickoff(LONG).processed == 1
    assert sum(job.counts().done for job in jobs) == 1


def test_a_task_that_cannot_run_here_is_told_so_each_time(database_url: str) -> None:
    app = Duly(database_url)

    @app.task(cpu=True)
    def crunch(n: int) -> None: ...

    app.migrate()
    job = app.job("crunch", [{"n": 1}])
    for _ in range(2):  # the second time too, and not that the first one is under way
        with pytest.raises(ConfigError, match="cpu tasks"):
            job.kickoff(1.0)
    app.close()
