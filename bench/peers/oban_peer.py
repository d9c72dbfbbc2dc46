"""Oban for Python: one queue; LISTEN/NOTIFY is its default notifier; completed jobs stay for a day."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import uvloop
from contract import Payload, Peer, StartLog, obey
from oban import Job, Oban, worker
from oban.schema import install as install_schema

PUT_CHUNK = 5_000
BATCH_LIMIT = 200
LATENCY_LIMIT = 10

LEFT = """
select count(*) from oban_jobs
 where state in ('available', 'executing', 'retryable')
    or (state = 'scheduled' and scheduled_at <= timezone('utc', now()))
"""

FINISHED = "select count(*) from oban_jobs where state = 'completed'"

FUTURE = """
insert into oban_jobs (state, queue, worker, args, scheduled_at)
select 'scheduled', 'default', '__main__.Noop', jsonb_build_object('n', n, 'at', 0),
       timezone('utc', now()) + interval '1 year' + n * interval '1 second'
  from generate_series(1, %(n)s) n
"""

# Within the last hour: the pruner deletes what is older than a day.
DONE = """
insert into oban_jobs (state, queue, worker, args, attempt, attempted_by,
                       inserted_at, scheduled_at, attempted_at, completed_at)
select 'completed', 'default', '__main__.Noop', jsonb_build_object('n', n, 'at', 0), 1, array['bench'],
       seen, seen, seen, seen
  from (select n, timezone('utc', now()) - n * interval '3 milliseconds' as seen
          from generate_series(1, %(n)s) n) rows
"""

start_log = StartLog(None)


@worker(queue="default")
class Noop:
    async def process(self, job: Job) -> None:
        start_log.note(job.args)


async def install(dsn: str) -> None:
    pool = await Oban.create_pool(dsn)
    await install_schema(pool)
    await pool.close()


class Client:
    def __init__(self, oban: Oban) -> None:
        self.oban = oban

    async def put(self, payload: Payload) -> None:
        await self.oban.enqueue(Noop.new(payload))

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None) -> None:
        for start in range(0, len(payloads), PUT_CHUNK):
            chunk = payloads[start : start + PUT_CHUNK]
            await self.oban.enqueue_many(Noop.new(payload, scheduled_at=due) for payload in chunk)


@asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    pool = await Oban.create_pool(dsn)
    async with Oban(pool=pool) as oban:
        yield Client(oban)
    await pool.close()


async def run(dsn: str, log: StartLog, limit: int) -> None:
    global start_log
    start_log = log
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    pool = await Oban.create_pool(dsn)
    async with Oban(pool=pool, queues={"default": limit}):
        await stopping.wait()
    await pool.close()


async def work(dsn: str, log: StartLog) -> None:
    await run(dsn, log, BATCH_LIMIT)


async def latency_work(dsn: str, log: StartLog) -> None:
    await run(dsn, log, LATENCY_LIMIT)


if __name__ == "__main__":
    uvloop.install()
    obey(Peer(install, client, work, left=LEFT, latency_work=latency_work, finished=FINISHED, future=FUTURE, done=DONE))
