"""Lists over all jobs: pages of 100 rows among those of thousands of open jobs, with and without filters."""

from __future__ import annotations

import json
import random
import time
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

import psycopg

from duly import Duly
from duly.core.model import Status
from duly.verbs import LOCAL

ROWS = 200  # of each job
OWNERS = 50
PAGE = 100
LOOKS = 200
DAY = 86_400_000_000  # microseconds
AT_WORK = 2_000  # rows, under leases of 100
LIVE: tuple[Status, ...] = ("PENDING", "PROCESSING")
LISTS: dict[str, tuple[tuple[Status, ...], dict[str, Any]]] = {
    "pending": (LIVE, {}),
    "in error": (("ERROR",), {}),
    "one owner's": (LIVE, {"owner": "owner-7"}),
    "common type": (LIVE, {"job_type": "csv"}),
    "rare type": (LIVE, {"job_type": "image"}),
}
# Of ten rows, seven wait and one each is done, in error and not found.
STATES = ["PENDING"] * 7 + ["DONE", "ERROR", "NOT_FOUND"]
ENDS = ["waiting"] * 7 + ["done", "failed", "done"]
NAMES = (
    "task, queue, owner, args, planned_at, due_at, job_id, row_no, status, state, changed_at, created_at, execution_key"
)


def pages(name: str, app: Duly, jobs: int) -> None:
    app.migrate()
    begun = time.monotonic()
    at = _filled(app, jobs)
    print(f"{name:12} {jobs * ROWS:,} rows in {jobs:,} jobs, made in {time.monotonic() - begun:.0f} s", flush=True)
    for what, (statuses, filter) in LISTS.items():
        told = []
        for part in (0.0, 0.5, 1.0):
            times = []
            for _ in range(LOOKS):
                place = at + timedelta(microseconds=DAY * max(part - random.random() / 100, 0.0))
                looked = time.perf_counter()
                app.internals.verbs.job_rows.pending(LOCAL, statuses, (place, 0), PAGE, **filter)
                times.append((time.perf_counter() - looked) * 1000)
            told.append(f"{median(times):6.2f} ms (p99 {quantiles(times, n=100)[98]:6.2f})")
        print(f"{name:12} all jobs, {what:12} first {told[0]}   middle {told[1]}   last {told[2]}", flush=True)
    app.close()


def _filled(app: Duly, jobs: int) -> Any:
    """So many open jobs, whose rows changed over one day, those of each job all over it; some rows are worked on."""
    at = app.clock.now()
    begun = int(at.timestamp() * 1_000_000)
    count, step = jobs * ROWS, DAY // (jobs * ROWS)
    if app.internals.store.url.startswith("postgres"):
        with psycopg.connect(app.internals.store.url) as connection:
            _on_postgres(connection, jobs, count, at)
        return at
    with app.internals.store.transaction() as connection:
        connection.executemany(
            "insert into duly_job (task, queue, owner, job_type, total, done, failed, not_found, is_sealed, created_at,"
            " changed_at) values ('look_up', 'look_up', ?, ?, ?, ?, ?, ?, 1, ?, ?)",
            ((f"owner-{n % OWNERS}", _type(n), ROWS, *[ROWS // 10] * 3, begun, begun) for n in range(1, jobs + 1)),
        )
        connection.executemany(
            f"insert into duly_item ({NAMES}) values ('look_up', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    f"look_up/job-{1 + n % jobs}", f"owner-{(1 + n % jobs) % OWNERS}",
                    json.dumps({"title": f"A cup of size {n}", "sku": f"sku-{n}"}), begun, begun, 1 + n % jobs,
                    1 + n // jobs, STATES[n // jobs % 10], ENDS[n // jobs % 10], begun + step * n, begun, str(n),
                )
                for n in range(count)
            ),
        )  # fmt: skip
        for fence in range(1, AT_WORK // 100 + 1):
            ids = [fence * 100 + n for n in range(100)]
            connection.execute(
                "insert into duly_lease (fence, worker, lease_until, items) values (?, 'w', ?, ?)",
                (fence, begun + DAY, json.dumps(ids)),
            )
            connection.execute(
                "update duly_item set state = 'running', status = 'PROCESSING', fence = ? where id in"
                " (select value from json_each(?)) and state = 'waiting'",
                (fence, json.dumps(ids)),
            )
        connection.execute("analyze")
    return at


def _type(number: int) -> str:
    return "image" if number % 500 == 0 else "csv"


def _on_postgres(connection: psycopg.Connection[Any], jobs: int, count: int, at: Any) -> None:
    connection.execute(
        "insert into duly_job (task, queue, owner, job_type, total, done, failed, not_found, is_sealed, created_at,"
        " changed_at) select 'look_up', 'look_up', 'owner-' || n %% %(owners)s, case when n %% 500 = 0 then 'image'"
        " else 'csv' end, %(rows)s, %(tenth)s, %(tenth)s, %(tenth)s, true, %(at)s, %(at)s"
        " from generate_series(1, %(jobs)s) as n",
        {"owners": OWNERS, "rows": ROWS, "tenth": ROWS // 10, "at": at, "jobs": jobs},
    )
    connection.execute(
        f"insert into duly_item ({NAMES})"
        " select 'look_up', 'look_up/job-' || 1 + n %% %(jobs)s, 'owner-' || (1 + n %% %(jobs)s) %% %(owners)s,"
        " json_build_object('title', 'A cup of size ' || n, 'sku', 'sku-' || n), %(at)s, %(at)s, 1 + n %% %(jobs)s,"
        " 1 + n / %(jobs)s, (%(states)s::text[])[1 + n / %(jobs)s %% 10], (%(ends)s::text[])[1 + n / %(jobs)s %% 10],"
        " %(at)s + n * (interval '1 day' / %(count)s), %(at)s, gen_random_uuid()"
        " from generate_series(0, %(count)s - 1) as n",
        {"jobs": jobs, "owners": OWNERS, "at": at, "states": STATES, "ends": ENDS, "count": count},
    )
    connection.execute(
        "with held as (insert into duly_lease (worker, lease_until, items)"
        " select 'w', %s, array(select generate_series(n * 100, n * 100 + 99)) from generate_series(1, %s) as n"
        " returning fence, items)"
        " update duly_item i set state = 'running', status = 'PROCESSING', fence = h.fence"
        " from held h where i.id = any(h.items) and i.state = 'waiting'",
        (at + timedelta(days=1), AT_WORK // 100),
    )
    connection.commit()
    connection.autocommit = True
    connection.execute("vacuum analyze duly_item, duly_job, duly_lease")
