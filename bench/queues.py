"""How long a stranger's item waits beside very many ready queues of another owner: `python -m bench.queues`.

Part of `make bench`. One worker process with default settings. One owner has so many queues with a due item each, whose
calls do not end: they fill that owner's share of the slots, and the rest stays ready. Then strangers put items of the
same task, each in a queue of its own, and the time from the put until the start of its handler is measured. With
`--quick`, the calls of the owner end after 10 ms, so that the worker goes through the queues meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.keys import _p99, _store, idle
from duly import Duly
from duly.core.model import NewItem

OWNER = "ann"


def app_on(url: str, log: str | None = None, seconds: float = 3_600.0) -> Duly:
    app = Duly(url, keep_seconds=0, http_port=0, log_level="ERROR")
    starts = open(log, "a", buffering=1) if log else None  # noqa: SIM115 - for the life of the process

    @app.task
    async def ring(put_at: float) -> None:
        if starts:
            starts.write(f"{time.time() - put_at if put_at else 0}\n")
        if not put_at:
            await asyncio.sleep(seconds)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.queues", description=__doc__)
    parser.add_argument("--queues", default="1000,10000,100000")
    parser.add_argument("--puts", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="calls of the owner end after 10 ms")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stores", default="postgresql,sqlite")
    parser.add_argument("--work", nargs=3, metavar=("URL", "LOG", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        url, log, seconds = options.work
        app_on(url, log, float(seconds)).run()
        return
    found: dict[str, dict[str, float]] = {}
    for name in options.stores.split(","):
        found[name] = {}
        for queues in map(int, options.queues.split(",")):
            with _store(name, f"queues_{queues}") as url:
                for what, value in measure(url, queues, options.puts, 0.01 if options.quick else 3_600.0):
                    found[name][what] = value
                    print(f"{name:12} {what:58} {value:>12,.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def measure(url: str, queues: int, puts: int, seconds: float) -> Iterator[tuple[str, float]]:
    app = app_on(url)
    store = app.internals.store
    due = store.now()
    store.load(NewItem("ring", f"ring/{n}", b'{"put_at":0}', due, owner=OWNER) for n in range(queues))
    with working(url, seconds) as (worker, log):
        while not log.read_text():  # the worker is up
            time.sleep(0.05)
        time.sleep(5.0)
        starts = strangers(app, log, puts)
        yield f"{queues:,} ready queues: start of a stranger's, p50 ms", median(starts)
        yield f"{queues:,} ready queues: start of a stranger's, p99 ms", _p99(starts)
        yield f"{queues:,} ready queues: worker beside them, % of a core", idle(worker)
    app.close()


def strangers(app: Duly, log: Path, puts: int) -> list[float]:
    """The milliseconds until each item started, of one put after another."""
    for n in range(puts):
        args = json.dumps({"put_at": time.time()}).encode()
        app.internals.store.put([NewItem("ring", f"of/{n}", args, None, owner=f"stranger-{n}")])
        time.sleep(0.2)
    give_up = time.monotonic() + 60
    while len(waits := _waits(log)) < puts and time.monotonic() < give_up:
        time.sleep(0.1)
    return sorted(waits + [60_000.0] * (puts - len(waits)))


def _waits(log: Path) -> list[float]:
    return [float(line) * 1000 for line in log.read_text().splitlines() if line != "0"]


@contextmanager
def working(url: str, seconds: float) -> Iterator[tuple[int, Path]]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
        log = Path(folder) / "starts"
        log.touch()
        command = [sys.executable, "-m", "bench.queues", "--work", url, str(log), str(seconds)]
        worker = subprocess.Popen(command)
        try:
            yield worker.pid, log
        finally:
            worker.kill()  # its handlers would not end
            worker.wait(60)


if __name__ == "__main__":
    main()
