"""A real HTTP provider, in its own process, and jobs that call it: with a pace, and at constant numbers of calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

from duly import Duly, Pace
from duly.engine.worker import Worker
from duly.outbound.http import request

LIMIT = 20
LATENCIES = {"before noon": 0.1, "after noon": 0.3}
CONSTANTS = (1, 2, 3, 4, 6, 8, 12)
SIXTEEN = 16
OUTAGE = 10.0


def measured(seconds: float, each: float) -> dict[str, dict[str, float]]:
    with provider() as url:
        found = _limited(url, seconds, each)
    with provider() as url:
        set_to(url, latency=0.1, limit=0)
        best = constant(url, SIXTEEN, each)
        for share in (0.0, 0.001, 0.01, 0.05):
            found[f"{share:.1%} errors"] = _with_errors(url, share, seconds / 3, best)
        found[f"after {OUTAGE:g} s of outage"] = _after_an_outage(url, best)
    return found


def _limited(url: str, seconds: float, each: float) -> dict[str, dict[str, float]]:
    """429 above 20 calls in any second; slower after noon."""
    best = {}
    for phase, latency in LATENCIES.items():
        set_to(url, latency=latency)
        rates = {calls: constant(url, calls, each) for calls in CONSTANTS}
        best[phase] = max(rates.values())
        print(f"{phase}: " + ", ".join(f"{calls}: {rate:.1f}/s" for calls, rate in rates.items()), flush=True)
    found = paced(url, seconds)
    for phase, seen in found.items():
        seen["of the best constant"] = seen["good answers a second"] / best[phase]
    return found


def constant(url: str, calls: int, seconds: float) -> float:
    """Good answers a second with so many calls at a time, without the first quarter of the time."""
    with a_worker(url, None, calls):
        time.sleep(seconds / 4)
        return rate_of(url, seconds * 3 / 4)


def rate_of(url: str, seconds: float) -> float:
    before, begun = counted(url)["good"], time.monotonic()
    time.sleep(seconds)
    return (counted(url)["good"] - before) / (time.monotonic() - begun)


def _with_errors(url: str, share: float, seconds: float, best: float) -> dict[str, float]:
    set_to(url, errors=share)
    with a_worker(url, Pace("provider", most=SIXTEEN), SIXTEEN):
        time.sleep(seconds / 3)
        rate = rate_of(url, seconds * 2 / 3)
    set_to(url, errors=0)
    return {"good answers a second": rate, "of the best constant": rate / best}


def _after_an_outage(url: str, best: float) -> dict[str, float]:
    with a_worker(url, Pace("provider", most=SIXTEEN), SIXTEEN):
        time.sleep(10)
        set_to(url, errors=1)
        failed = counted(url)["failed"]
        time.sleep(OUTAGE)
        failed = counted(url)["failed"] - failed
        set_to(url, errors=0)
        time.sleep(15)
        rate = rate_of(url, 15)
    return {"calls into the outage": failed, "good answers a second": rate, "of the best constant": rate / best}


def paced(url: str, seconds: float) -> dict[str, dict[str, float]]:
    found = {}
    set_to(url, latency=LATENCIES["before noon"])
    with a_worker(url, Pace("provider"), 64) as worker:
        for phase, latency in LATENCIES.items():
            set_to(url, latency=latency)
            start = counted(url)
            time.sleep(seconds / 3)  # to settle
            settled, begun = counted(url), time.monotonic()
            levels = []
            while time.monotonic() < begun + seconds * 2 / 3:
                time.sleep(0.25)
                levels.append(next(gate.width() for gate in worker._engine.flow.pools.gates()))
            end = counted(url)
            found[phase] = {
                "good answers a second": (end["good"] - settled["good"]) / (time.monotonic() - begun),
                "share of 429s, settled": share(settled, end),
                "share of 429s, all": share(start, end),
                "calls at a time, least": min(levels),
                "calls at a time, most": max(levels),
            }
    return found


def share(before: dict[str, int], after: dict[str, int]) -> float:
    bad, good = (after[name] - before[name] for name in ("refused", "good"))
    return bad / max(bad + good, 1)


@contextlib.contextmanager
def a_worker(url: str, pace: Pace | None, calls: int) -> Iterator[Worker]:
    """A worker with a job of many rows, each of which calls the provider; a failed row is tried again."""
    app = Duly(f"sqlite:///{tempfile.mkdtemp()}/pace.db", concurrency=calls, retry_base_seconds=1.0)

    @app.task(pace=pace)
    def look_up(n: int) -> None:
        request("GET", f"{url}rows/{n}", None)

    app.migrate()
    app.job(look_up, ({"n": n} for n in range(20_000)))
    worker = app.worker()
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        worker.drain()
        app.close()


# -- the provider


@contextlib.contextmanager
def provider() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench.pace", "--provider"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
    finally:
        process.kill()
        process.wait()


def set_to(url: str, **values: float) -> None:
    """Change `latency`, `limit` (calls in any second; 0: any number) or `errors` (the share that fails)."""
    for name, value in values.items():
        urlopen(f"{url}set/{name}/{value}").close()


def counted(url: str) -> dict[str, int]:
    """How many calls were answered well so far, refused and failed."""
    with urlopen(f"{url}counts") as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


async def provide() -> None:
    values: dict[str, float] = {"latency": 0.1, "limit": LIMIT, "errors": 0.0}
    counts = {"good": 0, "refused": 0, "failed": 0}
    taken = deque[float]()

    async def called() -> int:
        now = time.monotonic()
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if 0 < values["limit"] <= len(taken):
            counts["refused"] += 1
            return 429
        taken.append(now)
        if random.random() < values["errors"]:
            counts["failed"] += 1
            return 503
        await asyncio.sleep(values["latency"])
        counts["good"] += 1
        return 200

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        status, body = 200, "{}"
        if path.startswith("/set/"):
            _, _, name, value = path.split("/")
            values[name] = float(value)
        elif path == "/counts":
            body = json.dumps(counts)
        else:
            status = await called()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server: Any = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
