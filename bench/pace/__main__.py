"""Paces of providers: against a real HTTP provider, and against many random ones in virtual time.

`python -m bench.pace`, part of `make bench`, calls a real provider, in its own process: first at constant numbers of
calls at a time, then from a job whose task has a pace. The provider has a limit of 20 calls a second and slows down at
noon; then it has no limit, but errors at random, and an outage.

`python -m bench.pace --providers 200` draws so many providers, and compares the pace with the best constant pace for
each of them (some minutes). `python -m bench.pace --plots` writes the plots of docs/pace.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path

from bench.pace import http, plots
from bench.pace.sweep import HEADING, line, sweep


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pace", description=__doc__)
    parser.add_argument("--seconds", type=int, default=90, help="with a pace, before noon and again after it")
    parser.add_argument("--each", type=int, default=8, help="seconds for each constant number of calls")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--providers", type=int, help="how many random providers, in virtual time")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plots", action="store_true", help="write the plots of the docs")
    parser.add_argument("--provider", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provider:
        asyncio.run(http.provide())
    elif options.plots:
        print("\n".join(str(path) for path in plots.write()))
    elif options.providers:
        print(HEADING, flush=True)
        for scenario, found in sweep(options.providers, options.processes):
            print(line(scenario, found), flush=True)
    else:
        logging.getLogger("duly").setLevel(logging.ERROR)
        measured = http.measured(options.seconds, options.each)
        for phase, seen in measured.items():
            for what, value in seen.items():
                print(f"{phase:24} {what:40} {value:>10.3f}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
