"""What it costs the database that people look: statements per second of each screen, with twenty pages open on it.

`python -m tests.browser.looks` tells it of every screen, on SQLite (some five minutes).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from playwright.sync_api import Page, sync_playwright

from tests.browser import sites
from tests.browser.nets import chromium_path, settled
from tests.browser.screenshots import screens, staged
from tests.browser.sites import Site, Visits
from tests.support import is_sqlite

PAGES = 20
SECONDS = 20.0
# What marks the beginning and the end of a transaction, and what settings it has, asks the database for nothing.
IDLE = ("BEGIN", "COMMIT", "ROLLBACK", "SET ", "RELEASE", "SAVEPOINT", "PRAGMA")


@contextmanager
def counted(site: Site) -> Iterator[Counter[str]]:
    """Counts the statements that reach the database of this site, whoever sends them."""
    seen: Counter[str] = Counter()

    def note(text: str) -> None:
        if not text.lstrip().upper().startswith(IDLE):
            seen[" ".join(text.split())[:120]] += 1

    store: Any = site.world.app.internals.store
    if is_sqlite(store):
        connect = store.connect

        def traced() -> Any:
            connection = connect()
            connection.set_trace_callback(note)
            return connection

        store.close()  # so that its connections are made anew
        store.connect = traced
        try:
            yield seen
        finally:
            store.connect = connect
        return
    execute = psycopg.Cursor.execute

    def executed(self: Any, query: Any, *more: Any, **options: Any) -> Any:
        note(str(query))
        return execute(self, query, *more, **options)

    psycopg.Cursor.execute = executed  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def open_pages(visits: Visits, site: Site, path: str, number: int = PAGES) -> list[Page]:
    """Pages in one window, as tabs that are all seen."""
    first = visits(site)
    pages = [first, *(first.context.new_page() for _ in range(number - 1))]
    for page in pages:
        page.goto(path)
        settled(page)
    return pages


def statements_while(site: Site, page: Page, seconds: float) -> Counter[str]:
    """What reaches the database in this time; the page is one that is open, and drives the browser meanwhile."""
    with counted(site) as seen:
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            page.evaluate("ms => new Promise((done) => setTimeout(done, ms))", min(rest, 1.0) * 1_000)
        return Counter(seen)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.looks", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these screens, such as now or items")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--verbose", action="store_true", help="also which statements")
    given = parser.parse_args()
    os.environ.setdefault("DULY_TEST_CHROMIUM", "/usr/bin/chromium")
    with staged(is_working=False) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=sites.SWITCHES)
        idle = Visits(browser)
        nothing = statements_while(site, idle(site), 5.0)
        print(f"{'nobody looks':<14} {nothing.total() / 5.0:5.2f} statements a second")
        for screen in screens(site.world):
            if given.names and screen.name not in given.names:
                continue
            visits = Visits(browser)
            pages = open_pages(visits, site, screen.path)
            seen = statements_while(site, pages[0], given.seconds)
            visits.close()
            print(f"{screen.name:<14} {seen.total() / given.seconds:5.2f} statements a second", flush=True)
            for text, number in seen.most_common() if given.verbose else ():
                print(f"    {number:4}  {text}")


if __name__ == "__main__":
    main()
