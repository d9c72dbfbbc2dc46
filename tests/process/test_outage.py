"""PostgreSQL goes away, comes back, or falls silent, under real processes."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from duly import Duly
from duly.client import Client, ServiceError
from tests.process.fleet import Fleet, fleet, until
from tests.process.outage import Server, server
from tests.process.test_crashes import item, put
from tests.process.test_service import server as service
from tests.process.workload import app as workload
from tests.proxy import proxied
from tests.support import leases

SOON = 3.0  # seconds after the server's return within which everything works again
STOPPED = 5.0  # seconds beyond the drain that a worker takes to stop, whatever the database does


def timed(act: Callable[[], object], *refusals: type[Exception]) -> float:
    """When this first succeeded, on the monotonic clock; refusals are tried again."""
    while True:
        try:
            act()
        except refusals:
            time.sleep(0.02)
        else:
            return time.monotonic()


def starts(ours: Fleet) -> set[str]:
    """The processes of the workers that have begun something."""
    return {line[2] for line in ours.lines("began")}


def recovery(database: Server, folder: Path, away: float) -> dict[str, float]:
    """Seconds from the server's return until two workers, the service and a plain process worked again."""
    with (
        fleet(database.url, folder, concurrency=1) as ours,
        service(database.url, folder) as one,
        Client(one.url, timeout=60) as client,
    ):
        ours.start(2)
        until(lambda: _is_up(client), 60, one.log)
        ours.app.internals.store.load(workload.tasks["linger"].new(seconds=0.05) for _ in range(20))
        until(lambda: len(starts(ours)) == 2 and ours.states()["done"] == 20, 60, ours.logs)
        (folder / "began").unlink()
        # They fall due while the server is away.
        due_at = ours.app.internals.store.now() + timedelta(seconds=2)
        ours.app.internals.store.load(
            replace(workload.tasks["linger"].new(seconds=0.2), due_at=due_at) for _ in range(60)
        )
        plain = Duly(database.url)
        plain.internals.store.now()
        database.go_away()
        gone = time.monotonic()
        times: dict[str, float] = {}
        threads = [
            threading.Thread(target=lambda: times.update(plain=timed(plain.internals.store.now, Exception))),
            threading.Thread(target=lambda: times.update(service=timed(lambda: _put(one.port), OSError))),
        ]
        for thread in threads:
            thread.start()
        until(lambda: time.monotonic() - gone >= away, away + 5)
        database.come_back()
        back = time.monotonic()
        first = until(lambda: starts(ours), 120, ours.logs) and time.monotonic()
        both = until(lambda: len(starts(ours)) == 2, 120, ours.logs) and time.monotonic()
        for thread in threads:
            thread.join(120)
        times.update(one_worker=first, both_workers=both)
        assert ours.stop() == [0, 0]
        plain.close()
        return {name: round(at - back, 2) for name, at in times.items()}


def _is_up(client: Client) -> bool:
    try:
        client.me()
    except ServiceError:
        return False
    return True


