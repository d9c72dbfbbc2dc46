"""The dashboard: the list of its screens, its pages and static files, and what the pages load first.

Every page is the same document; its scripts show the screen of the address. The data comes from the API, with the
rights of the user; the files are the same for everybody. Their address contains a digest of all files, so a browser
fetches each only once and never mixes two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import mimetypes
import posixpath
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from msgspec import Struct
from msgspec.structs import replace

from duly import __version__
from duly.core.shown import Scope
from duly.core.wire import Doc
from duly.plugins import Plugin, Screen, claim
from duly.web.auth import Reader
from duly.web.desk import App
from duly.web.problems import Problem
from duly.web.routing import Router

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
MAIN = "js/main.js"
# The static imports of a module; dynamic ones use `import(`.
IMPORT = re.compile(rb"""(?:^|;)\s*(?:import|export)\b[^"'();]*["'](\.[^"']+)["']""", re.MULTILINE)
FOREVER = "public, max-age=31536000, immutable"
mimetypes.add_type("text/javascript", ".js")

router = Router(tags=["dashboard"])


class ScreenEntry(Struct, frozen=True, kw_only=True):
    """A screen of the dashboard. The page's router and navigation are made of these."""

    path: Annotated[str, Doc("Its address; `{id}` stands for the id of a row.")]
    title: str
    script: Annotated[str, Doc("Its module, below the static files.")]
    group: Annotated[str | None, Doc("Its group in the navigation; null: it is reached by links only.")] = None
    within: Annotated[str | None, Doc("The path of the screen that the navigation marks for it.")] = None
    key: Annotated[str | None, Doc("The key that opens it, after g.")] = None
    scope: Annotated[Scope, Doc("The scope that it needs.")] = "read"
    app: Annotated[str | None, Doc("Its app, which has all addresses below the path; null: the core.")] = None
    is_on: Annotated[bool, Doc("False: its app is off here, and the screen says how to turn it on.")] = True


class PanelEntry(Struct, frozen=True):
    """A panel that a plug-in adds to the page of a job."""

    title: str
    script: Annotated[str, Doc("Its module, below the static files.")]
    tasks: Annotated[tuple[str, ...], Doc("The tasks whose jobs have it.")]


class Dashboard(Struct, frozen=True):
    version: str
    screens: Annotated[list[ScreenEntry], Doc("Those of the core and of plug-ins that you may use.")]
    panels: Annotated[list[PanelEntry], Doc("Those of plug-ins, on the pages of jobs.")]
    trace_url: Annotated[str | None, Doc("Where a trace is looked at, with {trace_id} for its id.")]
    pending: Annotated[bool, Doc("Whether there is a list of pending rows of all jobs.")]


def _core(
    path: str, title: str, script: str, group: str | None = None, key: str | None = None, **more: Any
) -> ScreenEntry:
    return ScreenEntry(path=path, title=title, script=f"js/screens/{script}.js", group=group, key=key, **more)


# Screens of the core, in the order of the navigation; those of plug-ins stand between the two parts.
WORK = (
    _core("/", "Now", "now", "Work", "n"),
    _core("/items", "Items", "items", "Work", "i"),
    _core("/items/{id}", "Item", "item", within="/items"),
    _core("/pending", "Pending", "pending", "Work", "p"),
    _core("/jobs", "Jobs", "jobs", "Work", "j"),
    _core("/jobs/{id}", "Job", "job", within="/jobs"),
    _core("/schedules", "Schedules", "schedules", "Work", "s"),
    _core("/schedules/{id}", "Schedule", "schedule", within="/schedules"),
    _core("/review", "Review", "review", "Work", "r"),
    _core("/review/{id}", "Group of failures", "group", within="/review"),
)
SERVICE = (
    _core("/queues", "Queues and limits", "queues", "Run", "q", scope="admin"),
    _core("/workers", "Workers", "queues", within="/queues", scope="admin"),
    _core("/simulate", "Simulate", "simulate", "Run", "m", scope="admin"),
    _core("/users", "Users", "users", "People", "u", scope="admin"),
    _core("/keys", "API keys", "keys", "People", "k"),
    _core("/audit", "Audit log", "audit", "People", "a", scope="admin"),
    _core("/api/docs", "API", "api_docs", "People", "d"),
)
SIGN_IN = _core("/sign-in", "Sign in", "sign_in")


def screens(plugins: Iterable[Plugin[Any, Any]]) -> tuple[ScreenEntry, ...]:
    """The screens of the core and of these plug-ins, in the order of the navigation."""
    return (*WORK, *(_entry(plugin, screen) for plugin in plugins for screen in plugin.screens), *SERVICE)


