"""A hundred handlers that hang in one queue, and another queue with ten items a second beside them.

`python -m bench.hung`; part of `make bench`. For async and thread handlers on both databases: how long after its put an
item of the second queue starts, and how long after their cancellation the slots of the hung ones run something else.
The thread handlers wait for a server that never answers, through `duly.outbound`; the others sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cluster import cluster, fresh_database
from duly import Duly
from duly.outbound.http import post_json
from duly.store.migrate import migrate

HUNG = 100
RATE = 10
FULL = 7  # of ten slots, what one queue has when another one may come


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hung", description=__doc__)
    parser.add_argument("--items", type=int, default=300, help="of the second queue, ten a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.getLogger("duly").setLevel(logging.ERROR)
    found: dict[str, dict[str, float]] = {}
    for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
        for kind in ("async", "thread"):
            with opened() as url, socket.create_server(("127.0.0.1", 0), backlog=HUNG) as silent:
                found[f"{name} {kind}"] = measure(url, kind, silent.getsockname()[1], options.items)
            for what, value in found[f"{name} {kind}"].items():
                print(f"{name:12} {kind:8} {what:44} {value:>10,.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def measure(url: str, kind: str, port: int, items: int) -> dict[str, float]:
    app = Duly(url)
    hung: list[float] = []
    delays: list[float] = []
    hang, tick = tasks_on(app, kind, port, hung, delays)
    hang.put_many({} for _ in range(HUNG))
    worker = app.worker()
    worker.start()
    try:
        _until(lambda: len(hung) >= FULL)
        begun = time.monotonic()
        for n in range(items):
            time.sleep(max(begun + n / RATE - time.monotonic(), 0))
            tick.put(put_at=time.monotonic())
        _until(lambda: len(delays) == items)
        freed = time_to_free(app, hang, hung)
    finally:
        worker.stop()
        worker.drain()
        app.close()
    delays.sort()
    return {
        "start after put, median, ms": delays[len(delays) // 2] * 1000,
        "start after put, p99, ms": delays[int(len(delays) * 0.99) - 1] * 1000,
        "start after put, worst, ms": delays[-1] * 1000,
        "slots free after the cancel, ms": freed * 1000,
    }


def tasks_on(app: Duly, kind: str, port: int, hung: list[float], delays: list[float]) -> tuple[Any, Any]:
    """The task that hangs, and the one beside it."""
    if kind == "async":

        @app.task
        async def hang() -> None:
            hung.append(time.monotonic())
            await asyncio.sleep(3600)

        @app.task
        async def tick(put_at: float) -> None:
            delays.append(time.monotonic() - put_at)

        return hang, tick

    @app.task(name="hang")
    def hang_in_thread() -> None:
        hung.append(time.monotonic())
        post_json(f"http://127.0.0.1:{port}/", {}, timeout=3600)

    @app.task(name="tick")
    def tick_in_thread(put_at: float) -> None:
        delays.append(time.monotonic() - put_at)

    return hang_in_thread, tick_in_thread


def time_to_free(app: Duly, hang: Any, hung: list[float]) -> float:
    """Seconds from the commit of the cancel until as many others hang in the same slots."""
    ids = [row.id for row in app.read.page(task="hang", most=HUNG)]
    app.cancel(*ids)
    cancelled, before = time.monotonic(), len(hung)
    hang.put_many({} for _ in range(FULL))
    _until(lambda: len(hung) >= before + FULL)
    return max(hung) - cancelled


def _until(what: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not what():
        if time.monotonic() > give_up:
            raise SystemExit("bench.hung: nothing moves")
        time.sleep(0.005)


@contextmanager
def _postgres() -> Iterator[str]:
    with cluster() as server:
        url = fresh_database(server, "hung")
        app = Duly(url)
        migrate(app.internals.store)
        app.close()
        yield url


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
        yield f"sqlite:///{folder}/hung.db"


if __name__ == "__main__":
    main()
