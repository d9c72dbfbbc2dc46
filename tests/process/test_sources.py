"""A source that is down, and workers that die meanwhile: the fleet goes on as one."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.process.fleet import fleet, until
from tests.process.test_crashes import QUICK
from tests.process.workload import app as workload

PROBE = 2.0
PROBES = 5


def test_workers_that_die_while_their_source_is_down_leave_one_alert_and_one_probe_at_a_time(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        new = [workload.tasks["ask"].new(n=n) for n in range(300)]
        ours.app.internals.store.put(new)
        ours.start(2)
        # One of them may find out before the other has asked, and goes on to make the probes.
        until(lambda: len(ours.app.read.workers()) == 2, 60, ours.logs)
        until(ours.app.read.alerts, 60, ours.logs)
        ours.kill_one(random.Random(3))
        ours.start(2)
        until(lambda: len(ours.app.read.workers()) >= 3, 60, ours.logs)
        begun = time.time()

        def probes() -> list[float]:
            return [float(at) for at, _ in ours.lines("asked") if float(at) > begun]

        until(lambda: len(probes()) >= PROBES, 60, ours.logs)
        assert len(probes()) <= (time.time() - begun) / PROBE + 1, probes()
        assert [alert.name for alert in ours.app.read.alerts()] == ["source:tower"]
        assert ours.logs().count("tower is down") == 1
        (tmp_path / "up").touch()
        until(lambda: ours.states()["done"] == len(new), 60, lambda: (ours.states(), ours.logs()[-3000:]))
        until(lambda: not ours.app.read.alerts(), 60, ours.logs)
        ours.stop()
        with ours.app.internals.store.transaction() as connection:
            rows = connection.execute("select distinct attempt, failures from duly_item").fetchall()
        assert [tuple(row) for row in rows] == [(1, 0)]
