"""Nets under every page of a test: what must never happen in a browser, whatever a test is about.

A `Watch` is on all pages of one browser context. `check` raises an AssertionError that names everything it caught:
messages of the console (errors and warnings), errors that no script caught, requests to other hosts, violations of the
content security policy, and answers with a status of 500 or more. Where a test provokes one of these, it says so:

    watch.expect("status of 422")          # must happen at least once, and is no failure then

`barriers` has axe-core look for what keeps people from using a page, `still` fails when its layout shifts meanwhile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Error, Page, Response, WebError, expect
from playwright.sync_api import Request as Asked

# What the standards ask for at level AA, and no matters of taste.
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
OURS = ("data", "blob", "about")  # addresses that go nowhere
SAFE = ("GET", "HEAD", "OPTIONS")

# Runs in each document before any script of its own. A violation is told at once, because the document may go away.
EARLY = """
document.addEventListener("securitypolicyviolation", (event) =>
    window.tellTest("policy", `${event.violatedDirective} forbids ${event.blockedURI || "inline code"}`));
window.testShifts = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
        if (!entry.hadRecentInput) {
            window.testShifts.push([entry.value, entry.sources.map((source) => source.node?.outerHTML?.slice(0, 200))]);
        }
    }
}).observe({type: "layout-shift", buffered: true});
"""
AXE = """
async (standards) => {
    const found = await axe.run(document, {runOnly: {type: "tag", values: standards}, resultTypes: ["violations"]});
    return found.violations.map(({id, impact, help, nodes}) => ({
        id, impact, help, nodes: nodes.map(({html, failureSummary}) => [html.slice(0, 300), failureSummary]),
    }));
}
"""
# Two frames: shifts of what is painted now are reported after the second.
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"


class Watch:
    """Sees everything that the pages of a context do."""

    def __init__(self, context: BrowserContext, url: str, *, may_write: bool = True) -> None:
        self.context = context
        self.caught: list[str] = []
        self._host = urlsplit(url).netloc
        self._may_write = may_write
        self._expected: list[str] = []
        context.expose_binding("tellTest", self._on_told)
        context.add_init_script(EARLY)
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("page", lambda page: page.on("websocket", lambda socket: self._on_address("websocket", socket.url)))

    def expect(self, pattern: str) -> None:
        """Something that matches this regular expression is to be caught, and is no failure."""
        self._expected.append(pattern)

    def check(self) -> None:
        """Raise AssertionError if anything was caught that was not expected, or not caught that was."""
        self._catch_up()
        caught, self.caught = self.caught, []
        expected, self._expected = self._expected, []
        strange = [text for text in caught if not any(re.search(pattern, text) for pattern in expected)]
        missing = [pattern for pattern in expected if not any(re.search(pattern, text) for text in caught)]
        assert not strange, "the browser says:\n  " + "\n  ".join(strange)
        assert not missing, f"the browser was to say {missing}, and said {caught}"

    def _catch_up(self) -> None:
        """Have what happened in the pages told here: answers come in order."""
        for page in self.context.pages:
            if not page.is_closed():
                try:
                    page.evaluate("() => 0")
                except Error:  # it is just going elsewhere
                    page.wait_for_load_state()

    def _on_told(self, source: Any, kind: str, text: str) -> None:
        self.caught.append(f"{kind}: {text} on {source['page'].url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        where = message.location
        # The browser asks for an icon by itself where a document names none, as one of JSON.
        if message.type in ("error", "warning", "assert") and urlsplit(where["url"]).path != "/favicon.ico":
            self.caught.append(f"console {message.type}: {message.text} ({where['url']}:{where['lineNumber']})")

    def _on_error(self, error: WebError) -> None:
        self.caught.append(f"uncaught: {error.error}")

    def _on_request(self, request: Asked) -> None:
        self._on_address("request", request.url)
        is_question = urlsplit(request.url).path.endswith(("/preview", "/count"))
        if not self._may_write and request.method not in SAFE and not is_question:
            self.caught.append(f"write: {request.method} {request.url}, but what it changes is shared by other tests")

    def _on_address(self, kind: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in OURS and parts.netloc != self._host:
            self.caught.append(f"{kind} to another host: {url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 500:
            self.caught.append(f"status {response.status}: {response.request.method} {response.url}")


def barriers(page: Page) -> None:
    """Raise AssertionError with everything on this page that breaks WCAG 2.2 AA, as far as axe-core can see."""
    # Evaluated through the debugger, which the page's content security policy does not bind.
    page.evaluate(_axe_core())
    found = page.evaluate(AXE, STANDARDS)
    lines = [
        f"{each['id']} ({each['impact']}): {each['help']}"
        + "".join(f"\n      {html}\n        " + summary.replace("\n", "\n        ") for html, summary in each["nodes"])
        for each in found
    ]
    assert not lines, f"{page.url} has barriers:\n  " + "\n  ".join(lines)


@contextmanager
def still(page: Page, most: float = 0.0) -> Iterator[None]:
    """Raise AssertionError if the layout shifts during the block, beyond a score of `most`.

    What shifts within half a second after a click or a key does not count: whoever acted expects it.
    """
    page.evaluate(PAINTED)
    before = len(page.evaluate("() => window.testShifts"))
    yield
    page.evaluate(PAINTED)
    shifts = page.evaluate("() => window.testShifts")[before:]
    score = sum(value for value, _ in shifts)
    assert score <= most, f"the layout shifted by {score:.4f}: {shifts}"


def settled(page: Page) -> Page:
    """Wait until the page's main part says that it is no longer busy."""
    page.locator("main[aria-busy=false]").wait_for()
    return page


def refreshed(page: Page) -> Page:
    """Have the page read anew what it shows, as the key for it does, instead of waiting for its next look."""
    page.locator("main").press("r")
    return page


def told(page: Page, text: str | re.Pattern[str]) -> None:
    """Wait for a short message with this text."""
    expect(page.locator(".toasts")).to_contain_text(text)


@cache
def _axe_core() -> str:
    return Path(_told("DULY_TEST_AXE")).read_text()


def chromium_path() -> str:
    """Where Debian's Chromium is."""
    return _told("DULY_TEST_CHROMIUM")


def _told(name: str) -> str:
    if name not in os.environ:
        raise pytest.UsageError(f"{name} is not set: run the browser tests with tools/test, which sees to Chromium")
    return os.environ[name]
