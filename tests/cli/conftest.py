"""The command line, called in this process (`duly`) or as a process of its own (`start`), on a real database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from duly.cli import main

APP = """
import time
from pathlib import Path
from duly import Attempt, Backoff, Duly

app = Duly()
HERE = Path(__file__).parent


@app.task(retry=Backoff(base=60, tries=3))
def remind(phone: str, n: int = 1) -> str:
    if phone == "busy":
        raise OSError("the line is busy")
    return f"called {phone}"


@app.task
def linger(seconds: float) -> None:
    (HERE / "lingering").touch()
    time.sleep(seconds)
    (HERE / "lingered").touch()


@app.task(cpu=True)
def where() -> str:
    return app.settings.database_url


nothing = "not an app"
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a duly.toml nor the caller's environment has a say."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DULY_") and not name.startswith("DULY_TEST"):
            monkeypatch.delenv(name)


@pytest.fixture
def app_file(tmp_path: Path) -> str:
    path = tmp_path / "work.py"
    path.write_text(APP)
    return f"{path}:app"


Duly = Callable[..., Result]


@pytest.fixture
def duly(database_url: str) -> Duly:
    """Run a command on the test's database; returns its exit code and what it wrote."""

    def run(*words: str, **env: str) -> Result:
        return call(*words, DULY_DATABASE_URL=database_url, **env)

    return run


def call(*words: str, **env: str) -> Result:
    return CliRunner().invoke(main, words, env={"COLUMNS": "80", "TZ": "UTC", **env})


class Process:
    """A `duly` of its own, with what it writes in files."""

    def __init__(self, folder: Path, words: tuple[str, ...], env: dict[str, str]) -> None:
        number = len(list(folder.glob("out-*")))
        self.out, self.err = folder / f"out-{number}", folder / f"err-{number}"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "duly.cli", *words], cwd=folder, stdout=out, stderr=err,
                env={**os.environ, **env},
            )  # fmt: skip

    def says(self, text: str) -> bool:
        return text in self.out.read_text() + self.err.read_text()

    def waits_for(self, text: str) -> None:
        eventually(lambda: self.says(text) or self.running.poll() is not None, self)
        assert self.says(text), f"it ended without saying {text!r}: {self}"

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.running.send_signal(number)

    def ends(self) -> int:
        return self.running.wait(120)

    def __str__(self) -> str:
        return f"{self.out.read_text()}\n{self.err.read_text()}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*words: str, **env: str) -> Process:
        started.append(Process(tmp_path, words, env))
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            process.running.kill()
        process.running.wait()


def eventually(is_so: Callable[[], Any], told: object = "", within: float = 120.0) -> None:
    """Look again and again until it is so."""
    give_up = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < give_up, f"not so after {within:g} s: {told}"
        time.sleep(0.02)
