"""A million schedules: what a tick costs with nothing due, and how long ten thousand due in one minute take.

`python -m bench.schedules`; part of `make bench`. Beside it, as a floor, the insert of the same ten thousand rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from bench.cluster import cluster, fresh_database
from duly import Duly
from duly.core.advance import advance_all
from duly.core.model import NewItem, NewSchedule
from duly.engine.recurrer import PORTION, Recurrer
from duly.policy import Yearly
from duly.store import Store
from duly.store.migrate import migrate

NOW = datetime(2026, 6, 15, 9, 0, tzinfo=UTC)
IDLE_TICKS = 50


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=10_000, help="of them, due in the same minute")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
        with opened() as store:
            found[name] = measure(store, options.schedules, options.due, options.runs)
        for what, value in found[name].items():
            print(f"{name:12} {what:34} {value:>12,.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def measure(store: Store, schedules: int, due: int, runs: int) -> dict[str, float]:
    begun = time.perf_counter()
    fill(store, schedules, due)
    joined = time.perf_counter() - begun
    if store.url.startswith("postgres"):
        with store.transaction() as connection:
            connection.execute("analyze duly_schedule")
    recurrer = Recurrer(store, sweep=5)
    idle = []
    for _ in range(IDLE_TICKS):
        started = time.perf_counter()
        recurrer.tick(NOW - timedelta(minutes=1))
        idle.append((time.perf_counter() - started) * 1000)
    took = [materialise(store, year, due) for year in range(runs)]
    floor = []
    for _ in range(runs):
        started = time.perf_counter()
        store.load(NewItem("bench", "bench", b'{"n":1}', NOW + timedelta(days=9_999)) for _ in range(due))
        floor.append(time.perf_counter() - started)
    return {
        "schedules created per second": schedules / joined,
        "tick with nothing due, ms": median(idle),
        f"{due:,} due, materialised in s": median(took),
        f"{due:,} due, slowest run, s": max(took),
        "bulk put of as many items, s": median(floor),
    }


def fill(store: Store, schedules: int, due: int) -> None:
    """Yearly schedules; so many of them in the one minute, the others on every day of a year to come."""

    portion: list[NewSchedule] = []
    for n in range(schedules):
        # The others are years ahead, so that only the measured ones are due when time moves on by a year.
        at = NOW if n < due else NOW + timedelta(days=10_000 + n % 363)
        rule = Yearly(f"{at:%m-%d}", f"{NOW:%H:%M}")
        portion.append(NewSchedule("bench", str(n), "bench", b'{"n":1}', str(rule), "UTC", at, catch_up="all"))
        if len(portion) == 5_000:
            store.enroll(portion, nowhere)
            portion = []
    store.enroll(portion, nowhere)


def nowhere(*_: object) -> tuple[str, datetime]:
    raise AssertionError("these have no slots")


def materialise(store: Store, year: int, due: int) -> float:
    """Seconds until all that are due on this day of this year are items: one worker, as it goes."""
    now = NOW.replace(year=NOW.year + year) + timedelta(seconds=30)
    started = time.perf_counter()
    made = 0
    while made < due:
        made += store.revise(None, now, PORTION, partial(advance_all, now))
    return time.perf_counter() - started


@contextmanager
def _postgres() -> Iterator[Store]:
    with cluster() as server:
        app = Duly(fresh_database(server, "schedules"))
        migrate(app.internals.store)
        yield app.internals.store
        app.close()


@contextmanager
def _sqlite() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
        app = Duly(f"sqlite:///{folder}/schedules.db")
        yield app.internals.store
        app.close()


if __name__ == "__main__":
    main()
