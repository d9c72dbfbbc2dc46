"""`duly jobs`: the same on the database and through a service."""

from __future__ import annotations

import csv
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from duly import Duly
from duly.facade.loading import load_app
from duly.web.server import Service
from tests.cli.conftest import call

APP = """
from duly import Duly, GiveUp
from duly.apps.enrichment.fields import PRODUCT

app = Duly()


@app.task
def look_up(title: str = "", brand: str = "", sku: str = "", price: str = "") -> dict[str, str]:
    if title == "broken":
        raise GiveUp("no")
    return {"found": title.upper()}


app.job_type("csv", look_up, PRODUCT)
"""
TABLE = "Name,Marke,price\ncup,Acme,1\nbroken,,2\npot,,many\ncup,Acme,1\n"

Run = Callable[..., Result]


@pytest.fixture
def app(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duly]:
    (tmp_path / "files.py").write_text(APP)
    (tmp_path / "products.csv").write_text(TABLE)
    with monkeypatch.context() as patched:
        patched.setenv("DULY_DATABASE_URL", database_url)
        app = load_app("files.py:app")
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def worker(app: Duly) -> Iterator[None]:
    one = app.worker()
    running = threading.Thread(target=one.run)
    running.start()
    yield
    one.stop()
    running.join()


@pytest.fixture(params=["here", "there"])
def run(request: pytest.FixtureRequest, app: Duly, database_url: str) -> Iterator[Run]:
    """Commands on the database itself, and through a service."""
    if request.param == "here":
        yield lambda *words: call(*words, DULY_DATABASE_URL=database_url, DULY_APP="files.py:app")
        return
    object.__setattr__(app.internals.verbs.context.job_settings, "pending_enabled", True)
    with Service(app, "127.0.0.1", 0) as service:
        yield lambda *words: call(*words, DULY_URL=service.url)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_export_to_a_place_that_cannot_be_written_says_so_and_a_missing_job_comes_first(run: Run, app: Duly) -> None:
    number = str(app.job(app.task_named(next(iter(app.tasks))), []).id)
    for command in ("export", "rejects"):
        missing = run("jobs", command, "999999", "/nonexistent/x.csv")
        assert (missing.exit_code, "there is no job 999999" in missing.output) == (1, True), missing.output
        refused = run("jobs", command, number, "/nonexistent/x.csv")
        assert refused.exit_code == 2
        assert "cannot write /nonexistent/x.csv: No such file or directory" in refused.output


def test_a_file_is_worked_off_while_one_waits(run: Run, worker: None, tmp_path: Path) -> None:
    ended = run("jobs", "create", "products.csv", "--wait")
    assert ended.exit_code == 0, ended.output
    assert "DONE, 4 rows, 2 done, 2 failed" in ended.stdout
    assert "1 rows are duplicates of earlier ones" in ended.stdout
    (job,) = told(run("jobs", "--json"))
    number = str(job["id"])
    assert told(run("jobs", "show", number, "--json")) == job
    rows = told(run("jobs", "items", number, "--json"))
    assert [row["status"] for row in rows] == ["DONE", "ERROR", "ERROR", "DONE"]
    assert [row["row_no"] for row in told(run("jobs", "items", number, "--status", "ERROR", "--json"))] in (
        [2, 3], [3, 2]
    )  # fmt: skip
    assert "price (column 'price')" in run("jobs", "items", number).stdout
    assert run("jobs", "export", number, "out.csv").stdout == "out.csv\n"
    table = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8-sig")))
    assert [row["found"] for row in table] == ["CUP", "", "", "CUP"]
    run("jobs", "rejects", number, "rejects.xlsx")
    assert (tmp_path / "rejects.xlsx").read_bytes().startswith(b"PK")
    assert not list(tmp_path.glob(".*.part"))
    assert run("jobs", "export", number, "out.txt").exit_code == 2
    assert "2 rows will be retried" in run("jobs", "reprocess", number).stdout
    assert "is being removed" in run("jobs", "remove", number).stdout
    assert run("jobs", "show", number).exit_code == 1


def test_pending_rows_are_narrowed_by_job_and_time(run: Run, app: Duly) -> None:
    first, second = (app.job("look_up", [{"sku": str(n)}]).id for n in range(2))
    assert [row["job_id"] for row in told(run("jobs", "pending", "--job", str(first), "--json"))] == [first]
    both = told(run("jobs", "pending", "--job", str(first), "--job", str(second), "--json"))
    assert {(row["job_id"], row["total"], row["ended"]) for row in both} == {(first, 1, 0), (second, 1, 0)}
    assert told(run("jobs", "pending", "--to", "2020-01-01T00:00Z", "--json")) == []
    assert len(told(run("jobs", "pending", "--from", "2020-01-01T00:00Z", "--json"))) == 2


def test_a_job_is_paused_resumed_and_cancelled(run: Run) -> None:
    job = told(run("jobs", "create", "products.csv", "--map", "title=Name", "--delimiter", ",", "--json"))
    number = str(job["id"])
    assert "PAUSED" in run("jobs", "pause", number).stdout
    assert "QUEUED" in run("jobs", "resume", number).stdout
    assert run("jobs", "cancel", number, "--reason", "no").exit_code == 0
    assert run("jobs", "cancel", number).exit_code == 1
    assert run("jobs", "pending").stdout == "no rows match\n"
    assert "from" in run("jobs", "pending", "--from", "yesterday").stderr
    assert number in run("jobs").stdout
    assert run("jobs", "--type", "image").stdout == "there are no jobs\n"


