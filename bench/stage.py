"""Where a contender performs: an empty store of its own, its commands, its workers, and a window on the store."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.cluster import Server, drop_database, fresh_database
from bench.contenders import Contender


class ContractError(Exception):
    """A contender did not do what the contract asks."""


@dataclass
class Stage:
    """One contender on one fresh store."""

    contender: Contender
    dsn: str
    scratch: Path
    server: Server | None = None
    _watch: Any = field(default=None, repr=False)

    def tell(self, command: str, *arguments: object) -> Any:
        """Run one command of the contract to its end and return what it printed, decoded if it is JSON."""
        done = subprocess.run(
            [*self.contender.command, command, *map(str, arguments)], capture_output=True, text=True, timeout=900
        )
        if done.returncode:
            raise ContractError(f"{self.contender.name} {command}: {done.stderr[-2000:]}")
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return done.stdout.strip()

    def count(self, sql: str) -> int:
        """Ask the store through one connection that stays open for the whole performance."""
        if self._watch is None:
            self._watch = psycopg.connect(self.dsn, autocommit=True) if self.server else sqlite3.connect(self.dsn)
        return int(self._watch.execute(sql).fetchone()[0])

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def analyze(self) -> None:
        """Give every contender fresh statistics, or chance decides when autovacuum comes by."""
        if self.server:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute("analyze")

    @contextmanager
    def workers(self, command: str, *arguments: object, processes: int = 1) -> Iterator[list[int]]:
        """Run workers for the length of the block; yield their process ids."""
        log = self.scratch / "worker.log"
        with log.open("wb") as output:
            running = [
                subprocess.Popen(
                    [*self.contender.command, command, self.dsn, *map(str, arguments)], stdout=output, stderr=output
                )
                for _ in range(processes)
            ]
        try:
            yield [worker.pid for worker in running]
            if any(worker.poll() is not None for worker in running):
                raise ContractError(f"a worker of {self.contender.name} ended early: {log.read_text()[-2000:]}")
        except TimeoutError as reason:
            raise ContractError(f"{self.contender.name}: {reason}: {log.read_text()[-2000:]}") from reason
        finally:
            for worker in running:
                worker.send_signal(signal.SIGTERM)
            for worker in running:
                end(worker)


@contextmanager
def stage(contender: Contender, server: Server) -> Iterator[Stage]:
    """Install the contender into an empty store; drop the store at the end."""
    database = contender.name.replace("-", "_")
    scratch = Path(tempfile.mkdtemp(prefix="duly-bench-", dir="/var/tmp"))
    try:
        if contender.on_sqlite:
            found = Stage(contender, str(scratch / "store.db"), scratch)
        else:
            found = Stage(contender, fresh_database(server, database), scratch, server)
        with closing(found):
            found.tell("install", found.dsn)
            yield found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if not contender.on_sqlite:
            # Autovacuum must not tidy up after one contender while the next one performs.
            drop_database(server, database)


def wait_until(holds: Callable[[], bool], what: str, seconds: float, every: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(every)


def end(worker: subprocess.Popen[bytes]) -> None:
    try:
        worker.wait(20)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
