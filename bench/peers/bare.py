"""The bare prototype: the least Python that claims, calls and settles in batches over PostgreSQL.

No retries, fences, leases, limits or graceful stop: it shows what those cost, it is not a queue.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import psycopg
from bare_sql import CLAIM, COPY, DONE, FINISHED, FUTURE, LEFT, PUT, SCHEMA, SETTLE
from contract import Payload, Peer, StartLog, obey
from psycopg.types.json import Jsonb

BATCH = 1000
POLL_SECONDS = 0.5


async def install(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(SCHEMA)


class Client:
    """Synchronous on purpose: one client, one statement at a time, nothing to overlap."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    async def put(self, payload: Payload) -> None:
        self.connection.execute(PUT, {"args": Jsonb(payload)})

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None) -> None:
        when = (due or datetime.now(UTC)).isoformat()
        with self.connection.transaction(), self.connection.cursor() as cursor:
            with cursor.copy(COPY) as copy:
                for payload in payloads:
                    copy.write_row(("noop", "bench", json.dumps(payload), when))
            cursor.execute("notify item")


@asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Client(connection)


async def work(dsn: str, log: StartLog) -> None:
    loop = asyncio.get_running_loop()
    stopping, woken = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    Thread(target=listen, args=(dsn, loop, woken), daemon=True).start()
    claiming, settling = (psycopg.connect(dsn, autocommit=True) for _ in range(2))
    threads = ThreadPoolExecutor(2)

    def claim() -> list[tuple[int, Payload]]:
        return claiming.execute(CLAIM, {"batch": BATCH}, prepare=True).fetchall()

    def settle(ids: list[int]) -> Any:
        return settling.execute(SETTLE, {"ids": ids}, prepare=True)

    async def noop(payload: Payload) -> None:
        log.note(payload)

    def begin_claim() -> asyncio.Future[list[tuple[int, Payload]]]:
        # Cleared before the claim looks, or a put in between would wait for the poll.
        woken.clear()
        return loop.run_in_executor(threads, claim)

    upcoming = begin_claim()
    while not stopping.is_set():
        batch = await upcoming
        upcoming = begin_claim() if batch else upcoming
        for _, payload in batch:
            await noop(payload)
        if batch:
            await loop.run_in_executor(threads, settle, [id for id, _ in batch])
            continue
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), POLL_SECONDS)
        upcoming = begin_claim()
    await upcoming


def listen(dsn: str, loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("listen item")
        for _ in connection.notifies():
            loop.call_soon_threadsafe(woken.set)


if __name__ == "__main__":
    obey(Peer(install, client, work, left=LEFT, latency_work=work, finished=FINISHED, future=FUTURE, done=DONE))
