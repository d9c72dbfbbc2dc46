"""The dashboard: pages that are static files in the package, and what these pages have to know first.

Every page is the same document, whose scripts show the screen that its address names. What they show comes from the
API, with the rights of whoever looks; the files themselves are the same for everybody. They are kept under an address
that changes with their contents, so a browser asks for each only once, and never mixes two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import mimetypes
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response

from duly import __version__
from duly.plugin import Plugin, Screen
from duly.web.auth import Reader
from duly.web.desk import At
from duly.web.problems import Problem
from duly.web.schemas.dashboard import DashboardOut

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
# What the browser fetches while it reads the page, instead of when one module finds that it needs another.
PRELOADED = (
    "js/lib/", "js/parts/", "vendor/preact.js", "vendor/hooks.js", "vendor/signals", "vendor/htm.js", "vendor/virtual/",
)  # fmt: skip
FOREVER = "public, max-age=31536000, immutable"
# The first part of the path of each screen of the core; the pages below have their own parts.
SCREENS = (
    "", "items", "pending", "jobs", "schedules", "review", "queues", "workers", "simulate", "users", "keys", "audit",
    "sign-in", "api/docs",
)  # fmt: skip
mimetypes.add_type("text/javascript", ".js")

router = APIRouter(tags=["dashboard"])


@dataclass(frozen=True)
class File:
    """A static file, as it is and compressed."""

    body: bytes
    packed: bytes
    kind: str


class Statics:
    """All static files: those of the dashboard, and those of plug-ins under `apps/NAME`."""

    def __init__(self, folders: Iterable[tuple[str, Path]]) -> None:
        self.files: dict[str, File] = {}
        digest = hashlib.sha256()
        for prefix, folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    name, body = prefix + path.relative_to(folder).as_posix(), path.read_bytes()
                    digest.update(f"{name}\0{zlib.crc32(body)}\0{len(body)}\0".encode())
                    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                    self.files[name] = File(body, gzip.compress(body, 6, mtime=0), kind)
        self.digest = digest.hexdigest()[:16]
        self.page = Template(self.files.pop(PAGE).body.decode())
        self.preloaded = [name for name in self.files if name.startswith(PRELOADED) and name.endswith(".js")]


@cache
def statics_of(folders: tuple[tuple[str, Path], ...]) -> Statics:
    """The static files in these folders, which are read once per process."""
    return Statics(folders)


def add_dashboard(api: FastAPI, plugins: Iterable[Plugin[Any, Any]]) -> None:
    """Add the pages of the core's screens and of those that these plug-ins bring."""
    plugins = tuple(plugins)
    folders = [("", FOLDER), *((f"apps/{each.name}/", each.static) for each in plugins if each.static is not None)]
    statics = statics_of(tuple(folders))
    paths = [*SCREENS, *(screen.path for plugin in plugins for screen in plugin.screens)]

    async def page(request: Request) -> Response:
        """The document of every page, with the addresses under the prefix that this service is mounted at."""
        root = html.escape(request.scope.get("root_path", "").rstrip("/"))
        static = f"{root}/static/{statics.digest}"
        preloads = "\n".join(f'<link rel="modulepreload" href="{static}/{name}">' for name in statics.preloaded)
        body = statics.page.substitute(root=root, static=static, preloads=preloads).encode()
        return _answer(request, File(body, gzip.compress(body, 6), "text/html; charset=utf-8"), "no-cache")

    async def file(request: Request) -> Response:
        found = statics.files.get(request.path_params["path"])
        # A page of another version has to be loaded anew, instead of going on with half of each.
        if found is None or request.path_params["digest"] != statics.digest:
            raise Problem(404, "this version of the dashboard has no such file; load the page anew")
        return _answer(request, found, FOREVER)

    for path in paths:
        api.add_route(f"/{path}", page, include_in_schema=False)
        if path:
            api.add_route(f"/{path}/{{rest:path}}", page, include_in_schema=False)
    api.add_route("/static/{digest}/{path:path}", file, include_in_schema=False)


def _answer(request: Request, file: File, kept: str) -> Response:
    headers = {"Cache-Control": kept, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.kind, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.kind, headers=headers)


@router.get("/api/dashboard", response_model=DashboardOut)
def dashboard(desk: At, principal: Reader) -> Any:
    """What the pages have to know before they show anything: the screens, and what is turned on here."""
    app = desk.app
    screens = [
        shown(plugin, screen, is_on=plugin.name in app.plugins)
        for plugin in (*app.plugins.values(), *app.offered.values())
        for screen in plugin.screens
        if principal.may(screen.scope)
    ]
    return {
        "version": __version__,
        "screens": screens,
        "trace_url": app.settings.trace_url or None,
        "pending": app.verbs.ground.job_settings.pending_enabled,
    }


def shown(plugin: Plugin[Any, Any], screen: Screen, is_on: bool) -> dict[str, Any]:
    return {
        "app": plugin.name,
        "path": f"/{screen.path}",
        "title": screen.title,
        "script": f"apps/{plugin.name}/{screen.script}",
        "is_on": is_on,
    }
