"""The command line that every contender obeys, so that one driver can measure any of them.

    install DSN             create the schema
    put-many DSN N          bulk put of N jobs;                    prints {"seconds": ..., "n": ...}
    put-one DSN N           N durable puts, one after another;     prints {"seconds": ..., "n": ...}
    work DSN [OUT]          a worker with its best batch settings, until SIGTERM
    latency-work DSN OUT    a worker with its low-latency settings, until SIGTERM
    latency-put DSN N RATE  N puts at RATE per second, each carrying the moment just before its put
    burst-put DSN N SECONDS bulk put of N jobs due at one instant, SECONDS from now, carrying that instant
    left DSN                prints the number of due, unfinished jobs
    left-sql                prints the SQL behind `left`
    finished-sql            prints the SQL that counts jobs finished well, where finished jobs are kept
    future DSN N            seeds N rows due in one year
    done DSN N              seeds N finished rows

What a contender cannot do prints {"unsupported": true}. A worker given OUT appends to that file one line
per job as its handler starts: carried time and start time, in nanoseconds of CLOCK_REALTIME. Only the puts
are timed: interpreter start, connecting and building the payloads are not.

A peer's program describes itself as a `Peer` and calls `obey`; it needs nothing else from here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

Payload = dict[str, int]


class Client(Protocol):
    """A connected producer."""

    async def put(self, payload: Payload, /) -> None: ...

    async def put_many(self, payloads: Sequence[Payload], due: datetime | None = None, /) -> None: ...


class StartLog:
    """Writes down when each handler started; without a path it does nothing."""

    def __init__(self, path: str | None) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if path else None

    def note(self, payload: Payload) -> None:
        if self.file is not None:
            os.write(self.file, b"%d %d\n" % (payload["at"], time.time_ns()))


@dataclass(frozen=True)
class Peer:
    """What a contender can do. SQL seeds take the number of rows as `%(n)s`."""

    install: Callable[[str], Coroutine[Any, Any, None]]
    client: Callable[[str], AbstractAsyncContextManager[Client]]
    work: Callable[[str, StartLog], Coroutine[Any, Any, None]]
    left: str
    latency_work: Callable[[str, StartLog], Coroutine[Any, Any, None]] | None = None
    finished: str | None = None
    future: str | None = None
    done: str | None = None


def obey(peer: Peer) -> None:
    """Run the command on the command line and print its answer, if it has one."""
    command, *arguments = sys.argv[1:]
    answer = carry_out(peer, command, arguments)
    if answer is not None:
        print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)


def carry_out(peer: Peer, command: str, arguments: list[str]) -> Any:
    unsupported = {"unsupported": True}
    match command, arguments:
        case "left-sql", []:
            return peer.left
        case "finished-sql", []:
            return peer.finished or unsupported
        case "install", [dsn]:
            return asyncio.run(peer.install(dsn))
        case "put-many", [dsn, n]:
            return asyncio.run(put_many(peer, dsn, int(n)))
        case "put-one", [dsn, n]:
            return asyncio.run(put_one(peer, dsn, int(n)))
        case "work", [dsn, *out]:
            return asyncio.run(peer.work(dsn, StartLog(out[0] if out else None)))
        case "latency-work", [dsn, out]:
            return asyncio.run(peer.latency_work(dsn, StartLog(out))) if peer.latency_work else unsupported
        case "latency-put", [dsn, n, rate]:
            return asyncio.run(put_paced(peer, dsn, int(n), float(rate)))
        case "burst-put", [dsn, n, seconds]:
            return asyncio.run(put_burst(peer, dsn, int(n), float(seconds)))
        case "left", [dsn]:
            return query(dsn, peer.left)
        case "future", [dsn, n]:
            return seed(dsn, peer.future, int(n)) if peer.future else unsupported
        case "done", [dsn, n]:
            return seed(dsn, peer.done, int(n)) if peer.done else unsupported
    raise SystemExit(f"unknown command or wrong arguments: {command} {arguments}\n{__doc__}")


async def put_many(peer: Peer, dsn: str, n: int) -> dict[str, float]:
    payloads = [{"n": number, "at": 0} for number in range(n)]
    async with peer.client(dsn) as client:
        begun = time.perf_counter()
        await client.put_many(payloads)
        return {"seconds": time.perf_counter() - begun, "n": n}


async def put_one(peer: Peer, dsn: str, n: int) -> dict[str, float]:
    async with peer.client(dsn) as client:
        # The first put prepares statements and warms caches: a long-lived client has done so.
        await client.put({"n": -1, "at": 0})
        begun = time.perf_counter()
        for number in range(n):
            await client.put({"n": number, "at": 0})
        return {"seconds": time.perf_counter() - begun, "n": n}


async def put_paced(peer: Peer, dsn: str, n: int, rate: float) -> dict[str, float]:
    async with peer.client(dsn) as client:
        begun = time.perf_counter()
        for number in range(n):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            await client.put({"n": number, "at": time.time_ns()})
        return {"seconds": time.perf_counter() - begun, "n": n}


async def put_burst(peer: Peer, dsn: str, n: int, seconds: float) -> dict[str, float]:
    async with peer.client(dsn) as client:
        begun = time.perf_counter()
        due = time.time_ns() + round(seconds * 1e9)
        payloads = [{"n": number, "at": due} for number in range(n)]
        await client.put_many(payloads, datetime.fromtimestamp(due / 1e9, UTC))
        return {"seconds": time.perf_counter() - begun, "n": n}


def query(dsn: str, sql: str) -> int:
    if not dsn.startswith("postgres"):
        with sqlite3.connect(dsn) as store:
            return int(store.execute(sql).fetchone()[0])
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return int(row[0])


def seed(dsn: str, sql: str, n: int) -> dict[str, int]:
    import psycopg

    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(sql, {"n": n})
    # Rows that have stood in a real store for days have been vacuumed, analysed and written to disk long since.
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return {"n": n}
