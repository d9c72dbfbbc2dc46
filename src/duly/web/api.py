"""The HTTP API: its routes, and the limits, headers and checks around every request.

It is safe by default. On a loopback address, requests from this machine act as the local admin without signing in. On
any other address the service does not start until a user with a password or a key exists.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly import Duly, __version__
from duly.core.errors import ConfigError
from duly.plugins import Plugin
from duly.store.contract import WAIT_UNTIL
from duly.web import dashboard
from duly.web.auth import Authenticator, is_loopback
from duly.web.problems import MEDIA_TYPE, TITLES, Problem, handle_on, problem, unexpected
from duly.web.routes import files, items, jobs, live, queues, review, schedules, simulate, users
from duly.web.routes.files import JobIn
from duly.web.routing import add_routes
from duly.web.schemas import ProblemOut
from duly.web.shared import SharedReads, ShareReads
from duly.web.uploads import is_form, kind_of

BODY_LIMIT = 2 * 1024 * 1024
TOO_LARGE = "the body is too large: at most {:,} bytes are accepted"
TIME_LIMIT = 30.0  # seconds that a request may take, except for streams
WAITING = 0.8  # the part of that time that may be spent waiting for a database connection
STREAM = "/api/events"
# Paths of uploads. They may take any time, as long as bytes keep arriving.
UPLOAD = re.compile(r"/api/jobs(?:/preview|/\d+/mend)?")
# Paths of downloads. They are sent as fast as the client reads.
DOWNLOAD = re.compile(r"/api/jobs/\d+/(?:export|rejects)")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Errors that any route may return.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": title, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}}
    for status, title in TITLES.items()
}


def create_api(app: Duly, host: str = "127.0.0.1", ailing: Callable[[], str | None] = lambda: None) -> FastAPI:
    """The API over this app, for this address."""
    is_local = is_loopback(host)
    if not is_local and not app.internals.verbs.users.is_anybody():
        raise ConfigError(
            f"http_host: cannot listen on {host} because no user can sign in; "
            "create one with `duly users add NAME --admin`, or listen on 127.0.0.1"
        )
    built = build(is_local, tuple(app.internals.plugins.values()), tuple(app.internals.offered.values()))
    return furnish(built, app, is_local, ailing)


def furnish(api: FastAPI, app: Duly, is_local: bool, ailing: Callable[[], str | None] = lambda: None) -> FastAPI:
    """Connect these routes to this app."""
    api.state.duly = app
    api.state.cursors = None  # made when a list is first read
    api.state.authenticator = Authenticator(app.internals.verbs.users, is_local)
    api.state.shared = SharedReads(api.state.authenticator)
    api.state.feed = None  # made for the first listener
    api.state.ailing = ailing
    api.state.streams = 0
    api.state.closing = asyncio.Event()
    return api


def build(
    is_local: bool, plugins: Iterable[Plugin[Any, Any]] = (), offered: Iterable[Plugin[Any, Any]] = ()
) -> FastAPI:
    """The routes and middleware of the core and of these plug-ins, not yet connected to an app.

    Of the plug-ins that are only offered, the pages are served; they explain how to turn the plug-in on.
    """
    plugins = tuple(plugins)
    api = FastAPI(
        title="duly",
        version=__version__,
        description="What falls due gets done: once, on time, evenly, and in spite of crashes.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=REFUSALS,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(_check_query)],
    )
    core = (
        items.router, items.tasks, files.router, jobs.router, schedules.router, queues.router, review.router,
        users.router, live.now_router, live.router, simulate.router, dashboard.router,
    )  # fmt: skip
    owners: dict[tuple[str, str], str] = {}
    for router in core:
        add_routes(api, router, "duly", owners)
    for plugin in plugins:
        if plugin.router is not None:
            add_routes(api, plugin.router(), plugin.name, owners)
    dashboard.add_dashboard(api, (*plugins, *offered), owners)
    handle_on(api)
    _describe(api)
    api.add_middleware(ShareReads)  # inside the guard, which is added after it
    api.add_middleware(RequestGuard, is_local=is_local)
    return api


def _describe(api: FastAPI) -> None:
    """The OpenAPI document, with two schemas that no route declares: problems, and the JSON body of an upload."""
    plain = api.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        for model in (ProblemOut, JobIn):
            document["components"]["schemas"].setdefault(model.__name__, model.model_json_schema())
        return document

    api.openapi = openapi  # type: ignore[method-assign]


def _check_query(request: Request) -> None:
    """Reject unknown query parameters: a misspelt filter would otherwise return everything."""
    if not _path_of(request.scope).startswith("/api") or not request.query_params:
        return
    known = set(_parameters(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Problem(422, f"{name!r:.80}: is not a parameter of this path; known: {names}", name[:80])


def _parameters(needed: Dependant) -> Iterator[str]:
    """The names of the query parameters of a route, with those of what it depends on."""
    yield from (each.alias for each in needed.query_params)
    for inner in needed.dependencies:
        yield from _parameters(inner)


class RequestGuard:
    """Checks the size, time and host of every request, and sets headers on its answer."""

    def __init__(self, app: ASGIApp, is_local: bool) -> None:
        self._app = app
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = _path_of(scope)
        read, is_begun = 0, False
        is_upload = _is_upload(Request(scope))
        is_file = is_upload or DOWNLOAD.fullmatch(path) is not None

        async def bounded() -> Message:
            """Read a body up to the limit, whether or not the request has a Content-Length."""
            nonlocal read
            async with asyncio.timeout(TIME_LIMIT if is_upload else None):
                message = await receive()
            read += len(message.get("body", b""))
            if read > BODY_LIMIT and not is_upload:
                # Close the connection, because the client may continue sending.
                raise HTTPException(413, TOO_LARGE.format(BODY_LIMIT), {"Connection": "close"})
            return message

        async def headed(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if path.startswith("/api"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            answer: ASGIApp = _refusal(Request(scope), self._is_local) or self._app
            async with asyncio.timeout(None if is_file or path == STREAM else TIME_LIMIT):
                # Stop waiting for an unreachable database early enough to answer that nothing was done.
                WAIT_UNTIL.set(float("inf") if is_file else time.monotonic() + WAITING * TIME_LIMIT)
                await answer(scope, bounded, headed)
            return
        except TimeoutError:
            detail = f"the request took longer than {TIME_LIMIT:g} s; it may have been carried out"
            answer = problem(503, detail, **{"Retry-After": "5"})
        except Exception as error:
            answer = unexpected(error)
        if not is_begun:
            await answer(scope, receive, headed)


def _refusal(request: Request, is_local: bool) -> Response | None:
    length = request.headers.get("content-length")
    if length is not None and not length.isdecimal():
        return problem(400, "Content-Length: must be a number")
    is_upload = _is_upload(request)
    if length is not None and (len(length) > 15 or (int(length) > BODY_LIMIT and not is_upload)):
        return problem(413, TOO_LARGE.format(BODY_LIMIT))
    has_body = length not in (None, "0") or "transfer-encoding" in request.headers
    kind = kind_of(request)
    if has_body and request.method in ("POST", "PUT", "PATCH") and kind != "application/json" and not is_upload:
        return problem(415, "the body must be application/json")
    # Reject other host names: a page of another site could make its own name resolve to this address.
    if is_local and not is_loopback(_name_of(request.headers.get("host", ""))):
        return problem(403, "this service answers only to its own host name")
    return None


def _is_upload(request: Request) -> bool:
    """Whether this uploads a file. The route bounds its size."""
    is_place = request.method == "POST" and UPLOAD.fullmatch(_path_of(request.scope)) is not None
    return is_place and is_form(request)


def _path_of(scope: Scope) -> str:
    """The path below the prefix that this service is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _name_of(host: str) -> str:
    return host.partition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
