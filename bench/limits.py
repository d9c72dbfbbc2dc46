"""Limits on calls in a window of time, with the database some milliseconds away.

`python -m bench.limits`; part of `make bench`. One worker process, enough work, and one limit at a time. Of the windows
after the first call: how many calls were granted and begun, which share that is of what the limit allows, and the most
calls that began within any window. With `--busy 30`, so many other processes compute all the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cluster import Server, cluster, fresh_database
from bench.far import far
from duly import Duly, Limit
from duly.core.policy.limits import period
from duly.store.migrate import migrate

LIMITS = ("10/1s", "100/1s", "5/0.2s", "2/1m")
DISTANCES = (0.0, 3.0, 12.0, 50.0, 200.0)
# How long each is observed: this many seconds, and this many windows.
SECONDS, WINDOWS = 10.0, 3
LINE = "{limit:>8} {ms:>5g} {granted:>8} {begun:>6} {share:>6.2f} {most:>5}"
UP = 20.0  # seconds within which a worker makes its first call


def app_on(url: str, limit: str, log: str | None = None) -> Duly:
    most, _, per = limit.partition("/")
    app = Duly(url, keep_seconds=0, http_port=0, log_level="ERROR")
    lines = open(log, "a", buffering=1) if log else None  # noqa: SIM115 - for the life of the process

    @app.task(limits=Limit("callee", int(most), per=per))
    async def call() -> None:
        if lines:
            lines.write(f"begun {time.monotonic()}\n")

    store = app.internals.store
    claim = store.claim_metered

    def noted(*given: Any) -> Any:
        grants = claim(*given)
        if lines:
            lines.write(f"granted {time.monotonic()}\n" * sum(grant.calls for grant in grants))
        return grants

    store.claim_metered = noted  # type: ignore[method-assign]
    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--limits", default=",".join(LIMITS))
    parser.add_argument("--distances", default=",".join(f"{ms:g}" for ms in DISTANCES), help="in milliseconds")
    parser.add_argument("--busy", type=int, default=0, help="how many other processes compute")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", nargs=3, metavar=("URL", "LIMIT", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        app_on(*options.work).run()
        return
    distances = [float(ms) for ms in options.distances.split(",")]
    found: list[dict[str, Any]] = []
    print(f"{'limit':>8} {'ms':>5} {'granted':>8} {'begun':>6} {'share':>6} {'most':>5}", flush=True)
    with cluster() as server, busy(options.busy):
        for limit in options.limits.split(","):
            # A long window is mostly waiting, so all distances are observed at the same time.
            with ThreadPoolExecutor(len(distances) if _seconds(limit) >= 10 else 1) as together:
                rows = together.map(lambda ms, each=limit: measure(server, each, ms, options.workers), distances)
                for row in rows:
                    found.append(row)
                    print(
                        "{limit:>8} {ms:>5g} {granted:>8} {begun:>6} {share:>6.2f} {most:>5}".format(**row), flush=True
                    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def measure(server: Server, limit: str, ms: float, workers: int) -> dict[str, Any]:
    most, per = int(limit.partition("/")[0]), _seconds(limit)
    seconds = max(SECONDS, WINDOWS * per)
    with ExitStack() as stack:
        url = fresh_database(server, f"limits_{most}_{per:g}_{ms:g}")
        app = Duly(url)
        migrate(app.internals.store)
        app.close()
        app = app_on(url, limit)
        app.tasks["call"].put_many({} for _ in range(int(3 * most * (seconds + UP) / per)))
        app.close()
        there = stack.enter_context(far(url, ms / 1_000)) if ms else url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-bench-")))
        logs = [folder / f"log-{n}" for n in range(workers)]
        for log in logs:
            log.touch()
            stack.enter_context(working(there, limit, log))
        give_up = time.monotonic() + UP
        while not (first := min(_times(logs, "begun"), default=0.0)) and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(seconds + per + 1)
        begun, grants = sorted(_times(logs, "begun")), _times(logs, "granted")
    # The first window is left out: a limit that was not used allows all its calls at once.
    since = first + per
    counted = [at for at in begun if since <= at < since + seconds]
    granted = [at for at in grants if not first or since <= at < since + seconds]
    return {
        "limit": limit, "ms": ms, "granted": len(granted), "begun": len(counted),
        "share": len(counted) / (most * seconds / per), "most": busiest(begun, per),
    }  # fmt: skip


def busiest(times: Sequence[float], per: float) -> int:
    """The most of these in any window of this length."""
    return max((bisect_left(times, at + per) - place for place, at in enumerate(times)), default=0)


def _times(logs: Sequence[Path], what: str) -> list[float]:
    lines = [line.split() for log in logs for line in log.read_text().splitlines()]
    return [float(words[1]) for words in lines if len(words) == 2 and words[0] == what]


def _seconds(limit: str) -> float:
    return period(limit.partition("/")[2])


@contextmanager
def working(url: str, limit: str, log: Path) -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, "-m", "bench.limits", "--work", url, limit, str(log)])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(60)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many other processes that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
