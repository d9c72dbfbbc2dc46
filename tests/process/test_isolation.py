"""What runs in a child process must be found there: tasks of our own, and apps of scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from duly import Duly
from duly.verbs import LOCAL
from duly.verbs.acts import TASK
from tests.process.fleet import ROOT, fleet, until
from tests.process.workload import app as workload

QUICK = {"lease_seconds": 3, "beat_seconds": 0.5, "sweep_seconds": 0.5}

APP = """
from duly import Duly

app = Duly()

@app.task(cpu=True)
def square(n: int) -> int:
    return n * n
"""
GUARDED = 'if __name__ == "__main__":\n    from squares import app\n    app.run()\n'
INSIDE = 'if __name__ == "__main__":\n' + indent(f"{APP}\napp.run()\n", "    ")
PLAIN = f'{APP}\nif __name__ == "__main__":\n    app.run()\n'


def test_an_act_goes_on_after_its_worker_was_killed(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        far = [workload.tasks["mark"].after(86_400).new(n=n) for n in range(20_000)]
        ours.app.internals.store.load(iter(far))
        act = ours.app.internals.verbs.acts.order(LOCAL, "cancel", {"task": "mark"}).id
        ours.start()
        until(lambda: ours.app.internals.verbs.acts.get(LOCAL, act).seen, 60, ours.logs)
        (worker,) = ours.workers
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        ours.workers.clear()
        assert ours.app.internals.verbs.acts.get(LOCAL, act).state == "running", (
            "it was done before the kill: make it longer"
        )
        ours.start()
        until(lambda: ours.app.internals.verbs.acts.get(LOCAL, act).state == "done", 90, lambda: ours.logs()[-3000:])
        assert ours.states()["cancelled"] == 20_000
        until(lambda: ours.app.read.page(task=TASK)[0].state == "done", 30, ours.logs)
        assert ours.stop() == [0]


def test_an_act_under_suspicion_is_done_by_a_child(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, **QUICK) as ours:
        ours.app.internals.store.put([workload.tasks["mark"].after(86_400).new(n=1)])
        act = ours.app.internals.verbs.acts.order(LOCAL, "cancel", {"task": "mark"}).id
        with ours.app.internals.store.transaction() as connection:
            connection.execute("update duly_item set crashes = 1, attempt = 1 where task = 'duly.acts'")
        ours.start()
        until(lambda: ours.app.internals.verbs.acts.get(LOCAL, act).state == "done", 60, lambda: ours.logs()[-3000:])
        until(lambda: ours.app.read.page(task=TASK)[0].state == "done", 30, ours.logs)
        assert ours.stop() == [0]


@pytest.mark.parametrize(
    ("script", "arguments"), [(GUARDED, ["main.py"]), (PLAIN, ["main.py"]), (PLAIN, ["-m", "main"])]
)
def test_cpu_tasks_of_a_script_run(database_url: str, tmp_path: Path, script: str, arguments: list[str]) -> None:
    (tmp_path / "squares.py").write_text(APP)
    (tmp_path / "main.py").write_text(script)
    app = Duly(database_url)

    @app.task(cpu=True)
    def square(n: int) -> int: ...  # type: ignore[empty-body]

    placed = square.options(tries=1).put(n=12)
    running = start(database_url, tmp_path, arguments)
    try:
        until(lambda: app.read.item(placed.id).state in ("done", "failed"), 60)
        row = app.read.item(placed.id)
        assert (row.state, row.result) == ("done", 144), row.last_error
    finally:
        running.terminate()
        running.wait(30)
        app.close()


def test_an_app_that_a_child_could_not_find_is_refused_at_the_start(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(INSIDE)
    running = start(database_url, tmp_path, ["main.py"])
    _, said = running.communicate(timeout=60)
    assert running.returncode
    assert b"outside of functions" in said


def start(database_url: str, folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "DULY_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, stderr=subprocess.PIPE)
