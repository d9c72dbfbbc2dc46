"""A worker in which too many handlers run on after they were stopped replaces itself, and goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.process.fleet import Fleet, fleet, until
from tests.process.test_crashes import QUICK
from tests.process.workload import app as workload


def names(ours: Fleet) -> list[str]:
    return [worker.name for worker in ours.app.read.workers()]


@pytest.mark.parametrize(("task", "count"), [("hang_here", 3), ("block", 1)])
def test_it_replaces_itself_in_the_same_process(database_url: str, tmp_path: Path, task: str, count: int) -> None:
    settings = QUICK | {"runaways_most": 3, "drain_seconds": 1}
    with fleet(database_url, tmp_path, **settings) as ours:
        ours.start()
        until(lambda: names(ours), 60, ours.logs)
        (first,) = names(ours)
        ours.app.internals.store.put([workload.tasks[task].new(n=n) for n in range(count)])
        until(lambda: "starting anew: " in ours.logs(), 60, ours.logs)
        until(lambda: names(ours) not in ([], [first]), 60, lambda: (names(ours), ours.logs()))
        (second,) = names(ours)
        (worker,) = ours.workers
        assert worker.poll() is None, "the process goes on, for those that watch it"
        assert second.split(":")[1] == first.split(":")[1] == str(worker.pid)
        ours.app.internals.store.put([workload.tasks["mark"].new(n=1)])
        until(lambda: ours.states()["done"] == 1, 60, ours.logs)
        assert ours.states() == {"failed": count, "done": 1}
        assert ours.logs().count("starting anew: ") == 1
        assert ours.stop() == [0]


def test_one_that_was_asked_to_stop_meanwhile_does_not_begin_anew(database_url: str, tmp_path: Path) -> None:
    settings = QUICK | {"runaways_most": 1, "drain_seconds": 30}
    with fleet(database_url, tmp_path, **settings) as ours:
        ours.start()
        until(lambda: names(ours), 60, ours.logs)
        # The drain waits for this one, until the signal.
        ours.app.internals.store.put([workload.tasks["rest"].new(seconds=20.0), workload.tasks["hang_here"].new(n=1)])
        until(lambda: "finishes its other work and starts anew" in ours.logs(), 60, ours.logs)
        (worker,) = ours.workers
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert "starting anew" not in ours.logs()
        ours.workers.clear()
