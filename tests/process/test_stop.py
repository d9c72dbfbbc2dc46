"""How workers come to rest."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.process.fleet import fleet, until
from tests.process.test_crashes import item, put


def test_a_stopped_worker_lets_its_handler_finish_and_claims_nothing_more(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, log_level="INFO") as ours:
        running = put(ours, "linger", seconds=1.5)
        ours.start()
        until(lambda: ours.lines("began"))
        ours.workers[0].terminate()
        until(lambda: "waiting up to" in ours.logs())
        late = put(ours, "mark", n=1)
        assert ours.workers[0].wait(60) == 0
        assert item(ours, running).state == "done"
        assert item(ours, running).attempt == 1
        assert item(ours, late).state == "waiting"


def test_a_handler_that_outlasts_the_drain_gives_its_attempt_back(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, drain_seconds=0.5) as ours:
        running = put(ours, "linger", seconds=60.0)
        ours.start()
        until(lambda: ours.lines("began"))
        ours.workers[0].terminate()
        assert ours.workers[0].wait(60) == 0
        row = item(ours, running)
        assert (row.state, row.outcome, row.attempt, row.failures) == ("waiting", "released", 0, 0)


def test_a_second_signal_releases_at_once(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, drain_seconds=600, log_level="INFO") as ours:
        running = put(ours, "linger", seconds=600.0)
        ours.start()
        until(lambda: ours.lines("began"))
        worker = ours.workers[0]
        worker.send_signal(signal.SIGTERM)
        until(lambda: "waiting up to" in ours.logs())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        row = item(ours, running)
        assert (row.state, row.attempt) == ("waiting", 0)


def test_a_thread_that_nobody_can_stop_does_not_keep_a_stopped_worker_alive(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, drain_seconds=0.2) as ours:
        running = put(ours, "ponder", seconds=600.0)
        ours.start()
        until(lambda: ours.lines("began"))
        ours.workers[0].terminate()
        assert ours.workers[0].wait(60) == 0
        assert item(ours, running).state == "waiting"