def _put(port: int) -> None:
    """One request and no repetition: a client that waits as it was asked to measures its own wait."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"task": "mark", "args": {"n": 1}, "delay": 86_400})
    connection.request("POST", "/api/items", body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    if status != 201:
        raise ConnectionError(f"status {status}")


@pytest.fixture
def database() -> Iterator[Server]:
    with server() as one:
        yield one


def test_everything_works_again_within_seconds_of_the_servers_return(database: Server, tmp_path: Path) -> None:
    # Eight seconds: whoever doubles pauses from one second on tries after seven, and then not before fifteen.
    times = recovery(database, tmp_path, 8)
    print(f"seconds after the return: {times}")
    assert max(times.values()) < SOON, times


def test_a_worker_whose_connections_fall_silent_goes_on_with_new_ones(postgres_url: str, tmp_path: Path) -> None:
    settings = {"store_timeout_seconds": 2, "pool_size": 1}
    with proxied(postgres_url) as proxy, fleet(postgres_url, tmp_path, **settings) as ours:
        ours.start(DULY_DATABASE_URL=proxy.url)
        first = put(ours, "mark", n=1)
        until(lambda: item(ours, first).state == "done", 60, ours.logs)
        proxy.swallow()
        second = [put(ours, "mark", n=n) for n in range(2, 20)]
        until(lambda: all(item(ours, each).state == "done" for each in second), 60, ours.logs)
        assert ours.stop() == [0]


def test_a_handler_keeps_its_lease_though_the_keepers_connection_falls_silent(
    postgres_url: str, tmp_path: Path
) -> None:
    settings = {"lease_seconds": 12, "beat_seconds": 2}
    with proxied(postgres_url) as proxy, fleet(postgres_url, tmp_path, **settings) as ours:
        ours.start(DULY_DATABASE_URL=proxy.url)
        long = put(ours, "linger", seconds=20.0)
        until(lambda: ours.lines("began"), 60, ours.logs)
        begun = leases(ours.app.internals.store)
        until(lambda: leases(ours.app.internals.store) != begun, 60)  # the keeper has a connection now
        proxy.swallow()
        until(lambda: item(ours, long).state == "done", 90, ours.logs)
        assert item(ours, long).attempt == 1
        assert "could not extend" not in ours.logs()
        assert ours.stop() == [0]


def test_a_worker_stops_though_the_database_is_away(database: Server, tmp_path: Path) -> None:
    with fleet(database.url, tmp_path, drain_seconds=2, lease_seconds=60) as ours:
        running = put(ours, "linger", seconds=0.5)
        ours.start()
        until(lambda: ours.lines("began"), 60, ours.logs)
        database.go_away()
        until(lambda: ours.lines("ended"), 60)
        asked = time.monotonic()
        ours.workers[0].terminate()
        assert ours.workers[0].wait(60) == 0
        took = time.monotonic() - asked
        print(f"stopped after {took:.1f} s")
        assert took < STOPPED, ours.logs()
        assert "1 results unwritten" in ours.logs()
        database.come_back()
        assert item(ours, running).state == "running", "it runs again when its lease is over"


def test_a_second_signal_ends_a_worker_though_the_database_is_away(database: Server, tmp_path: Path) -> None:
    with fleet(database.url, tmp_path, drain_seconds=600, lease_seconds=60, log_level="INFO") as ours:
        put(ours, "ponder", seconds=600.0)
        ours.start()
        until(lambda: ours.lines("began"), 60, ours.logs)
        database.go_away()
        worker = ours.workers[0]
        worker.send_signal(signal.SIGTERM)
        until(lambda: "waiting up to" in ours.logs(), 60)
        asked = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        took = time.monotonic() - asked
        print(f"stopped {took:.2f} s after the second signal")
        assert took < 15, ours.logs()


def test_a_worker_that_waits_for_its_database_to_start_can_be_stopped(
    database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)  # it brings a handler of its own for this signal
    database.go_away()
    with fleet(database.url, tmp_path, log_level="DEBUG") as ours:
        ours.start()
        worker = ours.workers[0]
        until(lambda: _is_catching(worker.pid), 60)
        worker.terminate()
        assert worker.wait(60) == 0, ours.logs()


def _is_catching(pid: int) -> bool:
    """Whether this process has a handler of its own for SIGTERM by now."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")]
    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_healthz_of_a_worker_is_well_while_the_database_is_away_and_readyz_is_not(
    database: Server, tmp_path: Path
) -> None:
    port = _free_port()
    with fleet(database.url, tmp_path, http_port=port, store_timeout_seconds=1) as ours:
        ours.start()
        until(lambda: _asked(port, "/readyz") == 200, 60, ours.logs)
        database.go_away()
        until(lambda: _asked(port, "/readyz") == 503, 60, ours.logs)
        assert _asked(port, "/healthz") == 200
        database.come_back()
        until(lambda: _asked(port, "/readyz") == 200, 60, ours.logs)


def _free_port() -> int:
    from private import free_ports

    (port,) = free_ports()
    return port


def _asked(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        json.loads(answer.read())
        return answer.status
    except OSError:
        return 0
    finally:
        connection.close()