def test_an_installed_app_that_is_on_by_its_settings_need_not_be_said(
    app: Duly, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(**env: str) -> Result:
        monkeypatch.delitem(sys.modules, "duly.apps.builtin", raising=False)  # as in a process of its own
        return call("jobs", "create", "products.csv", "--json", DULY_DATABASE_URL=database_url, **env)

    said = create()
    assert (said.exit_code, "Use --app MODULE:APP" in said.stderr) == (2, True)
    made = told(create(DULY_ENRICHMENT_BASE_URL="http://127.0.0.1:9/nobody"))
    assert (made["job_type"], made["queue_state"]) == ("csv", "QUEUED")


def test_a_kickoff_works_rows_off_without_a_worker(run: Run, app: Duly) -> None:
    job = app.job("look_up", [{"title": "cup"}, {"title": "broken"}])
    told_so = run("jobs", "kickoff", str(job.id), "--seconds", "20")
    assert told_so.exit_code == 0, told_so.output
    assert "2 rows in" in told_so.stdout
    assert "1 DONE, 1 ERROR; 0 will be retried" in told_so.stdout
    assert told(run("jobs", "kickoff", str(job.id), "--json"))["processed"] == 0


def test_a_preview_tells_what_would_be_refused(run: Run) -> None:
    seen = run("jobs", "preview", "products.csv")
    assert "title is the column 'Name'" in seen.stdout
    assert "1 of the first 4 rows would be rejected" in seen.stdout
    assert told(run("jobs", "preview", "products.csv", "--json"))["kind"] == "csv"
    assert (
        "map: must be FIELD=COLUMN, got 'nonsense'"
        in run("jobs", "preview", "products.csv", "--map", "nonsense").stderr
    )


def test_a_file_that_cannot_be_read_is_an_error(run: Run, worker: None, tmp_path: Path) -> None:
    (tmp_path / "letter.csv").write_bytes(b"%PDF-1.7")
    ended = run("jobs", "create", "letter.csv", "--wait")
    assert (ended.exit_code, "is a PDF" in ended.stdout) == (1, True)


def test_a_job_is_compared_with_a_file(run: Run, worker: None, tmp_path: Path) -> None:
    (tmp_path / "sums.csv").write_text("title,price\n=1+1,1\n+cup,2\nbroken,\n")
    for name, changed in (("products.csv", "CUP"), ("sums.csv", "+CUP")):
        job = told(run("jobs", "create", name, "--wait", "--json"))
        number = str(job["id"])
        run("jobs", "export", number, "out.csv")
        assert run("jobs", "diff", number, "out.csv").stdout == "they are equal\n"
        run("jobs", "export", number, "out.xlsx")
        assert run("jobs", "diff", number, "out.xlsx").exit_code == 0
        text = (tmp_path / "out.csv").read_text(encoding="utf-8-sig")
        (tmp_path / "old.csv").write_text(text.replace(changed, "mug", 1) + "5,DONE,cup,Acme,1,CUP,1,\n")
        differing = run("jobs", "diff", number, "old.csv")
        assert differing.exit_code == 1
    assert run("jobs", "diff", "999999", "old.csv").exit_code == 1


def test_a_difference_says_where_it_is(run: Run, worker: None, tmp_path: Path) -> None:
    job = told(run("jobs", "create", "products.csv", "--wait", "--json"))
    run("jobs", "export", str(job["id"]), "out.csv")
    text = (tmp_path / "out.csv").read_text(encoding="utf-8-sig")
    (tmp_path / "old.csv").write_text(text.replace("CUP", "mug", 1) + "5,DONE,cup,Acme,1,CUP,1,\n")
    assert run("jobs", "diff", str(job["id"]), "old.csv").stdout.splitlines() == [
        "row 1, found: 'CUP' in the job, 'mug' in the file",
        "row 5: '' in the job, 'is there' in the file",
    ]


def test_files_that_were_dropped_become_jobs(run: Run, app: Duly, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "inbox").mkdir()
    for name, value in (("inbox", str(tmp_path / "inbox")), ("scan_settle_seconds", 0.0)):
        object.__setattr__(app.internals.verbs.context.job_settings, name, value)
        monkeypatch.setenv(f"DULY_{name.upper()}", str(value))
    (tmp_path / "inbox" / "a.csv").write_text(TABLE)
    (tmp_path / "inbox" / "b.csv").write_bytes(b"%PDF-1.7")
    (tmp_path / "inbox" / "link.csv").symlink_to(tmp_path / "products.csv")
    lines = run("jobs", "scan").stdout.splitlines()
    assert lines[0].startswith("file:a.csv: job ")
    assert "is a PDF" in lines[2]
    assert lines[-1] == "2 files found, 1 taken, 0 passed over, 2 rejected, 0 left for a worker"
    seen = told(run("jobs", "scan", "--again", "--json"))
    assert (seen["found"], seen["refusals"][0]["job_id"]) == (0, None)
    object.__setattr__(app.internals.verbs.context.job_settings, "owner_most_jobs", 1)
    monkeypatch.setenv("DULY_OWNER_MOST_JOBS", "1")
    (tmp_path / "inbox" / "c.csv").write_text("Name\ncup\n")
    assert "1 jobs are not finished" in run("jobs", "scan").stdout.splitlines()[-1]
