"""Default leases, a minute of silence, a minute of CPU: what `tests/process` shows with short leases."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta
from pathlib import Path

from tests.process.fleet import fleet, freeze, until
from tests.process.test_crashes import item, kill_while_draining, put

MINUTE = 60.0


def test_twenty_kills_with_default_leases_lose_nothing(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        stuck, repeats = kill_while_draining(ours, random.Random(11), items=5_000, kills=20)
        assert stuck < timedelta(seconds=6), "a row stayed without a lease for longer than a sweep and a look"
        print(f"longest without a lease {stuck.total_seconds():.1f} s; effects that ran again {repeats}")


def test_a_worker_that_was_stopped_for_a_minute_has_its_late_result_refused(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        item_id = put(ours, "linger", seconds=2.0)
        ours.start()
        until(lambda: ours.lines("began"))
        (stale,) = ours.workers
        freeze(ours, stale)
        stopped = time.monotonic()
        ours.start()
        until(lambda: item(ours, item_id).state == "done", 90, ours.logs)
        assert time.monotonic() - stopped < 35, "a dead worker's work runs again within 25 s"
        fence = item(ours, item_id).fence
        until(lambda: time.monotonic() - stopped >= MINUTE, 2 * MINUTE)
        os.kill(stale.pid, signal.SIGCONT)
        until(lambda: "no longer ours" in ours.logs() or "rejected" in ours.logs() or "in time" in ours.logs(), 60)
        ours.stop()
        assert (item(ours, item_id).state, item(ours, item_id).fence) == ("done", fence)


def test_a_handler_that_blocks_the_cpu_for_a_minute_keeps_its_lease(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path) as ours:
        item_id = put(ours, "spin", seconds=MINUTE)
        ours.start(2)
        until(lambda: item(ours, item_id).state == "done", 2 * MINUTE, ours.logs)
        ours.stop()
        assert item(ours, item_id).attempt == 1
