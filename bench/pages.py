"""Pages of a million items: the first beside the last, by owner and by state. Part of `make bench`.

Keyset pages must cost the same at any depth. Each figure is the time of one page of 50 rows through the read model that
feeds the API: looks at the first and at a last page take turns, so that a noisy machine troubles both alike.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from bench.cluster import cluster, fresh_database
from duly import Duly
from duly.core.model import NewItem
from duly.store.migrate import migrate

PAGE = 50
LOOKS = 400
RUNS = 3
FILTERS = {
    "all items": {"owner": None},
    "one owner's": {"owner": "ann"},
    "waiting": {"owner": None, "state": "waiting"},
    "in review": {"owner": None, "state": "failed"},
    "done": {"owner": None, "state": "done"},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    options = parser.parse_args()
    for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
        with opened() as app:
            fill(app, options.items)
            for what, filters in FILTERS.items():
                runs = [compare(app, filters) for _ in range(RUNS)]
                first, last = (median(times) for times in zip(*(run[:2] for run in runs), strict=True))
                first_p99, last_p99 = (median(times) for times in zip(*(run[2:] for run in runs), strict=True))
                ratios = sorted(run[3] / run[2] for run in runs)
                print(
                    f"{name:12} {what:14} first page {first:6.2f} ms (p99 {first_p99:6.2f})   "
                    f"last pages {last:6.2f} ms (p99 {last_p99:6.2f})   "
                    f"p99 ratio {median(ratios):5.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})",
                    flush=True,
                )


def compare(app: Duly, filters: dict[str, str | None]) -> tuple[float, float, float, float]:
    """The medians of the first and of the last pages, then their p99."""
    first, last = [], []
    for _ in range(LOOKS):
        first.append(look(app, None, filters))
        last.append(look(app, random.randint(PAGE * 2, PAGE * 200), filters))
    return median(first), median(last), p99(first), p99(last)


def look(app: Duly, before: int | None, filters: dict[str, str | None]) -> float:
    given = dict(filters)
    begun = time.perf_counter()
    app.read.owned(given.pop("owner"), before=before, most=PAGE, **given)
    return (time.perf_counter() - begun) * 1000


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99) - 1]


def fill(app: Duly, items: int) -> None:
    """A tenth are one person's; of all, half are done and a twentieth in review, from the oldest to the newest."""
    app.internals.store.load(
        NewItem("bench", "bench", b'{"n":1}', owner="ann" if n % 10 == 0 else f"user-{n % 97}") for n in range(items)
    )
    with app.internals.store.transaction() as connection:
        done = "update duly_item set state = 'done', outcome = 'done', finished_at = created_at where id % 2 = 0"
        failed = "update duly_item set state = 'failed', outcome = 'failed', finished_at = created_at where id % 20 = 1"
        connection.execute(done)
        connection.execute(failed)
    if app.internals.store.url.startswith("postgres"):
        with app.internals.store.transaction() as connection:
            connection.execute("analyze duly_item")


@contextmanager
def _postgres() -> Iterator[Duly]:
    with cluster() as server:
        app = Duly(fresh_database(server, "pages"))
        migrate(app.internals.store)
        yield app
        app.close()


@contextmanager
def _sqlite() -> Iterator[Duly]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
        app = Duly(f"sqlite:///{folder}/pages.db")
        yield app
        app.close()


if __name__ == "__main__":
    main()
