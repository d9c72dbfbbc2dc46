"""`duly worker` and `duly up` as real processes: they work, answer probes, and end well."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from duly import Duly
from duly.facade.loading import load_app
from tests.cli.conftest import Process, eventually

Start = Callable[..., Process]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def embedded(sqlite_url: str, app_file: str, monkeypatch: pytest.MonkeyPatch) -> Duly:
    """The same on SQLite only, where the database makes no difference."""
    monkeypatch.setenv("DULY_DATABASE_URL", sqlite_url)
    return load_app(app_file)


@pytest.fixture
def app(database_url: str, app_file: str, monkeypatch: pytest.MonkeyPatch) -> Duly:
    """The app as the test itself sees it, on the same database as the processes."""
    monkeypatch.setenv("DULY_DATABASE_URL", database_url)
    return load_app(app_file)


def test_a_worker_does_what_is_due_and_ends_with_a_signal(start: Start, app: Duly, app_file: str) -> None:
    item = app.put("remind", phone="+385").id
    worker = start("worker", app_file, "--log-format", "json")
    eventually(lambda: app.read.item(item).state == "done", worker)
    assert app.read.item(item).result == "called +385"
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0
    lines = [json.loads(line) for line in worker.err.read_text().splitlines()]
    assert lines[-1]["message"].endswith("stopped")
    app.close()


def test_ctrl_c_is_a_graceful_end_too(start: Start, app_file: str, sqlite_url: str) -> None:
    worker = start("worker", app_file, "--database-url", sqlite_url)
    worker.waits_for("started")
    worker.signal(signal.SIGINT)
    assert worker.ends() == 0
    assert not worker.says("Traceback")


def test_a_stopping_worker_lets_its_handler_finish(start: Start, app: Duly, app_file: str, tmp_path: Path) -> None:
    item = app.put("linger", seconds=1.5).id
    worker = start("worker", app_file)
    eventually((tmp_path / "lingering").exists, worker)
    worker.signal()
    assert worker.ends() == 0
    assert (tmp_path / "lingered").exists()
    assert app.read.item(item).state == "done"
    app.close()


def test_a_second_signal_gives_the_attempt_back_at_once(start: Start, app: Duly, app_file: str, tmp_path: Path) -> None:
    item = app.put("linger", seconds=600).id
    worker = start("worker", app_file)
    eventually((tmp_path / "lingering").exists, worker)
    worker.signal()
    worker.waits_for("waiting up to 30 s")
    worker.signal()
    assert worker.ends() == 0
    row = app.read.item(item)
    assert (row.state, row.outcome, row.attempt) == ("waiting", "released", 0)
    app.close()


def test_a_worker_may_serve_some_of_the_tasks_only(start: Start, embedded: Duly, app_file: str) -> None:
    left, done = embedded.put("linger", seconds=0).id, embedded.put("remind", phone="x").id
    worker = start("worker", app_file, "--tasks", "remind, where")
    eventually(lambda: embedded.read.item(done).state == "done", worker)
    assert embedded.read.item(left).state == "waiting"
    embedded.close()


def test_the_command_line_has_the_last_word_in_child_processes_too(
    start: Start, tmp_path: Path, app_file: str, sqlite_url: str
) -> None:
    path = Path(app_file.rpartition(":")[0])
    path.write_text(path.read_text().replace("app = Duly()", f"app = Duly('sqlite:///{tmp_path}/other.db')"))
    app = Duly(sqlite_url)
    placed = app.internals.place(load_app(app_file).tasks["where"].new())
    worker = start("worker", app_file, "--database-url", sqlite_url)
    eventually(lambda: app.read.item(placed.id).state == "done", worker)
    assert app.read.item(placed.id).result == sqlite_url
    app.close()


def test_a_worker_answers_probes_when_it_is_given_a_port(start: Start, embedded: Duly, app_file: str) -> None:
    port = free_port()
    item = embedded.put("remind", phone="busy").id
    worker = start("worker", app_file, "--http-port", str(port))
    worker.waits_for(f"metrics and probes at http://127.0.0.1:{port}")
    worker.waits_for(" started")  # all parts of it, and not only those that run the item
    eventually(lambda: embedded.read.item(item).failures == 1, worker)
    assert get(port, "/healthz") == '{"status": "ok"}\n'
    assert get(port, "/readyz") == '{"status": "ok"}\n'
    assert 'duly_retries_total{task="remind"} 1.0' in get(port, "/metrics")
    worker.signal()
    assert worker.ends() == 0
    embedded.close()


def test_a_worker_that_was_given_no_port_opens_none(start: Start, app_file: str, sqlite_url: str) -> None:
    worker = start("worker", app_file, DULY_DATABASE_URL=sqlite_url)
    worker.waits_for("started")
    assert not worker.says("metrics and probes")


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["worker", "no.such.module:app"], 2, "cannot import no.such.module"),
        (["worker", "work.py:nothing"], 2, "is not a Duly app"),
        (["worker", "work.py", "--tasks", "rmind"], 2, "there is no task 'rmind' here; known: linger, remind, where"),
        (["worker", "work.py", "--concurrency", "0"], 2, "concurrency: must be at least 1"),
        (["worker", "work.py", "--log-level", "loud"], 2, "log_level: 'loud' is none of"),
        (["worker"], 2, "Missing argument 'MODULE:APP'"),
        (["up", "no.such.module:app"], 2, "cannot import no.such.module"),
    ],
)
def test_what_was_asked_wrongly_gets_one_clear_line(
    start: Start, app_file: str, words: list[str], code: int, problem: str
) -> None:
    process = start(*words)
    assert process.ends() == code
    assert problem in process.err.read_text()
    assert not process.says("Traceback")


def test_a_worker_on_an_unmigrated_database_says_which_command_helps(
    start: Start, app_file: str, blank_postgres_url: str
) -> None:
    worker = start("worker", app_file, "--database-url", blank_postgres_url)
    assert worker.ends() == 1
    assert "run `duly migrate`" in worker.err.read_text()
    assert not worker.says("Traceback")


def test_up_migrates_works_and_answers_probes(start: Start, app_file: str, blank_url: str) -> None:
    port = free_port()
    up = start("up", app_file, "--http-port", str(port), "--database-url", blank_url)
    up.waits_for("started")
    assert get(port, "/healthz")
    assert get(port, "/readyz")
    app = Duly(blank_url)
    app.task(name="remind")(_remind)
    item = app.put("remind", phone="x").id
    eventually(lambda: app.read.item(item).state == "done", up)
    up.signal()
    assert up.ends() == 0
    app.close()


def _remind(phone: str) -> None: ...


def test_up_without_an_app_serves_the_built_in_ones(start: Start, sqlite_url: str) -> None:
    up = start("up", "--http-port", "0", "--database-url", sqlite_url, "--for", "0.1", "--log-format", "json")
    assert up.ends() == 0
    lines = [json.loads(line) for line in up.err.read_text().splitlines()]
    assert any("remind" in line.get("tasks", ()) for line in lines)


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())
