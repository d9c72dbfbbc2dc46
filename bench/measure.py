"""The measures: each puts one contender on a fresh stage, does one thing and returns a plain dict of figures.

The caller repeats, interleaves and compares. A contender that does not support a measure returns {}.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg

from bench.cluster import Server
from bench.contenders import Contender
from bench.stage import ContractError, Stage, stage, wait_until
from bench.usage import cpu_seconds, resident_bytes

WARM_UP = 20
DRAIN_TIMEOUT = 1200


def bulk_put(contender: Contender, server: Server, n: int) -> dict[str, Any]:
    with stage(contender, server) as scene:
        took = scene.tell("put-many", scene.dsn, n)["seconds"]
        check(scene, scene.count(scene.tell("left-sql")), n, "rows after the bulk put")
        return {"rate": n / took, "seconds": took}


def single_put(contender: Contender, server: Server, n: int) -> dict[str, Any]:
    with stage(contender, server) as scene:
        took = scene.tell("put-one", scene.dsn, n)["seconds"]
        # One more than asked: the warm-up put of the contract.
        check(scene, scene.count(scene.tell("left-sql")), n + 1, "rows after the single puts")
        return {"rate": n / took, "seconds": took}


def drain(
    contender: Contender, server: Server, n: int, processes: int = 1, future: int = 0, done: int = 0
) -> dict[str, Any]:
    """Rate at which workers finish jobs that were all there before, as the store shows it.

    The clock starts when the store first shows a finished job, and the rate counts only what was left at
    that moment: start-up costs nobody anything.
    """
    with stage(contender, server) as scene:
        for command, rows in (("future", future), ("done", done)):
            if rows and scene.tell(command, scene.dsn, rows) == {"unsupported": True}:
                return {}
        left_sql, finished_sql = scene.tell("left-sql"), scene.tell("finished-sql")
        counts_finished = isinstance(finished_sql, str)
        finished_before = scene.count(finished_sql) if counts_finished else 0
        scene.tell("put-many", scene.dsn, n)
        scene.analyze()
        check(scene, scene.count(left_sql), n, "rows before the drain")
        with scene.workers("work", processes=processes) as pids:
            jobs, seconds = time_the_drain(scene, left_sql, n)
            cpu = cpu_seconds(pids)
        if counts_finished:
            check(scene, scene.count(finished_sql) - finished_before, n, "finished jobs after the drain")
        return {"rate": jobs / seconds, "seconds": seconds, "worker_cpu": cpu}


def time_the_drain(scene: Stage, left_sql: str, n: int) -> tuple[int, float]:
    begun, jobs = first_progress(scene, left_sql, n)
    if not jobs:
        raise ContractError(f"{scene.contender.name} drained {n} jobs between two looks: use more --items")
    seen, left = begun, jobs
    while left:
        # Counting costs the store too, so look seldom far from the end and often near it.
        pace = (jobs - left) / (seen - begun) if left < jobs else 0
        time.sleep(min(1.0, max(0.02, left / pace / 2)) if pace else 0.02)
        seen = time.perf_counter()
        left = scene.count(left_sql)
        if seen - begun > DRAIN_TIMEOUT:
            raise ContractError(f"{scene.contender.name} left {left} of {n} jobs after {DRAIN_TIMEOUT} s")
    return jobs, seen - begun


def first_progress(scene: Stage, left_sql: str, n: int) -> tuple[float, int]:
    """When the store first showed a finished job, and how many were left at that moment."""
    deadline = time.perf_counter() + 60
    while (seen := time.perf_counter()) < deadline:
        left = scene.count(left_sql)
        if left < n:
            return seen, left
        time.sleep(0.02)
    raise TimeoutError("no job finished within 60 s")


def latency(contender: Contender, server: Server, n: int = 1000, rate: float = 50) -> dict[str, Any]:
    """Put to handler start, in milliseconds, and the CPU seconds that the worker and PostgreSQL spend on it."""
    if contender.on_sqlite:
        return {}
    with stage(contender, server) as scene:
        starts = scene.scratch / "starts"
        with scene.workers("latency-work", starts) as pids:
            scene.tell("latency-put", scene.dsn, WARM_UP, rate)
            wait_until(lambda: len(lines(starts)) >= WARM_UP, "the warm-up", 60)
            time.sleep(1)
            before = cpu_seconds(pids), cpu_seconds([server.postmaster])
            scene.tell("latency-put", scene.dsn, n, rate)
            wait_until(lambda: len(lines(starts)) >= WARM_UP + n, "the last start", 60, every=0.1)
            after = cpu_seconds(pids), cpu_seconds([server.postmaster])
        delays = sorted((start - put) / 1e6 for put, start in lines(starts)[WARM_UP:])
        check(scene, len(delays), n, "starts")
        cuts = quantiles(delays, n=100, method="inclusive")
        worker_cpu, store_cpu = (late - early for early, late in zip(before, after, strict=True))
        return {
            "p50": cuts[49],
            "p99": cuts[98],
            "max": delays[-1],
            "cpu": worker_cpu + store_cpu,
            "worker_cpu": worker_cpu,
            "store_cpu": store_cpu,
        }


def idle(contender: Contender, server: Server, seconds: float = 60) -> dict[str, Any]:
    """What a worker with nothing to do costs: transactions and CPU seconds per minute, resident megabytes."""
    if contender.on_sqlite:
        return {}
    with stage(contender, server) as scene, psycopg.connect(server.dsn(), autocommit=True) as outside:
        # The probe sits in another database, so its own transactions are not among those it counts.
        database = scene.dsn.rpartition("/")[2]

        def transactions() -> int:
            row = outside.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = %s", [database]
            ).fetchone()
            assert row is not None
            return int(row[0])

        with scene.workers("latency-work", scene.scratch / "starts") as pids:
            time.sleep(5)
            before = transactions(), cpu_seconds(pids)
            begun = time.monotonic()
            time.sleep(seconds)
            minutes = (time.monotonic() - begun) / 60
            after = transactions(), cpu_seconds(pids)
            resident = resident_bytes(pids)
        return {
            "transactions_per_minute": (after[0] - before[0]) / minutes,
            "cpu_per_minute": (after[1] - before[1]) / minutes,
            "rss_mb": resident / 2**20,
        }


def burst(contender: Contender, server: Server, n: int = 10_000, ahead: float = 8) -> dict[str, Any]:
    """Seconds from the instant at which n jobs are due together until the last of them has started."""
    if contender.on_sqlite:
        return {}
    with stage(contender, server) as scene:
        starts = scene.scratch / "starts"
        with scene.workers("work", starts):
            scene.tell("put-many", scene.dsn, WARM_UP)
            wait_until(lambda: len(lines(starts)) >= WARM_UP, "the warm-up", 60)
            put = scene.tell("burst-put", scene.dsn, n, ahead)
            if put["seconds"] > ahead:
                raise ContractError(
                    f"{contender.name} needed {put['seconds']:.1f} s to put {n} jobs: use more than {ahead} s"
                )
            wait_until(lambda: count_lines(starts) >= WARM_UP + n, "the last start", ahead + 120, every=0.1)
        delays = [(start - due) / 1e9 for due, start in lines(starts)[WARM_UP:]]
        return {"all_started": max(delays), "first_started": min(delays)}


def lines(starts: Path) -> list[tuple[int, int]]:
    """Carried time and start time of every job so far, without a line that is still being written."""
    if not starts.exists():
        return []
    whole = starts.read_text().rpartition("\n")[0]
    return [(int(carried), int(start)) for carried, start in map(str.split, whole.splitlines())]


def count_lines(starts: Path) -> int:
    return starts.read_bytes().count(b"\n") if starts.exists() else 0


def check(scene: Stage, found: int, expected: int, what: str) -> None:
    if found != expected:
        raise ContractError(f"{scene.contender.name}: {found} {what}, expected {expected}")
