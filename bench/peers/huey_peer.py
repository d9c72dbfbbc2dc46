"""Huey on SQLite, at its fastest documented setting, `fsync=False`: the DSN is a file path.

Huey deletes a job when it takes it, so `left` runs ahead of the handlers by at most one job per thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from contract import Payload, Peer, StartLog, obey
from huey import SqliteHuey

LEFT = "select count(*) from task"


def open_huey(path: str, log: StartLog) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey("bench", filename=path, fsync=False)

    @huey.task(name="noop")
    def noop(payload: Payload) -> None:
        log.note(payload)

    return huey, noop


async def install(path: str) -> None:
    open_huey(path, StartLog(None))


class Client:
    def __init__(self, noop: Any) -> None:
        self.noop = noop

    async def put(self, payload: Payload) -> None:
        self.noop(payload)

    async def put_many(self, payloads: Sequence[Payload], _due: datetime | None = None) -> None:
        # Huey documents no bulk put.
        for payload in payloads:
            self.noop(payload)


@asynccontextmanager
async def client(path: str) -> AsyncIterator[Client]:
    _, noop = open_huey(path, StartLog(None))
    yield Client(noop)


async def work(path: str, log: StartLog) -> None:
    huey, _ = open_huey(path, log)
    # It blocks the loop, because it sets signal handlers and so needs the main thread. One worker thread:
    # a second one only adds switching for a job that does nothing.
    huey.create_consumer(workers=1, periodic=False).run()


if __name__ == "__main__":
    obey(Peer(install, client, work, left=LEFT))
