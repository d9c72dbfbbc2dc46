"""Servers and workers are killed at random while a file comes in, is worked off and goes out again: 20 times."""

from __future__ import annotations

import csv
import io
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import python_calamine

from debian import ensure_debian
from duly.client import Client, ServiceError
from duly.verbs import LOCAL
from tests.process.files import app as files
from tests.process.fleet import ROOT, Fleet, fleet, until
from tests.process.test_service import Server, server
from tests.support import query

T = TypeVar("T")

QUICK = {"lease_seconds": 3, "beat_seconds": 0.5, "sweep_seconds": 0.5, "ingest_max_rows": 512}
SPEC = "tests.process.files:app"
ROWS = 50_000
KILLS = 20


class Killer(threading.Thread):
    """Kills the server or a worker every second or so, and starts another."""

    def __init__(self, ours: Fleet, service: Server, seed: int) -> None:
        super().__init__(name="killer", daemon=True)
        self._ours, self._service, self._choose = ours, service, random.Random(seed)
        self.killed: list[str] = []

    def run(self) -> None:
        for _ in range(KILLS):
            time.sleep(self._choose.uniform(0.3, 2.5))
            if self._choose.random() < 0.5:
                self._service.end()
                self._service.start()
                self.killed.append("server")
            else:
                self._ours.kill_one(self._choose)
                self._ours.start(1, spec=SPEC)
                self.killed.append("worker")


def insist(act: Callable[[], T]) -> T:
    """Repeat it while the server is away or breaks off."""
    give_up = time.monotonic() + 300
    while True:
        try:
            return act()
        except (ServiceError, OSError) as error:
            if time.monotonic() > give_up or getattr(error, "status", 503) not in (None, 0, 500, 503, 504):
                raise
            time.sleep(0.2)


def exported(client: Client, job: int, format: str) -> bytes:
    def once() -> bytes:
        out = io.BytesIO()
        client.export_job(job, out, format)
        return out.getvalue()

    return insist(once)


def test_a_file_survives_kills_of_servers_and_workers(database_url: str, tmp_path: Path) -> None:
    settings = {**QUICK, "files_url": str(tmp_path / "files")}
    table = b"n\n" + b"".join(b"%d\n" % n for n in range(ROWS))
    with (
        fleet(database_url, tmp_path, **settings) as ours,
        server(database_url, tmp_path, SPEC, **settings) as service,
        Client(service.url) as client,
    ):
        ours.start(2, spec=SPEC)
        killer = Killer(ours, service, seed=11)
        killer.start()
        job = insist(lambda: client.create_job(io.BytesIO(table), "rows.csv", idempotency_key="april", job_type="csv"))
        until(lambda: insist(lambda: client.job(job)).queue_state == "DONE", 300, ours.logs)
        exports = [exported(client, job, "csv")]
        while killer.is_alive():
            exports.append(exported(client, job, "csv"))
        print(f"\nkilled: {killer.killed}; exports meanwhile: {len(exports)}")
        assert len(killer.killed) == KILLS
        assert len({*exports}) == 1, "every export that was whole said the same"
        book = exported(client, job, "xlsx")
        app = ours.app
        over = app.internals.verbs.jobs.get(LOCAL, job)
        assert (over.total, over.done, over.is_over) == (ROWS, ROWS, True)
        counted = f"select count(*), count(distinct row_no) from duly_item where job_id = {job}"
        assert query(app.internals.store, counted) == [(ROWS, ROWS)]
        assert query(app.internals.store, "select count(*) from duly_job") == [(1,)]
        grid = [[str(row.row_no), row.result["n"]] for row in app.internals.verbs.job_rows.each(LOCAL, job)]
    assert [row[1] for row in grid] == [str(n) for n in range(ROWS)]
    headers, *cells = csv.reader(io.StringIO(exports[0].decode("utf-8-sig")))
    places = [headers.index("row"), headers.index("n (result)")]
    assert [[row[place] for place in places] for row in cells] == grid
    headers, *cells = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(book)).get_sheet_by_index(0).to_python()
    assert [[plain(row[place]) for place in places] for row in cells] == grid
    assert by_libreoffice(book, tmp_path, places) == grid


def plain(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) else str(cell)


def by_libreoffice(book: bytes, folder: Path, places: list[int]) -> list[list[str]]:
    soffice = ensure_debian("libreoffice-calc-nogui", "/usr/bin/soffice")
    path = folder / "job.xlsx"
    path.write_bytes(book)
    home = f"-env:UserInstallation={(folder / 'home').as_uri()}"
    command = [soffice, home, "--headless", "--convert-to", "csv", "--outdir", folder / "out", path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    _, *cells = csv.reader(io.StringIO((folder / "out" / "job.csv").read_text(encoding="utf-8-sig")))
    return [[row[place] for place in places] for row in cells]


def test_what_comes_after_a_job_comes_once_whoever_is_killed(database_url: str, tmp_path: Path) -> None:
    choose = random.Random(5)
    with fleet(database_url, tmp_path, **QUICK) as ours:
        app = ours.app
        app.internals.job_types.update(files.internals.job_types)
        app.migrate()
        ours.start(2, spec=SPEC)
        command = [sys.executable, "-m", "tests.process.files", "may", str(ROWS)]
        environment = {**os.environ, "DULY_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)}
        kills = 0
        while kills < KILLS // 2:  # whoever fills it, and a worker, in turn
            filler = subprocess.Popen(command, env=environment, cwd=ROOT)
            try:
                ended = filler.wait(choose.uniform(0.5, 2.0))
                assert ended == 0
            except subprocess.TimeoutExpired:
                filler.kill()
                filler.wait()
            ours.kill_one(choose)
            ours.start(1, spec=SPEC)
            kills += 1
        subprocess.run(command, env=environment, cwd=ROOT, check=True, timeout=120)
        (job,) = app.internals.verbs.jobs.page(LOCAL)
        for _ in range(KILLS // 2):
            time.sleep(choose.uniform(0.2, 1.5))
            ours.kill_one(choose)
            ours.start(1, spec=SPEC)
        until(lambda: app.internals.verbs.jobs.get(LOCAL, job.id).is_over, 300, ours.logs)
        until(lambda: app.read.page(task="report", state="done", most=2), 60, ours.logs)
        ours.stop()
        over = app.internals.verbs.jobs.get(LOCAL, job.id)
        assert (over.total, over.done) == (ROWS, ROWS)
        (report,) = app.read.page(task="report", most=2)
        assert report.result == {
            "id": job.id, "total": ROWS, "done": ROWS, "not_found": 0, "failed": 0, "skipped": 0,
        }  # fmt: skip
        counted = f"select count(*), count(distinct row_no) from duly_item where job_id = {job.id}"
        assert query(app.internals.store, counted) == [(ROWS, ROWS)]
