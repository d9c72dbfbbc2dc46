"""The service is killed and restarted under load: what it accepted is there once, whatever clients had to repeat."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from duly import Duly
from duly.client import Client, ServiceError
from duly.errors import DulyError
from tests.process.fleet import ROOT, until
from tests.support import query

THREADS = 8
WORKLOAD = "tests.process.workload:app"


class Server:
    """One `duly serve` after the other, always on the same port."""

    def __init__(self, database_url: str, folder: Path, spec: str = WORKLOAD, **settings: Any) -> None:
        self._spec = spec
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "serve.log"
        self._environment = {
            **os.environ,
            "DULY_DATABASE_URL": database_url,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **{f"DULY_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "duly.cli", "serve", self._spec, "--http-port"]
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [*command, str(self.port)], env=self._environment, stdout=log, stderr=log, cwd=ROOT
            )

    def end(self, number: int = signal.SIGKILL) -> int:
        running, self._running = self._running, None
        if running is None:
            return 0
        running.send_signal(number)
        return running.wait(60)

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def server(database_url: str, folder: Path, spec: str = WORKLOAD, **settings: Any) -> Iterator[Server]:
    one = Server(database_url, folder, spec, **settings)
    one.start()
    try:
        yield one
    finally:
        one.end()


class Load:
    """Clients that put numbered items at a steady rate, and repeat what was not answered with its key.

    One request in ten runs a schedule instead, which has no key of its own to tell a repetition by.
    """

    def __init__(self, url: str, rate: float) -> None:
        self.accepted: dict[int, int] = {}
        self.runs: list[int] = []
        self._schedule: int | None = None
        self.repeated = 0
        self.refused: list[str] = []
        self._url = url
        self._pause = THREADS / rate
        self._numbers = count()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._put_all, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        with Client(self._url, timeout=10) as client:
            until(lambda: self._answers(client), 60)
            self._schedule = client.schedule("mark", "yearly 01-01 00:00", "runs", {"n": -1}).id
        for thread in self._threads:
            thread.start()

    def _answers(self, client: Client) -> bool:
        try:
            client.me()
        except ServiceError:
            return False
        return True

    def stop(self) -> None:
        """Put no more; what was begun is repeated until it is answered."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request is never answered"

    def _put_all(self) -> None:
        due = time.monotonic()
        with Client(self._url, timeout=10) as client:
            while not self._over.wait(max(0.0, due - time.monotonic())):
                self._put(client, next(self._numbers))
                due += self._pause  # whoever was held up catches up

    def _put(self, client: Client, number: int) -> None:
        key = uuid4().hex
        while True:
            try:
                if number % 10 == 0:
                    client.http.request("POST", f"/api/schedules/{self._schedule}/run", idempotency_key=key)
                    self.runs.append(number)
                    return
                placed = client.put("mark", {"n": number}, delay=86_400, idempotency_key=key)
            except ServiceError as error:
                if error.status is not None:
                    self.refused.append(f"{error.status}: {error}")
                    return
                self.repeated += 1
            except DulyError as error:
                self.refused.append(f"{type(error).__name__}: {error}")
                return
            else:
                self.accepted[number] = placed.id
                return


def end_under_load(database_url: str, folder: Path, *, rate: float, kills: int, between: int) -> Load:
    """Kill the service again and again while clients put, at last restart it politely. All of it must add up.

    `between` two ends, so many items are accepted.
    """
    with server(database_url, folder) as service:
        load = Load(service.url, rate)
        load.start()

        def wait_for_more() -> None:
            enough = len(load.accepted) + between
            until(lambda: load.refused or len(load.accepted) >= enough, 60, service.log)

        for _ in range(kills):
            wait_for_more()
            assert service.end(signal.SIGKILL) == -signal.SIGKILL
            service.start()
        wait_for_more()
        assert service.end(signal.SIGTERM) == 0, service.log()[-3000:]
        service.start()
        wait_for_more()
        load.stop()
    assert load.refused == []
    app = Duly(database_url)
    kept = {row.id: row.args["n"] for row in app.read.pages(task="mark") if row.args["n"] >= 0}
    notes = query(app.internals.store, "select count(*) from duly_audit where action = 'schedule.run_now'")
    app.close()
    assert notes == [(len(load.runs),)], "runs were lost or doubled"
    assert len(kept) >= between * (kills + 2)
    doubled = [number for number, times in Counter(kept.values()).items() if times > 1]
    assert doubled == []
    assert {number: id for id, number in kept.items()} == load.accepted, "lost, or an answer told of another item"
    return load


def test_what_a_killed_service_accepted_is_there_exactly_once(postgres_url: str, tmp_path: Path) -> None:
    load = end_under_load(postgres_url, tmp_path, rate=200, kills=2, between=100)
    print(f"{len(load.accepted)} accepted; {load.repeated} given up by the client and asked again with their key")
