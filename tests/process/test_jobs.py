"""Workers are killed while they read a file and work its rows off: each row is there once, the counters are right."""

from __future__ import annotations

import random
from pathlib import Path

from duly.intake.intake import kept_by
from duly.verbs import LOCAL
from tests.process.files import app as files
from tests.process.fleet import fleet, until
from tests.support import query, scaled

# Small batches, so that there is time to be killed in.
QUICK = {"lease_seconds": 3, "beat_seconds": 0.5, "sweep_seconds": 0.5, "ingest_max_rows": 64}
ROWS = scaled(3_000, 6_000)
SPEC = "tests.process.files:app"


def test_kills_while_a_file_is_read_and_worked_off_double_and_lose_no_row(database_url: str, tmp_path: Path) -> None:
    choose = random.Random(7)
    where = str(tmp_path / "files")
    with fleet(database_url, tmp_path, **QUICK, files_url=where) as ours:
        app = ours.app
        object.__setattr__(app.internals.intake.settings, "files_url", where)
        app.internals.job_types.update(files.internals.job_types)
        with app.internals.intake.receive() as writer:
            writer.write(b"n\n" + b"".join(b"%d\n" % n for n in range(ROWS)))
        job = app.internals.intake.create(LOCAL, kept_by(writer), "rows.csv", job_type="csv")

        def reached(rows: int, ended: int) -> bool:
            now = app.internals.verbs.jobs.get(LOCAL, job.id)
            return now.total >= rows and now.ended >= ended

        ours.start(2, spec=SPEC)
        for rows, ended in ((500, 0), (1_500, 0), (ROWS, 2_000)):
            until(lambda rows=rows, ended=ended: reached(rows, ended), 90, ours.logs)
            ours.kill_one(choose)
            ours.start(1, spec=SPEC)
        until(lambda: app.internals.verbs.jobs.get(LOCAL, job.id).is_over, 90, ours.logs)
        ours.stop()
        over = app.internals.verbs.jobs.get(LOCAL, job.id)
        assert (over.total, over.done) == (ROWS, ROWS)
        assert [row.result for row in app.internals.verbs.job_rows.each(LOCAL, job.id)] == [
            {"n": str(n)} for n in range(ROWS)
        ]
        counted = f"select count(*), count(distinct row_no) from duly_item where job_id = {job.id}"
        assert query(app.internals.store, counted) == [(ROWS, ROWS)]
