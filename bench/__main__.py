"""Runs the comparison: `python -m bench --peers duly,pgqueuer --measures drain-1,latency --json out.json`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.cluster import Server, cluster
from bench.contenders import DEFAULT_ORDER, Contender, contenders
from bench.floor import probe
from bench.report import Results, tables
from bench.setup import SCRATCH, ensure_peers
from bench.stage import ContractError

Measure = Callable[[Contender, Server], dict[str, Any]]


def measures(options: argparse.Namespace) -> dict[str, Measure]:
    def per_item(function: Callable[..., dict[str, Any]], **settings: int) -> Measure:
        is_seeded = bool({"future", "done"} & settings.keys())
        return lambda contender, server: function(
            contender, server, contender.share_of(options.items, is_seeded), **settings
        )

    seeded = options.seeded
    return {
        "bulk-put": per_item(measure.bulk_put),
        "single-put": partial(measure.single_put, n=options.singles),
        "drain-1": per_item(measure.drain, processes=1),
        "drain-2": per_item(measure.drain, processes=2),
        "drain-future": per_item(measure.drain, future=seeded),
        "drain-done": per_item(measure.drain, done=seeded),
        "drain-both": per_item(measure.drain, future=seeded, done=seeded),
        "latency": partial(measure.latency, n=options.latency_jobs),
        "idle": partial(measure.idle, seconds=options.idle_seconds),
        "burst": partial(measure.burst, n=options.burst),
    }


def main() -> None:
    options = parse()
    everyone = choose(options.peers)
    chosen = choose_measures(options)
    floors: list[dict[str, float]] = []
    begun = time.monotonic()
    results: Results = {name: {} for name in chosen}
    failures: list[str] = []
    with cluster() as server:
        # Interleaved: what slows the machine for a while slows everyone, not whoever came last.
        for run in range(1, options.runs + 1):
            if options.measures is None or "floor" in options.measures.split(","):
                floors.append(probe(server, options.items))
                print(f"run {run}/{options.runs}  floor  {describe(floors[-1])}", flush=True)
            for name, take in chosen.items():
                for contender in everyone:
                    step = f"run {run}/{options.runs}  {name:12}  {contender.name:13}"
                    started = time.monotonic()
                    try:
                        figures = take(contender, server)
                    except ContractError as failure:
                        failures.append(f"{step}  {failure}")
                        figures = {}
                    if figures:
                        results[name].setdefault(contender.name, []).append(figures)
                    spent = f"{time.monotonic() - started:6.1f} s  at {time.monotonic() - begun:7.1f} s"
                    print(f"{step}  {spent}  {describe(figures)}", flush=True)
                    if options.json:
                        save(options, server, results, failures)
    print("\n" + tables(results, everyone))
    if floors:
        print("\nfloor: bare SQL on the same cluster")
        for name in floors[0]:
            values = sorted(floor[name] for floor in floors)
            print(f"  {name:22} {values[len(values) // 2]:>12,.0f}   {values[0]:,.0f} - {values[-1]:,.0f}")
    if failures:
        print("\nfailed:\n" + "\n".join(failures), file=sys.stderr)
        raise SystemExit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="duly and its peers side by side")
    parser.add_argument("--peers", help=f"comma-separated, the first is the yardstick; of {', '.join(DEFAULT_ORDER)}")
    parser.add_argument("--measures", help="comma-separated, `floor` for bare SQL; all when left out")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--items", type=int, default=100_000, help="jobs in a bulk put and in a drain")
    parser.add_argument("--singles", type=int, default=2_000, help="puts in single-put")
    parser.add_argument("--seeded", type=int, default=1_000_000, help="rows that stand by in the seeded drains")
    parser.add_argument("--latency-jobs", type=int, default=1_000)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--burst", type=int, default=10_000, help="jobs that are due at one instant")
    parser.add_argument("--json", type=Path, help="write every figure of every run to this file")
    return parser.parse_args()


def choose(peers: str | None) -> list[Contender]:
    names = peers.split(",") if peers else list(DEFAULT_ORDER)
    present = contenders(ensure_peers(SCRATCH, set(names)))
    missing = [name for name in names if name not in present]
    if missing and peers:
        raise SystemExit(f"unknown or absent: {', '.join(missing)}; there are {', '.join(DEFAULT_ORDER)}")
    return [present[name] for name in names if name in present]


def choose_measures(options: argparse.Namespace) -> dict[str, Measure]:
    known = measures(options)
    if options.measures is None:
        return known
    names = [name for name in options.measures.split(",") if name != "floor"]
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}, floor")
    return {name: known[name] for name in names}


def describe(figures: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:,.2f}" for name, value in figures.items()) or "no figures"


def save(options: argparse.Namespace, server: Server, results: Results, failures: list[str]) -> None:
    with psycopg.connect(server.dsn()) as connection:
        version = connection.info.server_version
    machine = {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "postgresql": version,
    }
    settings = {name: str(value) for name, value in vars(options).items()}
    document = {"machine": machine, "options": settings, "results": results, "failures": failures}
    options.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
