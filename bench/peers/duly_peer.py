"""duly as a contender: its public API, default settings, all guarantees on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from threading import Thread
from typing import Any

from contract import Payload, Peer, StartLog, obey

from duly import Duly
from duly.store.migrate import migrate

FUTURE = """
insert into duly_item (task, queue, args, planned_at, due_at)
select 'noop', 'noop', json_build_object('n', n, 'put_at', 0), now() + interval '1 year' + n * interval '1 second',
       now() + interval '1 year' + n * interval '1 second'
  from generate_series(1, %(n)s) n
"""
DONE = """
insert into duly_item (task, queue, args, planned_at, due_at, state, outcome, attempt, fence, claimed_by, started_at,
                       finished_at)
select 'noop', 'noop', json_build_object('n', n, 'put_at', 0), now() - n * interval '100 ms',
       now() - n * interval '100 ms', 'done', 'done', 1, 1, 'host:1234:abcdef', now() - n * interval '100 ms',
       now() - n * interval '99 ms'
  from generate_series(1, %(n)s) n
"""
# By its indexes: a count that reads a million rows that stand by would take the time it is to measure.
LEFT = """
select (select count(*) from duly_item
         where is_waiting and queue = 'noop' and lane = 'main' and rank = 0 and due_at <= now())
     + (select count(*) from duly_lease l join duly_item i on i.id = any(l.items) and i.state = 'running')
"""


def app_on(dsn: str, log: StartLog | None = None) -> tuple[Duly, Any]:
    app = Duly(dsn if dsn.startswith("postgres") else f"sqlite:///{dsn}")

    @app.task
    async def noop(n: int, put_at: int) -> None:
        if log is not None:
            log.note({"n": n, "at": put_at})

    return app, noop


async def install(dsn: str) -> None:
    migrate(app_on(dsn)[0].internals.store)


class Client:
    def __init__(self, task: Any) -> None:
        self.task = task

    async def put(self, payload: Payload) -> None:
        self.task.put(n=payload["n"], put_at=payload["at"])

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None) -> None:
        rows = ({"n": payload["n"], "put_at": payload["at"]} for payload in payloads)
        self.task.options(at=due).put_many(rows)


@asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    app, task = app_on(dsn)
    app.internals.store.survey()
    yield Client(task)
    app.close()


async def work(dsn: str, log: StartLog) -> None:
    logging.basicConfig(level=logging.WARNING)
    app, _ = app_on(dsn, log if log.file is not None else None)
    worker = app.worker()
    running = Thread(target=worker.run)
    running.start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stopping.set)
    await stopping.wait()
    worker.stop()
    running.join()


PEER = Peer(
    install=install,
    client=client,
    work=work,
    latency_work=work,
    left=LEFT,
    finished="select count(*) from duly_item where state = 'done'",
    future=FUTURE,
    done=DONE,
)

if __name__ == "__main__":
    obey(PEER)
