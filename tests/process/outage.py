"""A PostgreSQL of one test's own, which goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duly.store.migrate import migrate
from pgcluster import Cluster, ensure_binaries
from tests.support import opened


class Server(Cluster):
    @property
    def url(self) -> str:
        return self.dsn()

    def go_away(self) -> None:
        """As for a restart: every connection is ended, and new ones are refused."""
        self._ctl("stop", "-m", "fast")

    def come_back(self) -> None:
        """Returns when it takes connections."""
        self._ctl("start", "-l", self._place.path / "log", "-o", f"-p {self.port}")

    def _ctl(self, verb: str, *more: object) -> None:
        command = [ensure_binaries() / "pg_ctl", verb, "-D", self._place.path / "data", "-w", "-t", "60", *more]
        done = self._place.run(command)
        assert done.returncode == 0, done.stdout


@contextmanager
def server() -> Iterator[Server]:
    with Server() as one:
        with opened(one.url) as store:
            migrate(store)
        yield one