def _entry(plugin: Plugin[Any, Any], screen: Screen) -> ScreenEntry:
    return ScreenEntry(
        path=f"/{screen.path}", title=screen.title, script=f"apps/{plugin.name}/{screen.script}", group="Apps",
        scope=screen.scope, app=plugin.name,
    )  # fmt: skip


@dataclass(frozen=True)
class StaticFile:
    """A static file, plain and compressed."""

    body: bytes
    packed: bytes
    kind: str


class Statics:
    """All static files: those of the dashboard, and those of plug-ins under `apps/NAME`."""

    def __init__(self, folders: Iterable[tuple[str, Path]]) -> None:
        self.files: dict[str, StaticFile] = {}
        digest = hashlib.sha256()
        for prefix, folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    name, body = prefix + path.relative_to(folder).as_posix(), path.read_bytes()
                    digest.update(f"{name}\0{zlib.crc32(body)}\0{len(body)}\0".encode())
                    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                    self.files[name] = StaticFile(body, gzip.compress(body, 6, mtime=0), kind)
        self.digest = digest.hexdigest()[:16]
        self.page = Template(self.files.pop(PAGE).body.decode())
        self._imports = {name: _imports(name, file.body) for name, file in self.files.items() if name.endswith(".js")}

    def modules(self, *names: str) -> list[str]:
        """These modules and all modules that they import, directly or not."""
        found: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found and name in self._imports:
                found[name] = None
                waiting += self._imports[name]
        return list(found)


def _imports(name: str, body: bytes) -> list[str]:
    """The names of the modules that this one imports."""
    folder = posixpath.dirname(name)
    return [posixpath.normpath(posixpath.join(folder, path.decode())) for path in IMPORT.findall(body)]


statics_of = cache(Statics)  # the static files in these folders, read once per process


def add_dashboard(api: FastAPI, plugins: Iterable[Plugin[Any, Any]], owners: dict[tuple[str, str], str]) -> None:
    """Add the pages of the core's screens and of those that these plug-ins bring."""
    plugins = tuple(plugins)
    folders = [("", FOLDER), *((f"apps/{each.name}/", each.static) for each in plugins if each.static is not None)]
    statics = statics_of(tuple(folders))

    async def file(request: Request) -> Response:
        found = statics.files.get(request.path_params["path"])
        # A page of another version has to be reloaded, instead of continuing with files of both.
        if found is None or request.path_params["digest"] != statics.digest:
            raise Problem(404, "this version of the dashboard has no such file; reload the page")
        return _answer(request, found, FOREVER)

    for screen in (*screens(plugins), SIGN_IN):
        claim(owners, screen.app or "duly", "screen", screen.path)
        page = _page(statics, screen.script)
        api.add_route(screen.path, page, include_in_schema=False)
        if screen.app is not None:
            api.add_route(f"{screen.path}/{{rest:path}}", page, include_in_schema=False)
    api.add_route("/static/{digest}/{path:path}", file, include_in_schema=False)


def _page(statics: Statics, script: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for the document of a page, with addresses below the prefix that this service is mounted at.

    The document preloads every module that the page imports, so that the browser fetches them all at once instead of
    one level of imports after the other.
    """
    modules = statics.modules(MAIN, script)

    async def page(request: Request) -> Response:
        root = html.escape(request.scope.get("root_path", "").rstrip("/"))
        static = f"{root}/static/{statics.digest}"
        preloads = "\n".join(f'<link rel="modulepreload" href="{static}/{name}">' for name in modules)
        body = statics.page.substitute(root=root, static=static, preloads=preloads).encode()
        return _answer(request, StaticFile(body, gzip.compress(body, 6), "text/html; charset=utf-8"), "no-cache")

    return page


def _answer(request: Request, file: StaticFile, kept: str) -> Response:
    headers = {"Cache-Control": kept, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.kind, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.kind, headers=headers)


@router.get("/api/dashboard")
def dashboard(app: App, principal: Reader) -> Dashboard:
    """Data that the pages need first: the screens that you may use, and the features that are on."""
    has_pending = app.internals.verbs.context.job_settings.pending_enabled
    shown = [
        replace(
            screen,
            is_on=screen.app is None or screen.app in app.internals.plugins,
            group=None if screen.path == "/pending" and not has_pending else screen.group,
        )
        for screen in screens((*app.internals.plugins.values(), *app.internals.offered.values()))
        if principal.may(screen.scope)
    ]
    panels = [
        PanelEntry(each.title, f"apps/{plugin.name}/{each.script}", each.tasks)
        for plugin in app.internals.plugins.values()
        for each in plugin.panels
    ]
    return Dashboard(__version__, shown, panels, app.settings.trace_url or None, has_pending)
