"""Limits by key, thousands of them: what exhausted keys cost everybody else, and how fast keys with room drain.

`python -m bench.keys`; part of `make bench`. One worker process in its default form. Exhausted: each of so many keys
has had its one call in an hour and more waits; beside them an unrelated task is put, ten times a second. Future: as
many keyed queues hold work for tomorrow. Drain: items spread over so many keys, all of which have room.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.cluster import cluster, fresh_database
from bench.usage import cpu_seconds
from duly import Duly, Limit
from duly.store.migrate import migrate

HOUR, MINUTE = "1h", "1m"
IDLE_SECONDS = 20


def app_on(url: str, log: str | None = None) -> Duly:
    app = Duly(url, keep_seconds=0, http_port=0, log_level="ERROR")
    starts = open(log, "a", buffering=1) if log else None  # noqa: SIM115 - for the life of the process

    @app.task(limits=Limit("hourly", 1, per=HOUR, by="shop"))
    async def scarce(shop: str) -> None: ...

    @app.task(limits=Limit("plenty", 1_000, per=MINUTE, by="shop"))
    async def rated(shop: str) -> None: ...

    @app.task(limits=Limit("at_once", 2, by="shop"))
    async def counted(shop: str) -> None: ...

    @app.task
    async def other(put_at: float) -> None:
        if starts:
            starts.write(f"{time.time() - put_at}\n")

    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.keys", description=__doc__)
    parser.add_argument("--exhausted", type=int, default=10_000)
    parser.add_argument("--future", type=int, default=100_000)
    parser.add_argument("--drain", type=int, default=3_000, help="keys that have room")
    parser.add_argument("--items", type=int, default=60_000, help="spread over them")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stores", default="postgresql,sqlite")
    parser.add_argument("--work", nargs=2, metavar=("URL", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        app_on(*options.work).run()
        return
    found: dict[str, dict[str, float]] = {}
    for name in options.stores.split(","):
        found[name] = {}
        for what, value in measure(name, options):
            found[name][what] = value
            print(f"{name:12} {what:58} {value:>12,.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def measure(name: str, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    with _store(name, "exhausted") as url:
        yield from exhausted(url, options.exhausted)
    with _store(name, "future") as url:
        yield from future(url, options.future)
    for task in ("rated", "counted"):
        rates = []
        for _ in range(options.runs):
            with _store(name, f"drain_{task}") as url:
                rates.append(drain(url, task, options.drain, options.items))
        yield f"{task}: items/s over {options.drain:,} keys, median", median(rates)
        yield f"{task}: items/s over {options.drain:,} keys, slowest", min(rates)


def exhausted(url: str, keys: int) -> Iterator[tuple[str, float]]:
    app = app_on(url)
    app.tasks["scarce"].put_many({"shop": f"k{n % keys}"} for n in range(3 * keys))
    with working(url) as (worker, log):
        await_done(app, "scarce", keys)
        starts = steady(app, log, 300)
        yield f"{keys:,} exhausted keys: start of another task, p50 ms", median(starts)
        yield f"{keys:,} exhausted keys: start of another task, p99 ms", _p99(starts)
        yield f"{keys:,} exhausted keys: idle worker, % of a core", idle(worker)
    app.close()


def future(url: str, queues: int) -> Iterator[tuple[str, float]]:
    app = app_on(url)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    app.tasks["scarce"].at(tomorrow).put_many({"shop": f"k{n}"} for n in range(queues))
    with working(url) as (worker, log):
        starts = steady(app, log, 300)
        yield f"{queues:,} keyed queues of tomorrow: start, p50 ms", median(starts)
        yield f"{queues:,} keyed queues of tomorrow: start, p99 ms", _p99(starts)
        yield f"{queues:,} keyed queues of tomorrow: idle, % of a core", idle(worker)
    app.close()


def drain(url: str, task: str, keys: int, items: int) -> float:
    """Items per second from the first end to the last."""
    app = app_on(url)
    app.tasks[task].put_many({"shop": f"k{n % keys}"} for n in range(items))
    with working(url):
        await_done(app, task, items)
    app.close()
    ends = sorted(row[0] for row in rows_of(url, "select finished_at from duly_item where state = 'done'"))
    took = ends[-1] - ends[items // 20]  # past the start of the worker
    return (items - items // 20) / (took.total_seconds() if isinstance(took, timedelta) else took / 1e6)


def idle(worker: int) -> float:
    """The part of a core that it uses while nothing is put, in percent."""
    before = cpu_seconds([worker])
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds([worker]) - before) / IDLE_SECONDS * 100


def steady(app: Duly, log: Path, count: int) -> list[float]:
    """Put another task ten times a second; the milliseconds until each started."""
    other = app.tasks["other"]
    other.put(put_at=time.time())
    while not (before := len(log.read_text().splitlines())):  # the worker is up
        time.sleep(0.01)
    for _ in range(count):
        other.put(put_at=time.time())
        time.sleep(0.1)
    give_up = time.monotonic() + 60
    while len(lines := log.read_text().splitlines()[before:]) < count and time.monotonic() < give_up:
        time.sleep(0.1)
    missing = count - len(lines)
    return sorted([float(line) * 1000 for line in lines] + [60_000.0] * missing)


def rows_of(url: str, query: str) -> list[tuple[Any, ...]]:
    """What a reader sees who is in nobody's way."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as file:
            return file.execute(query).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def done(app: Duly, task: str) -> int:
    """How many have come to their end."""
    query = "select count(*) from duly_item where state = 'done' and task = '" + task + "'"
    return int(rows_of(app.settings.database_url, query)[0][0])


def await_done(app: Duly, task: str, count: int, patience: float = 600.0) -> None:
    give_up = time.monotonic() + patience
    while (so_far := done(app, task)) < count:
        if time.monotonic() > give_up:
            raise SystemExit(f"bench.keys: only {so_far:,} of {count:,} {task} after {patience:g} s")
        time.sleep(0.5)


@contextmanager
def working(url: str) -> Iterator[tuple[int, Path]]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
        log = Path(folder) / "starts"
        log.touch()
        worker = subprocess.Popen([sys.executable, "-m", "bench.keys", "--work", url, str(log)])
        try:
            yield worker.pid, log
        finally:
            worker.terminate()
            worker.wait(60)


@contextmanager
def _store(name: str, what: str) -> Iterator[str]:
    if name == "postgresql":
        with cluster() as server:
            url = fresh_database(server, what)
            app = Duly(url)
            migrate(app.internals.store)
            app.close()
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
            yield f"sqlite:///{folder}/keys.db"


def _p99(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99) - 1]


if __name__ == "__main__":
    main()
