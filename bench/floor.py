"""What bare SQL reaches on this machine, on the table of the bare prototype: `python -m bench.floor`.

Nothing that keeps its rows in this table through psycopg can be faster; the distance is a queue's own cost.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from bench.cluster import Server, cluster, fresh_database
from bench.peers.bare_sql import CLAIM, COPY, INSERT, LEFT, SCHEMA, SETTLE

BATCH = 1000
COPY_BLOCK = 2000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with cluster() as server:
        for run in range(1, options.runs + 1):
            print(json.dumps({"run": run, **probe(server, options.rows)}), flush=True)


def probe(server: Server, rows: int) -> dict[str, float]:
    """Every floor once, each on a fresh table."""
    return {
        "copy_rows_per_s": round(copy(empty_table(server), rows)),
        "insert_commit_per_s": round(insert_and_commit(empty_table(server), 2000)),
        "claim_settle_1_per_s": round(claim_and_settle(empty_table(server), rows, connections=1)),
        "claim_settle_2_per_s": round(claim_and_settle(empty_table(server), rows, connections=2)),
        "ping_us": round(ping(server.dsn(), 2000), 1),
    }


def empty_table(server: Server) -> str:
    dsn = fresh_database(server, "floor")
    with psycopg.connect(dsn) as connection:
        connection.execute(SCHEMA)
    return dsn


def copy(dsn: str, rows: int) -> float:
    """Rows per second of one COPY and its commit, from text made beforehand."""
    line = 'noop\tbench\t{{"n": {}, "at": 0}}\t2026-01-01 00:00:00+00\n'
    numbers = range(rows)
    blocks = [
        "".join(line.format(number) for number in numbers[start : start + COPY_BLOCK]).encode()
        for start in range(0, rows, COPY_BLOCK)
    ]
    with psycopg.connect(dsn) as connection:
        begun = time.perf_counter()
        with connection.cursor().copy(COPY) as sink:
            for block in blocks:
                sink.write(block)
        connection.commit()
        return rows / (time.perf_counter() - begun)


def insert_and_commit(dsn: str, n: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        begun = time.perf_counter()
        for number in range(n):
            connection.execute(INSERT, {"args": Jsonb({"n": number, "at": 0})}, prepare=True)
        return n / (time.perf_counter() - begun)


def claim_and_settle(dsn: str, rows: int, connections: int) -> float:
    copy(dsn, rows)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("analyze")
    opened = [psycopg.connect(dsn, autocommit=True) for _ in range(connections)]
    for connection in opened:
        # The floor does not look into the arguments, so it does not decode them.
        connection.adapters.register_loader("jsonb", TextLoader)
    with ThreadPoolExecutor(connections) as threads:
        begun = time.perf_counter()
        done = sum(threads.map(drain, opened))
        took = time.perf_counter() - begun
    left = opened[0].execute(LEFT).fetchone()
    if done != rows or left != (0,):
        raise RuntimeError(f"{done} of {rows} rows settled, left {left}")
    for connection in opened:
        connection.close()
    return rows / took


def drain(connection: psycopg.Connection[Any]) -> int:
    done = 0
    while ids := [row[0] for row in connection.execute(CLAIM, {"batch": BATCH}, prepare=True)]:
        connection.execute(SETTLE, {"ids": ids}, prepare=True)
        done += len(ids)
    return done


def ping(dsn: str, n: int) -> float:
    """Microseconds of one round trip, the mean of n."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        begun = time.perf_counter()
        for _ in range(n):
            connection.execute("select 1")
        return (time.perf_counter() - begun) / n * 1e6


if __name__ == "__main__":
    main()
