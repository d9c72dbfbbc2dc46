"""Where pages are: the service on a real socket in the ways in which people have it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page
from starlette.applications import Starlette
from starlette.routing import Mount

from duly.web.api import create_api
from duly.web.auth import COOKIE
from duly.web.server import Service
from tests.browser.nets import Watch
from tests.browser.world import PASSWORD, World

SWITCHES = [
    # Names are not looked up, so that nothing leaves this machine even where a page wants it to.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--js-flags=--max-lazy,--no-opt",  # the pages of a test end before optimised code pays off
]
PATIENCE = 60_000.0  # milliseconds that something may take to appear
PREFIX = "/duly"
WIDE: Any = {"width": 1440, "height": 900}
NARROW: Any = {"width": 390, "height": 844}


@dataclass(frozen=True)
class Site:
    """A service to visit: where the dashboard is, and what it shows."""

    url: str  # without a slash at the end
    world: World
    is_shared: bool = False  # other tests see the same, so that nothing may be changed


@contextmanager
def local(world: World, *, is_shared: bool = False) -> Iterator[Site]:
    """On loopback: whoever comes is the local admin."""
    with Service(world.app, "127.0.0.1", 0) as service:
        yield Site(service.url, world, is_shared)


@contextmanager
def guarded(world: World) -> Iterator[Site]:
    """On every address of the machine, as Ana, Bob and root have it, who sign in."""
    world.add_users()
    with Service(world.app, "0.0.0.0", 0) as service:
        yield Site(service.url.replace("0.0.0.0", "127.0.0.1"), world)


@contextmanager
def mounted(world: World) -> Iterator[Site]:
    """Within somebody's own application, under a prefix."""
    api = create_api(world.app)
    with served(Starlette(routes=[Mount(PREFIX, api)]), api) as url:
        yield Site(url + PREFIX, world)


@contextmanager
def served(asgi: Any, api: Any = None) -> Iterator[str]:
    """Any ASGI application on a free port; gives its URL. The streams of `api`, a part of it, are closed at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(asgi, log_config=None, access_log=False, lifespan="off", ws="none"))
    loops: list[asyncio.AbstractEventLoop] = []

    def run() -> None:
        with asyncio.Runner() as runner:
            loops.append(runner.get_loop())
            runner.run(server.serve([listener]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        if api is not None and loops and not loops[0].is_closed():
            loops[0].call_soon_threadsafe(api.state.closing.set)
        server.should_exit = True
        thread.join(15)


class Visits:
    """Opens pages, each in a browser context of its own, with a watch on it."""

    def __init__(self, browser: Browser) -> None:
        self.watches: list[Watch] = []
        self._browser = browser
        self._stack = ExitStack()

    def __call__(self, site: Site, user: str | None = None, **options: Any) -> Page:
        """A page on this site, signed in as this user; `options` are those of a context, such as `viewport`.

        Nothing is loaded yet. `page.goto("/items")` is on this site; where it has a prefix, give `site.url` with it.
        """
        given = {"base_url": site.url, "viewport": WIDE, "timezone_id": "Europe/Zagreb", "locale": "en-GB", **options}
        context = self._browser.new_context(**given)
        self._stack.callback(context.close)
        context.set_default_timeout(PATIENCE)
        self.watches.append(Watch(context, site.url, may_write=not site.is_shared))
        if user is not None:
            _sign_in(context, site, user)
        return context.new_page()

    def watch(self, page: Page) -> Watch:
        """The watch on this page."""
        return next(watch for watch in self.watches if watch.context == page.context)

    def check(self) -> None:
        for watch in self.watches:
            watch.check()

    def pages(self) -> list[Page]:
        return [page for watch in self.watches for page in watch.context.pages]

    def close(self) -> None:
        self._stack.close()


def _sign_in(context: BrowserContext, site: Site, user: str) -> None:
    """Give the browser the cookie that it would have after signing in on the page."""
    token = site.world.app.internals.verbs.users.sign_in(user, PASSWORD)
    assert token is not None, f"{user} is no user of this site"
    # A cookie of this name is taken only from a safe address. The browser sends it to all of loopback, safe or not.
    cookie: Any = {"name": COOKIE, "value": token, "url": "https://127.0.0.1/", "secure": True, "httpOnly": True}
    context.add_cookies([{**cookie, "sameSite": "Strict"}])
