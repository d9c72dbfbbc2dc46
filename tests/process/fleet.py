"""Real worker processes for tests: started, killed, stopped and resumed like in production."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duly import Duly
from duly.store import Store
from duly.store.sqlite.store import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds after which something that should happen hangs, on a machine however busy


class Fleet:
    """Worker processes on one database."""

    def __init__(self, database_url: str, folder: Path, **settings: Any) -> None:
        self.app = Duly(database_url)
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "DULY_DATABASE_URL": database_url,
            "DULY_TEST_SINK": str(folder),
            "PYTHONPATH": str(ROOT),
            "DULY_HTTP_PORT": "0",
            "DULY_LOG_LEVEL": "WARNING",
            **{f"DULY_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def start(self, count: int = 1, *, spec: str = "tests.process.workload:app", **environment: str) -> None:
        for _ in range(count):
            log = (self.folder / f"worker-{len(list(self.folder.glob('worker-*')))}.log").open("wb")
            command = [sys.executable, "-m", "duly.cli", "worker", spec]
            self.workers.append(
                subprocess.Popen(command, env={**self._environment, **environment}, stderr=log, stdout=log, cwd=ROOT)
            )

    def kill_one(self, choose: random.Random, spare: int = 0) -> None:
        """Kill any worker but so many of the oldest."""
        victim = choose.choice(self.workers[spare:])
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.workers.remove(victim)

    def stop(self) -> list[int]:
        """Ask all to come to rest; their exit codes."""
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        codes = [self._end_of(worker) for worker in self.workers]
        self.workers.clear()
        return codes

    def _end_of(self, worker: subprocess.Popen[bytes]) -> int:
        try:
            return worker.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            worker.send_signal(signal.SIGUSR1)  # it writes its stacks into its log
            time.sleep(1)
            raise AssertionError(f"a worker does not stop:\n{self.logs()[-6000:]}") from None

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("worker-*.log")))

    def lines(self, kind: str) -> list[list[str]]:
        path = self.folder / kind
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def per_key(self, kind: str) -> Counter[str]:
        return Counter(line[0] for line in self.lines(kind))

    def states(self) -> Counter[str]:
        with self.app.internals.store.transaction() as connection:
            rows = connection.execute("select state, count(*) from duly_item group by state").fetchall()
        return Counter(dict(rows))


def freeze(ours: Fleet, worker: subprocess.Popen[bytes]) -> None:
    """Stop a process outside of its transactions: inside one, its locks would keep the others waiting for it."""
    while True:
        worker.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        if not _is_writing(ours.app.internals.store):
            return
        worker.send_signal(signal.SIGCONT)


def _is_writing(store: Store) -> bool:
    if isinstance(store, SqliteStore):
        with open(f"{store.path}-lock", "a") as turn:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    with store.transaction() as connection:
        return bool(
            connection.execute(
                "select exists (select from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and state <> 'idle' and backend_type = 'client backend')"
            ).fetchone()[0]
        )


@contextmanager
def fleet(database_url: str, folder: Path, **settings: Any) -> Iterator[Fleet]:
    one = Fleet(database_url, folder, **settings)
    try:
        yield one
    finally:
        for worker in one.workers:
            worker.kill()
            worker.wait()
        one.app.close()


def until(what: Callable[[], Any], seconds: float = PATIENCE, tell: Callable[[], object] = lambda: "") -> Any:
    """Wait until something shows, and fail when it does not in time: PATIENCE, or longer where that is asked for."""
    seconds = max(seconds, PATIENCE)
    give_up = time.monotonic() + seconds
    while not (seen := what()):
        assert time.monotonic() < give_up, f"did not happen within {seconds} s: {tell()}"
        time.sleep(0.02)
    return seen
