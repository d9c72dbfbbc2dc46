"""Jobs: drained beside plain items, read from files beside a bare COPY, and their pages among millions of rows.

`python -m bench.jobs [drain|ingest|pages]`; part of `make bench`.

drain     100,000 items without a job, then as many rows of a job with `then`, in turn: items a second, and the ratio.
ingest    a CSV file of 1,000,000 rows becomes a job, in a process of its own: rows a second, its memory beside that of
          10,000 rows, and a bare COPY of the same rows into the same table, with all its indexes.
pages     a job of 5,000,000 rows: the first, middle and last page of 100 rows of each list; then 5,000 jobs of 200 rows
          each: the same of lists over all jobs.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench import over_jobs
from bench.cluster import cluster, fresh_database
from duly import Duly
from duly.core.model import Status
from duly.intake.intake import PORTION, kept_by
from duly.verbs import LOCAL

RUNS = 5
PAGE = 100
LOOKS = 200
MIDDLE = 0.5
LISTS: dict[str, tuple[Status, ...]] = {
    "pending": ("PENDING", "PROCESSING"), "errors": ("ERROR",), "not found": ("NOT_FOUND",), "done": ("DONE",),
    "all": ("PENDING", "PROCESSING", "DONE", "ERROR", "NOT_FOUND", "SKIPPED"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("what", nargs="*", default=["drain", "ingest", "pages"])
    parser.add_argument("--items", type=int, default=100_000, help="of a drain")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a file")
    parser.add_argument("--many", type=int, default=5_000_000, help="of the job whose pages are read")
    parser.add_argument("--jobs", type=int, default=5_000, help="over which pending rows are listed, of 200 rows each")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--ingest", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("duly").setLevel(logging.ERROR)
    if options.ingest:
        print(json.dumps(ingest(*options.ingest)))
        return
    if "drain" in options.what:
        for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
            drains(name, opened, options.items, options.runs)
    if "ingest" in options.what:
        ingests(options.rows)
    if "pages" in options.what:
        pages(options.many)
        for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
            with opened() as url:
                over_jobs.pages(name, an_app(url), options.jobs)


def an_app(url: str, files: str = "") -> Duly:
    app = Duly(url, files_url=files or tempfile.mkdtemp(prefix="duly-bench-files-"))

    @app.task
    async def look_up(title: str = "", brand: str = "", sku: str = "") -> None: ...

    @app.task
    async def report(job: dict[str, int]) -> None: ...

    app.job_type("csv", look_up)
    return app


# -- drain


def drains(name: str, opened: Callable[[], Any], items: int, runs: int) -> None:
    rates: dict[str, list[float]] = {"plain": [], "job": []}
    for _ in range(runs):
        for what, found in rates.items():
            with opened() as url:
                found.append(items / drain(url, what, items))
    ratios = [job / plain for job, plain in zip(rates["job"], rates["plain"], strict=True)]
    for what, found in rates.items():
        print(
            f"{name:12} drain, {what:8} {median(found):10,.0f}/s ({min(found):,.0f} to {max(found):,.0f})", flush=True
        )
    print(f"{name:12} job beside plain {median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def drain(url: str, what: str, items: int) -> float:
    app = an_app(url)
    rows = ({"sku": f"sku-{n}"} for n in range(items))
    job = None
    if what == "plain":
        app.tasks["look_up"].put_many(rows)
    else:
        job = app.job("look_up", rows, then=app.tasks["report"])
    worker = app.worker()
    begun = time.monotonic()
    worker.start()
    if job is not None:
        job.wait()
    else:
        while app.read.page(state="waiting", most=1) or app.read.page(state="running", most=1):
            time.sleep(0.02)
    took = time.monotonic() - begun
    worker.stop()
    worker.drain()
    app.close()
    return took


# -- ingest


def ingests(rows: int) -> None:
    with cluster() as server, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        memory = {}
        for count in (10_000, rows):
            url = fresh_database(server, f"ingest_{count}")
            file = Path(folder) / f"{count}.csv"
            with file.open("w") as out:
                out.write("title,brand,sku\n")
                out.writelines(f"A cup of size {n},Brand {n % 997},sku-{n:07}\n" for n in range(count))
            child = [sys.executable, "-m", "bench.jobs", "--ingest", url, str(file)]
            told = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
            memory[count] = told["memory"]
            print(
                f"postgresql   ingest of {count:9,} rows {count / told['seconds']:10,.0f}/s, {told['memory']:.0f} MB, "
                f"first 10,000 there after {told['first']:.1f} s", flush=True,
            )  # fmt: skip
        print(f"postgresql   memory of {rows:,} rows beside that of 10,000 {memory[rows] / memory[10_000]:.2f}")
        floors = [copied(url) for _ in range(3)]
        floor = median(floors)
        print(f"postgresql   bare COPY of the same rows {rows / floor:10,.0f}/s")
        print(f"postgresql   ingest beside COPY {floor / told['seconds']:.2f}", flush=True)


def ingest(url: str, file: str) -> dict[str, float]:
    """Make a job of the rows of this file and have them read, but not worked off."""
    app = an_app(url, f"{file}.kept")
    app.migrate()
    begun = time.monotonic()
    with Path(file).open("rb") as source, app.internals.intake.receive() as writer:
        while portion := source.read(PORTION):
            writer.write(portion)
    job = app.internals.intake.create(LOCAL, kept_by(writer), "rows.csv", job_type="csv")
    app.internals.verbs.jobs.pause(LOCAL, job.id)
    worker = app.worker()
    worker.start()
    first = 0.0
    while not (seen := app.internals.verbs.jobs.get(LOCAL, job.id)).is_sealed:
        if not first and seen.total >= 10_000:
            first = time.monotonic() - begun
        time.sleep(0.02)
    seconds = time.monotonic() - begun
    worker.stop()
    worker.drain()
    app.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "first": first or seconds, "memory": memory}


def copied(url: str) -> float:
    """Seconds that COPY takes to bring rows that are there in once more, as rows of another job."""
    names = "task, queue, args, planned_at, due_at, rank, job_id, row_no, status, changed_at"
    with psycopg.connect(url) as connection, tempfile.TemporaryFile(dir="/var/tmp") as kept:
        chosen = names.replace("job_id", "job_id + 1000")
        with connection.cursor().copy(f"copy (select {chosen} from duly_item where job_id = 1) to stdout") as out:
            for block in out:
                kept.write(block)
        kept.seek(0)
        begun = time.monotonic()
        with connection.cursor().copy(f"copy duly_item ({names}) from stdin") as into:
            while block := kept.read(1 << 20):
                into.write(block)
        connection.commit()
        took = time.monotonic() - begun
        connection.execute("delete from duly_item where job_id > 1")
        connection.commit()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum duly_item")
    return took


# -- pages


def pages(rows: int) -> None:
    for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
        with opened() as url:
            app = an_app(url)
            begun = time.monotonic()
            job_id = filled(app, rows)
            print(f"{name:12} {rows:,} rows in one job, made in {time.monotonic() - begun:.0f} s", flush=True)
            for what, statuses in LISTS.items():
                tell(name, what, [by_time(app, job_id, statuses, part) for part in (0.0, MIDDLE, 1.0)])
            tell(name, "by number", [by_number(app, job_id, rows, part) for part in (0.0, MIDDLE, 1.0)])
            app.close()


def tell(name: str, what: str, looks: list[list[float]]) -> None:
    said = [f"{median(times):6.2f} ms (p99 {sorted(times)[int(LOOKS * 0.99) - 1]:6.2f})" for times in looks]
    print(f"{name:12} {what:12} first {said[0]}   middle {said[1]}   last {said[2]}", flush=True)


def by_time(app: Duly, job_id: int, statuses: tuple[Status, ...], part: float) -> list[float]:
    rows, job = app.internals.verbs.job_rows, app.internals.verbs.jobs.get(LOCAL, job_id)
    times = []
    for _ in range(LOOKS):
        at = job.created_at + timedelta(seconds=86_400 * max(part - random.random() / 1_000, 0.0))
        begun = time.perf_counter()
        rows.page(LOCAL, job_id, statuses, (at, 0), PAGE)
        times.append((time.perf_counter() - begun) * 1000)
    return times


def by_number(app: Duly, job_id: int, count: int, part: float) -> list[float]:
    times = []
    for _ in range(LOOKS):
        after = int((count - PAGE) * max(part - random.random() / 1_000, 0.0))
        begun = time.perf_counter()
        found = app.internals.verbs.job_rows.by_number(LOCAL, job_id, after, PAGE)
        times.append((time.perf_counter() - begun) * 1000)
        assert len(found) == PAGE
    return times


def filled(app: Duly, rows: int) -> int:
    """A job of so many rows, which changed over one day: of ten, six done, two pending, one in error, one not found."""
    app.migrate()
    job = app.internals.verbs.jobs.open(LOCAL, app.tasks["look_up"])
    statuses = ["DONE"] * 6 + ["PENDING"] * 2 + ["ERROR", "NOT_FOUND"]
    states = {"DONE": "done", "PENDING": "waiting", "ERROR": "failed", "NOT_FOUND": "done"}
    if app.internals.store.url.startswith("postgres"):
        with psycopg.connect(app.internals.store.url) as connection:
            cases = " ".join(f"when {place} then '{status}'" for place, status in enumerate(statuses))
            ends = " ".join(f"when {place} then '{states[status]}'" for place, status in enumerate(statuses))
            connection.execute(
                "insert into duly_item"
                " (task, queue, args, planned_at, due_at, job_id, row_no, status, changed_at, state)"
                f" select 'look_up', %s, json_build_object('title', 'A cup of size ' || n, 'sku', 'sku-' || n), now(),"
                f" now(), %s, n, case n %% 10 {cases} end, %s::timestamptz + n * %s, case n %% 10 {ends} end"
                " from generate_series(1, %s) as n",
                (job.rows_queue, job.id, job.created_at, timedelta(days=1) / rows, rows),
            )
            connection.execute("update duly_job set total = %s, is_sealed = true", (rows,))
            connection.commit()
            connection.autocommit = True
            connection.execute("vacuum analyze duly_item")
        return job.id
    step = 86_400_000_000 // rows
    begun = int(job.created_at.timestamp() * 1_000_000)
    with app.internals.store.transaction() as connection:
        connection.executemany(
            "insert into duly_item (task, queue, args, planned_at, due_at, job_id, row_no, status, changed_at, state,"
            " created_at, execution_key) values ('look_up', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    job.rows_queue, json.dumps({"title": f"A cup of size {n}", "sku": f"sku-{n}"}), begun, begun,
                    job.id, n, statuses[n % 10], begun + n * step, states[statuses[n % 10]], begun, f"{n}",
                )
                for n in range(1, rows + 1)
            ),
        )  # fmt: skip
        connection.execute("update duly_job set total = ?, is_sealed = 1", (rows,))
        connection.execute("analyze")
    return job.id


@contextmanager
def _postgres() -> Iterator[str]:
    with cluster() as server:
        url = fresh_database(server, "jobs")
        Duly(url).migrate()
        yield url


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield f"sqlite:///{folder}/jobs.db"


if __name__ == "__main__":
    main()
