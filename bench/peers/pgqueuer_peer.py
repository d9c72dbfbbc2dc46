"""PgQueuer: one asyncpg connection, as in its quick start, and uvloop, as its own command line; batches of 1000.

A pool instead of the connection costs it a reset per query: slower puts, twice the CPU at 50 jobs per second.

Finished jobs leave the queue table; its log table keeps their history.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg
import uvloop
from contract import Payload, Peer, StartLog, obey
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

PUT_CHUNK = 10_000

LEFT = "select count(*) from pgqueuer where execute_after <= now()"

FINISHED = "select count(*) from pgqueuer_log where status = 'successful'"

FUTURE = """
insert into pgqueuer (priority, status, entrypoint, payload, headers, execute_after)
select 0, 'queued', 'noop', convert_to(format('{"n": %%s, "at": 0}', n), 'utf8'), '{}',
       now() + interval '1 year' + n * interval '1 second'
  from generate_series(1, %(n)s) n
"""

# A finished job leaves one log row for each of its three states, already folded into the statistics.
DONE = """
insert into pgqueuer_log (created, job_id, status, priority, entrypoint, aggregated)
select now() - n * interval '1 second', -n, status::pgqueuer_status, 0, 'noop', true
  from generate_series(1, %(n)s) n, unnest(array['queued', 'picked', 'successful']) status
"""


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[AsyncpgDriver]:
    connection = await asyncpg.connect(dsn)
    try:
        yield AsyncpgDriver(connection)
    finally:
        await connection.close()


async def install(dsn: str) -> None:
    async with connect(dsn) as driver:
        await Queries(driver).install()


class Client:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    async def put(self, payload: Payload) -> None:
        await self.queries.enqueue("noop", json.dumps(payload).encode())

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None) -> None:
        for start in range(0, len(payloads), PUT_CHUNK):
            chunk = [json.dumps(payload).encode() for payload in payloads[start : start + PUT_CHUNK]]
            size = len(chunk)
            delay = due - datetime.now(UTC) if due else None
            await self.queries.enqueue(["noop"] * size, chunk, [0] * size, [delay] * size)


@asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    async with connect(dsn) as driver:
        yield Client(Queries(driver))


async def run(dsn: str, log: StartLog, batch: int) -> None:
    async with connect(dsn) as driver:
        worker = PgQueuer(driver)

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:
            log.note(json.loads(job.payload or b"{}"))

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
        await worker.run(batch_size=batch)


async def work(dsn: str, log: StartLog) -> None:
    await run(dsn, log, batch=1000)


async def latency_work(dsn: str, log: StartLog) -> None:
    await run(dsn, log, batch=10)


if __name__ == "__main__":
    uvloop.install()
    obey(Peer(install, client, work, left=LEFT, latency_work=latency_work, finished=FINISHED, future=FUTURE, done=DONE))
