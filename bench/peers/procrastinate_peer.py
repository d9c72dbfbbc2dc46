"""Procrastinate: its psycopg connector; LISTEN/NOTIFY is on by default; jobs are kept by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from contract import Payload, Peer, StartLog, obey
from procrastinate import App, PsycopgConnector
from procrastinate.tasks import Task

PUT_CHUNK = 10_000
CONCURRENCY = 30

LEFT = """
select count(*) from procrastinate_jobs
 where status in ('todo', 'doing') and (scheduled_at is null or scheduled_at <= now())
"""

FINISHED = "select count(*) from procrastinate_jobs where status = 'succeeded'"

# Triggers write the events and the notifications of a put; a million of the latter would swamp the queue.
FUTURE = """
set session_replication_role = replica;
insert into procrastinate_jobs (queue_name, task_name, args, scheduled_at)
select 'default', 'noop', jsonb_build_object('n', n, 'at', 0), now() + interval '1 year' + n * interval '1 second'
  from generate_series(1, %(n)s) n;
insert into procrastinate_events (job_id, type)
select id, type::procrastinate_job_event_type
  from procrastinate_jobs, unnest(array['deferred', 'scheduled']) type
 where status = 'todo' and scheduled_at > now();
"""

DONE = """
set session_replication_role = replica;
insert into procrastinate_jobs (queue_name, task_name, args, status, attempts)
select 'default', 'noop', jsonb_build_object('n', n, 'at', 0), 'succeeded', 1
  from generate_series(1, %(n)s) n;
insert into procrastinate_events (job_id, type)
select id, type::procrastinate_job_event_type
  from procrastinate_jobs, unnest(array['deferred', 'started', 'succeeded']) type
 where status = 'succeeded';
"""


@asynccontextmanager
async def open_app(dsn: str, log: StartLog) -> AsyncIterator[tuple[App, Task[..., Any, Any]]]:
    # Each running job asks for a connection when it ends, and the listener holds one.
    app = App(connector=PsycopgConnector(conninfo=dsn, min_size=1, max_size=20))

    @app.task(name="noop")
    async def noop(n: int, at: int) -> None:
        log.note({"n": n, "at": at})

    async with app.open_async():
        yield app, noop


async def install(dsn: str) -> None:
    async with open_app(dsn, StartLog(None)) as (app, _):
        await app.schema_manager.apply_schema_async()


class Client:
    def __init__(self, noop: Task[..., Any, Any]) -> None:
        self.noop = noop

    async def put(self, payload: Payload) -> None:
        await self.noop.defer_async(**payload)

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None) -> None:
        task = self.noop.configure(schedule_at=due) if due else self.noop.configure()
        for start in range(0, len(payloads), PUT_CHUNK):
            await task.batch_defer_async(*payloads[start : start + PUT_CHUNK])


@asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    async with open_app(dsn, StartLog(None)) as (_, noop):
        yield Client(noop)


async def work(dsn: str, log: StartLog) -> None:
    async with open_app(dsn, log) as (app, _):
        await app.run_worker_async(concurrency=CONCURRENCY)


if __name__ == "__main__":
    obey(Peer(install, client, work, left=LEFT, latency_work=work, finished=FINISHED, future=FUTURE, done=DONE))
