"""Nobody is blamed for a database that was away: real workers, a real server that is stopped and started again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.core.errors import StoreUnavailable
from duly.store.migrate import migrate
from pgcluster import Cluster, ensure_binaries
from tests.process.fleet import Fleet, fleet, until
from tests.process.workload import app as workload
from tests.support import opened

QUICK = {"lease_seconds": 2, "beat_seconds": 0.5, "sweep_seconds": 0.5, "store_timeout_seconds": 5}
AWAY = 5.0  # more than two leases


class Server:
    """A PostgreSQL of its own, which goes away and comes back where it was."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.url = cluster.dsn()

    def _ctl(self, *command: str) -> None:
        data = self._cluster.folder / "data"
        said = self._cluster._place.run([ensure_binaries() / "pg_ctl", "-D", data, "-w", *command])
        assert said.returncode == 0, said.stdout

    def stop(self) -> None:
        self._ctl("stop", "-m", "immediate")

    def start(self) -> None:
        self._ctl("start", "-l", str(self._cluster.folder / "log"), "-o", f"-p {self._cluster.port}")


@pytest.fixture
def server() -> Iterator[Server]:
    with Cluster(settings={"synchronous_commit": "on"}) as cluster:  # what was committed is there afterwards
        one = Server(cluster)
        with opened(one.url) as store:
            migrate(store)
        yield one


def put(ours: Fleet, task: str, count: int, seconds: float) -> list[int]:
    new = [workload.tasks[task].options(tries=1).new(seconds=seconds) for _ in range(count)]
    return [placed.id for placed in ours.app.internals.store.put(new)]


def blamed(ours: Fleet) -> list[tuple[int, str, str | None]]:
    return [
        (row.id, row.state, row.last_error)
        for row in ours.app.read.pages()
        if row.losses or row.crashes or row.state == "failed"
    ]


def all_done(ours: Fleet) -> bool:
    try:
        assert blamed(ours) == []
        return set(ours.states()) == {"done"}
    except StoreUnavailable:  # our own connections broke as well
        return False


def test_an_outage_longer_than_a_lease_blames_nobody_and_loses_no_result(server: Server, tmp_path: Path) -> None:
    with fleet(server.url, tmp_path, **QUICK) as ours:
        # Some end while the database is away, some go on for longer in threads, some are stopped.
        ended, lasting, stopped = put(ours, "linger", 4, 2.5), put(ours, "linger", 4, 9.0), put(ours, "rest", 4, 6.0)
        ours.start(3)
        until(lambda: len(ours.lines("began")) == 12, 60, ours.logs)
        server.stop()
        gone = time.monotonic()
        until(lambda: len(ours.lines("ended")) >= 4)
        until(lambda: "could not extend" in ours.logs())
        until(lambda: time.monotonic() - gone > AWAY)
        server.start()
        until(lambda: all_done(ours), 90, lambda: (blamed(ours), ours.states(), ours.logs()[-3000:]))
        ours.stop()
        began = ours.per_key("began")
        keys = {row.id: row.execution_key for row in ours.app.read.pages()}
        assert {began[keys[item_id]] for item_id in ended} == {1}, "a known result was not accepted"
        assert {began[keys[item_id]] for item_id in lasting} == {1}, "a handler that went on was run twice"
        assert {began[keys[item_id]] for item_id in stopped} == {2}, "a handler went on without its lease"
        assert {row.attempt for row in ours.app.read.pages()} == {1}


def test_while_a_long_transaction_keeps_heartbeats_waiting_nobody_is_rescued(sqlite_url: str, tmp_path: Path) -> None:
    with fleet(sqlite_url, tmp_path, **{**QUICK, "store_timeout_seconds": 30}) as ours:
        put(ours, "linger", 6, 9.0)
        ours.start(3)
        until(lambda: len(ours.lines("began")) == 6, 60, ours.logs)
        with ours.app.internals.store.transaction():
            held = time.monotonic()
            until(lambda: time.monotonic() - held > AWAY)
        until(lambda: all_done(ours), 60, lambda: (blamed(ours), ours.states(), ours.logs()[-3000:]))
        ours.stop()
        assert set(ours.per_key("began").values()) == {1}
