"""What is told about jobs: metrics by which people see how fast they are and what goes wrong, and log lines."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from prometheus_client import generate_latest

from duly import Duly
from duly.intake.ingest import Ingest
from duly.store.statements import WAITS, ConnectionWaits
from duly.telemetry import levels
from duly.testing import World
from duly.verbs import LOCAL, job_rows
from tests.intake.conftest import send

TABLE = "title,price\ncup,7\nbroken,8\nnowhere,9\nbad,many\n"


def told(app: Duly) -> dict[str, float]:
    lines = (line for line in generate_latest(app.internals.telemetry.registry).decode().splitlines() if line[0] != "#")
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_what_is_read_and_how_it_ends_is_counted(app: Duly, world: World) -> None:
    send(app, TABLE)
    job = app.job("count", [{"n": n} for n in range(5)])
    job.pause()
    waiting = told(app)
    assert waiting['duly_pending_rows{type="count"}'] == 5
    assert waiting['duly_queue_items{lane="main",queue="count",state="waiting"}'] == 5, "under the name of the task"
    assert waiting['duly_queue_paused{queue="count"}'] == 1
    world.run()
    seen = told(app)
    ended = {
        status: seen.get(f'duly_job_rows_total{{status="{status}",task="look_up"}}') for status in job_rows.STATUSES
    }
    assert ended == {"DONE": 1, "ERROR": 1, "NOT_FOUND": 1, "PENDING": None, "PROCESSING": None, "SKIPPED": None}, (
        "a row that could not be read was never tried"
    )
    assert seen['duly_ingested_rows_total{type="csv"}'] == 4
    assert seen['duly_unreadable_rows_total{type="csv"}'] == 1
    assert seen['duly_ingest_seconds_count{type="csv"}'] == 1
    assert seen['duly_ingest_write_seconds{type="csv"}'] > 0


def test_the_number_of_pending_rows_is_asked_for_now_and_then(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 30 <= levels.PENDING_FOR <= 60
    app.job("count", [{"n": 1}])
    name = 'duly_pending_rows{type="count"}'
    assert told(app)[name] == 1
    world.run()
    assert told(app)[name] == 1, "as it was a moment ago"
    app.internals.telemetry._database._pending.forget()
    assert name not in told(app)


def test_pages_are_timed_and_slow_ones_counted_with_where_they_begin_and_end(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = send(app, TABLE)
    world.run()
    rows = app.internals.verbs.job_rows
    with caplog.at_level(logging.DEBUG, "duly.jobs"):
        caplog.clear()
        page = rows.page(LOCAL, job.id, ["DONE", "ERROR"])
        rows.by_number(LOCAL, job.id)
        monkeypatch.setattr(job_rows, "SLOW", -1.0)
        rows.pending(LOCAL)
    by_change, by_number, slow = caplog.records
    assert (by_change.levelname, by_change.__dict__["rows"]) == ("DEBUG", 3)
    assert by_change.__dict__["first"] == (page[0].changed_at, page[0].id)
    assert by_change.__dict__["last"] == (page[-1].changed_at, page[-1].id)
    assert by_number.__dict__["list"] == "job_items_by_number"
    assert (slow.levelname, slow.__dict__["first"]) == ("WARNING", None), "an empty page has no places"
    seen = told(app)
    assert seen['duly_page_seconds_count{list="job_items"}'] == 1
    assert seen['duly_slow_pages_total{list="pending_items"}'] == 1


def test_the_log_tells_what_happens_to_a_job(app: Duly, world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "duly.jobs"):
        job = send(app, "title\nbroken\n")
        app.internals.verbs.jobs.pause(LOCAL, job.id)
        app.internals.verbs.jobs.resume(LOCAL, job.id)
        world.run()
        app.internals.verbs.jobs.reprocess(LOCAL, job.id)
        app.internals.verbs.jobs.remove(LOCAL, job.id)
    events = [record.__dict__["event"] for record in caplog.records if "event" in record.__dict__]
    assert events == ["job.created", "job.paused", "job.resumed", "job.reprocessed", "job.removed"]
    assert f"job {job.id}: finished reading its file, 1 rows" in caplog.text


def test_who_had_to_wait_for_a_connection_writes_less_at_a_time(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    job = send(app, "title\n" + "x\n" * 400)
    reading, sizes = Ingest(app.internals.intake, job, lambda _: None), []
    load = app.internals.store.load_rows

    def waiting(*given: object) -> bool:
        sizes.append(len(given[2]))  # type: ignore[arg-type]
        WAITS.add(0.01)
        return load(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(app.internals.store, "load_rows", waiting)
    reading.run()
    assert sizes[:3] == [64, 32, 16]


def test_waits_are_added_up_for_the_process_and_for_each_thread() -> None:
    waits = ConnectionWaits()
    other = threading.Thread(target=waits.add, args=(2.0,))
    other.start()
    other.join()
    waits.add(1.0)
    waits.add(0.5)
    assert (waits.count, waits.seconds, waits.own) == (3, 3.5, 1.5)


def test_jobs_that_are_over_for_long_do_not_count_as_pending(app: Duly, world: World) -> None:
    app.job("count", [{"n": 1}]).pause()
    app.internals.verbs.jobs.remove(LOCAL, app.internals.verbs.jobs.page(LOCAL)[0].id)
    world.advance(timedelta(seconds=1))
    assert app.read.pending() == {}
