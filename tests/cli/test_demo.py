"""`duly up --demo`: reminders that visibly fire, fail, retry and end in review."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.apps.conftest import eventually
from tests.apps.test_package import asked
from tests.cli.conftest import Process
from tests.cli.test_processes import free_port


def test_the_demo_fires_retries_and_reviews_and_ends_with_a_summary(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo", "--http-port", "0")
    for words in ("fired", "h late", "failed", "retry in 2 s: 503 line busy", "try 2", "in review", "400 not a"):
        demo.waits_for(words)
    demo.signal(signal.SIGINT)
    assert demo.ends() == 0
    lines = demo.out.read_text().splitlines()
    assert lines[0].startswith("duly demo on sqlite:///")
    assert "fired, 1 in review" in lines[-1]
    assert not demo.says("Traceback")
    assert not Path(lines[0].removeprefix("duly demo on sqlite:///")).exists(), "the scratch database stays behind"


def test_the_demo_works_a_file_of_products_off(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo", "--http-port", "0")
    for words in ("job 1: a file of products came in", "job 1: 6 of 48 products looked up", "job 1: 24 of 48"):
        demo.waits_for(words)
    demo.signal(signal.SIGINT)
    assert demo.ends() == 0
    assert not demo.says("Traceback")


def test_the_demo_says_where_its_dashboard_is_and_has_all_systems_alive_there(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo", "--http-port", str(free_port()), RABBITMQ_URL="amqp://127.0.0.1:1")
    demo.waits_for("fired")
    url = demo.out.read_text().splitlines()[0].removeprefix("dashboard at ")
    assert url.startswith("http://127.0.0.1:")
    screens = {each["path"]: each["isOn"] for each in asked(f"{url}/api/dashboard")["screens"] if each["app"]}
    assert screens == {"/reminders": True, "/catalog": True, "/plan": True, "/people": True, "/messages": False}
    assert asked(f"{url}/api/dashboard")["pending"] is True
    eventually(lambda: asked(f"{url}/api/catalog/day")["statuses"]["success"] >= 10)
    eventually(lambda: asked(f"{url}/api/catalog/day")["statuses"]["failed"] >= 1)
    eventually(lambda: [event["status"] for event in asked(f"{url}/api/people/maja")["events"]][1] == "COMPLETED")
    eventually(lambda: [event["status"] for event in asked(f"{url}/api/people/oliver")["events"]][1] == "FAILED")
    assert asked(f"{url}/api/reminders?state=completed")["items"]
    assert asked(f"{url}/api/jobs")["items"]
    demo.signal(signal.SIGINT)
    assert demo.ends() == 0
    assert not demo.says("Traceback")


def test_a_closed_terminal_leaves_nothing_behind(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo", "--http-port", "0")
    demo.waits_for("fired")
    demo.signal(signal.SIGHUP)
    assert demo.ends() == 0
    place = demo.out.read_text().splitlines()[0].removeprefix("duly demo on sqlite:///")
    assert not Path(place).parent.exists()


def test_the_demo_ends_by_itself_when_told_so(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo", "--http-port", "0", "--for", "1")
    assert demo.ends() == 0
    assert demo.says("fired")


def test_the_demo_fills_a_terminal(tmp_path: Path) -> None:
    for columns in (80, 120):
        screen = seen_on_a_terminal(columns, tmp_path)
        for words in (
            "upcoming",
            "what happened",
            "waiting",
            "products",
            "Ana: Take the blue pill",
            "retry in 2 s",
            "Ctrl-C ends",
        ):
            assert words in screen, screen
        assert "Traceback" not in screen


def seen_on_a_terminal(columns: int, folder: Path) -> str:
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "duly.cli", "up", "--demo", "--http-port", "0", "--for", "2"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
        env={**os.environ, "COLUMNS": str(columns), "LINES": "24", "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    screen = b""
    give_up = time.monotonic() + 30
    try:
        while time.monotonic() < give_up and select.select([ours], [], [], 1) and (part := read(ours)):
            screen += part
        assert demo.wait(60) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(ours)
    return screen.decode()


def read(terminal: int) -> bytes:
    """What the terminal was sent; nothing when the other side is gone."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
