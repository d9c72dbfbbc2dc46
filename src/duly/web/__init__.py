"""The HTTP service and the dashboard. `asgi(app)` is both as an ASGI app, to be mounted in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from duly import Duly

__all__ = ["asgi"]


def asgi(app: Duly, host: str | None = None) -> FastAPI:
    """The service with its dashboard over this app, for `outer.mount("/duly", asgi(app))`.

    `host` is the address that the outer app listens on; the default is the setting `http_host`. On a loopback address,
    every client on this machine is the local admin. On any other address, users have to sign in.
    """
    from duly.web.api import create_api

    return create_api(app, app.settings.http_host if host is None else host)
