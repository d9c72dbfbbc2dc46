"""A provider that takes 20 calls a second and slows down at noon, called by tasks with a pace, and at constant numbers.

`python -m bench.pace`; part of `make bench`. The provider is a real HTTP service, in its own process. It answers 429
to what is more than 20 calls in any second, and takes 0.1 s before noon and 0.3 s after. First some constant numbers of
calls at a time are tried for a while, then a task with `pace=Pace(…)`, as long before noon as after. A call that was
refused is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from duly import Duly, Pace
from duly.engine.worker import Worker
from duly.outbound.http import request

LIMIT = 20
LATENCIES = {"before noon": 0.1, "after noon": 0.3}
CONSTANTS = (1, 2, 3, 4, 6, 8, 12)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pace", description=__doc__)
    parser.add_argument("--seconds", type=int, default=90, help="with a pace, before noon and again after it")
    parser.add_argument("--each", type=int, default=8, help="seconds for each constant number of calls")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--provider", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provider:
        asyncio.run(provide())
        return
    logging.getLogger("duly").setLevel(logging.ERROR)
    found: dict[str, dict[str, float]] = {}
    with provider() as url:
        best = {}
        for phase, latency in LATENCIES.items():
            set_latency(url, latency)
            rates = {calls: constant(url, calls, options.each) for calls in CONSTANTS}
            best[phase] = max(rates.values())
            print(f"{phase}: " + ", ".join(f"{calls}: {rate:.1f}/s" for calls, rate in rates.items()), flush=True)
        found = paced(url, options.seconds)
    for phase, seen in found.items():
        seen["of the best constant"] = seen["good answers a second"] / best[phase]
        for what, value in seen.items():
            print(f"{phase:12} {what:40} {value:>10.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def constant(url: str, calls: int, seconds: float) -> float:
    """Good answers a second with so many calls at a time, without the first quarter of the time."""
    app, worker = a_worker(url, None, calls)
    time.sleep(seconds / 4)
    before, begun = counted(url)[0], time.monotonic()
    time.sleep(seconds * 3 / 4)
    rate = (counted(url)[0] - before) / (time.monotonic() - begun)
    worker.stop()
    worker.drain()
    app.close()
    return rate


def paced(url: str, seconds: float) -> dict[str, dict[str, float]]:
    found = {}
    set_latency(url, LATENCIES["before noon"])
    app, worker = a_worker(url, Pace("provider"), 64)
    for phase, latency in LATENCIES.items():
        set_latency(url, latency)
        start = counted(url)
        time.sleep(seconds / 3)  # to settle
        settled, begun = counted(url), time.monotonic()
        levels = []
        while time.monotonic() < begun + seconds * 2 / 3:
            time.sleep(0.25)
            levels.append(
                next(pool.gate.width() for pool in worker._engine.flow.pools.claiming if pool.gate is not None)
            )
        good, refused = counted(url)
        found[phase] = {
            "good answers a second": (good - settled[0]) / (time.monotonic() - begun),
            "share of errors, settled": share(refused - settled[1], good - settled[0]),
            "share of errors, all": share(refused - start[1], good - start[0]),
            "calls at a time, least": min(levels),
            "calls at a time, most": max(levels),
        }
    worker.stop()
    worker.drain()
    app.close()
    return found


def share(bad: int, good: int) -> float:
    return bad / max(bad + good, 1)


def a_worker(url: str, pace: Pace | None, calls: int) -> tuple[Duly, Worker]:
    app = Duly(f"sqlite:///{tempfile.mkdtemp()}/pace.db", concurrency=calls, retry_base_seconds=1.0)

    @app.task(pace=pace)
    def look_up() -> None:
        request("GET", url, None)

    app.migrate()
    look_up.put_many({} for _ in range(20_000))
    worker = app.worker()
    worker.start()
    return app, worker


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


def set_latency(url: str, latency: float) -> None:
    urlopen(f"{url}latency/{latency}").close()


def counted(url: str) -> tuple[int, int]:
    """How many calls were answered well so far, and how many were refused."""
    with urlopen(f"{url}counts") as answer:
        good, refused = json.load(answer)
    return good, refused


async def provide() -> None:
    latency, taken, counts = 0.1, deque[float](), [0, 0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal latency
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        status, body = 200, "{}"
        if path.startswith("/latency/"):
            latency = float(path.removeprefix("/latency/"))
        elif path == "/counts":
            body = json.dumps(counts)
        else:
            now = time.monotonic()
            while taken and taken[0] <= now - 1:
                taken.popleft()
            if len(taken) < LIMIT:
                taken.append(now)
                await asyncio.sleep(latency)
                counts[0] += 1
            else:
                counts[1] += 1
                status = 429
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    main()
