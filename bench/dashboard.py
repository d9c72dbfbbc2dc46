"""The dashboard over a million pending rows, as Chromium shows it. Part of `make bench`.

On each database, for the list of pending rows and for that of items: how long it takes from the navigation of a fresh
browser until the first rows of the grid are painted, how many rows are in the document at most while it is scrolled,
and what the page keeps in memory after 1,000 and after 10,000 scrolled rows, each after a garbage collection.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from bench.cluster import cluster, fresh_database
from duly import Duly
from duly.store.migrate import migrate
from duly.web.server import Service

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from chromium import ensure_browser

RUNS = 5
SHORT = 1_000
LONG = 10_000
DEEPER = 20_000
LISTS = {"pending rows": "/pending", "items": "/items?state=waiting"}
VIEWPORT: Any = {"width": 1440, "height": 900}

# Notes when the first row of a grid is on the screen: in the first frame after it came into the document.
PAINTED = """() => {
    const look = () => {
        const row = document.querySelector('[role=grid] [role=row][aria-rowindex="2"] a');
        if (!row) { requestAnimationFrame(look); return; }
        requestAnimationFrame(() => setTimeout(() => { window.firstRow = performance.now(); }));
    };
    requestAnimationFrame(look);
}"""
# Scrolls to the end of what was read, again and again, as fast as rows come.
SCROLLED = """async (rows) => {
    const grid = document.querySelector('[role=grid]');
    const read = () => {
        const drawn = grid.querySelectorAll('.grid-row');
        return drawn.length ? Number(drawn[drawn.length - 1].getAttribute('aria-rowindex')) - 1 : 0;
    };
    let most = 0;
    while (read() < rows) {
        grid.scrollTop = grid.scrollHeight;
        await new Promise(requestAnimationFrame);
        most = Math.max(most, grid.querySelectorAll('.grid-row').length);
    }
    return most;
}"""


class Scrolled(NamedTuple):
    """What scrolling so far brought."""

    rows: int
    drawn: int  # rows in the document, at most
    heap: int  # bytes that are kept
    nodes: int  # of the document


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    logging.getLogger("duly").setLevel(logging.ERROR)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if sys.platform == "linux" else []
        browser = playwright.chromium.launch(executable_path=ensure_browser(), args=arguments)
        for name, opened in (("postgresql", _postgres), ("sqlite", _sqlite)):
            with opened() as app, Service(app, "127.0.0.1", 0) as service:
                fill(app, options.rows)
                for what, path in LISTS.items():
                    told = [first_rows(browser, service.url + path) for _ in range(options.runs)]
                    print(f"{name:11} {what:13} first rows {_spread(told)} ms", flush=True)
                    for each in scroll(browser, service.url + path):
                        print(
                            f"{name:11} {what:13} {each.rows:7,} rows scrolled: at most {each.drawn} in the document, "
                            f"{each.heap / 1e6:.1f} MB, {each.nodes:,} nodes",
                            flush=True,
                        )
        browser.close()


def first_rows(browser: Browser, url: str) -> float:
    """Milliseconds from the navigation until the first rows are painted, with nothing cached."""
    with _page(browser) as page:
        page.add_init_script(f"({PAINTED})()")
        page.goto(url)
        page.wait_for_function("() => window.firstRow")
        return float(page.evaluate("() => window.firstRow"))


def scroll(browser: Browser, url: str) -> Iterator[Scrolled]:
    with _page(browser) as page:
        page.goto(url)
        page.locator(".grid-row a").first.wait_for()
        for rows in (SHORT, LONG, DEEPER):
            yield scrolled(page, rows)


def scrolled(page: Page, rows: int) -> Scrolled:
    """Scroll the grid of this page until it has come to so many rows."""
    drawn = page.evaluate(SCROLLED, rows)
    session = page.context.new_cdp_session(page)
    for _ in range(2):  # what the first one frees may hold more
        session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return Scrolled(rows, drawn, int(heap), page.evaluate("() => document.querySelectorAll('*').length"))


def fill(app: Duly, rows: int) -> None:
    """A job of so many rows that nobody works off."""

    @app.task
    def look_up(title: str, brand: str, sku: str) -> None:
        """Nobody calls this."""

    app.job("look_up", ({"title": f"Product {n}", "brand": "Acme", "sku": f"A-{n}"} for n in range(rows)))
    if app.internals.store.url.startswith("postgres"):
        with app.internals.store.transaction() as connection:
            connection.execute("analyze duly_item")


def _spread(times: list[float]) -> str:
    return f"{median(times):.0f} ({min(times):.0f} - {max(times):.0f})"


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport=VIEWPORT)
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def _postgres() -> Iterator[Duly]:
    with cluster() as server, tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
        app = Duly(fresh_database(server, "dashboard"), files_url=str(Path(folder)), pending_enabled=True)
        migrate(app.internals.store)
        yield app
        app.close()


@contextmanager
def _sqlite() -> Iterator[Duly]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
        app = Duly(f"sqlite:///{folder}/dashboard.db", files_url=str(Path(folder) / "files"), pending_enabled=True)
        migrate(app.internals.store)
        yield app
        app.close()


if __name__ == "__main__":
    main()
