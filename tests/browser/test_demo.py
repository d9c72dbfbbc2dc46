"""`duly up --demo`, as one meets it first: its systems are alive on the dashboard within seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.nets import settled
from tests.browser.sites import Site, Visits
from tests.browser.world import World
from tests.cli.test_processes import free_port


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Site]:
    """The demo without a broker, at the address that it prints first."""
    command = [sys.executable, "-m", "duly.cli", "up", "--demo", "--http-port", str(free_port())]
    env = {**os.environ, "RABBITMQ_URL": "amqp://127.0.0.1:1"}
    with (tmp_path / "err").open("w") as err:
        running = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        assert first.startswith("dashboard at http://127.0.0.1:"), first
        yield Site(first.removeprefix("dashboard at ").strip(), cast(World, None))  # it has a world of its own
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_every_system_is_alive_in_the_demo(demo: Site, visit: Visits) -> None:
    page = visit(demo)
    page.goto("/catalog")
    settled(page)
    expect(page.get_by_role("link", name="deactivated")).not_to_contain_text("deactivated0", timeout=120_000)
    expect(_rows(page, "Products").first).to_be_visible()
    _go(page, "People")
    expect(page.get_by_role("grid", name="People").get_by_role("link", name="Lena Leap")).to_be_visible()
    _go(page, "Reminders")
    expect(_rows(page, "Reminders").filter(has_text="completed").first).to_be_visible()
    _go(page, "Jobs")
    expect(page.get_by_text("products.csv").first).to_be_visible()
    for title in ("Items", "Pending", "Schedules", "Review"):
        _go(page, title)
        expect(page.get_by_role("grid").get_by_role("row").nth(1)).to_be_visible()
    _go(page, "Messages")
    expect(page.get_by_text("No broker is set up here.")).to_be_visible()


def _go(page: Page, title: str) -> None:
    page.get_by_role("navigation", name="Screens").get_by_role("link", name=title, exact=True).click()
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def _rows(page: Page, name: str) -> Locator:
    return page.get_by_role("grid", name=name).get_by_role("row")
