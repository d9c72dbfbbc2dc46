"""HTTP requests that fall due: calls an endpoint of any program at a given time, with retries.

    from duly.apps.deliver import http
    http.put(url="https://shop.example/hooks/renew", body={"order": 7}, at="2026-12-01T09:00+01:00")

    duly worker duly.apps.deliver:app          # on as many servers as you like

`http_on(app)` puts the same task on an app of your own. How a try ends:

    2xx                                 done; the status and the answer are the item's result
    429, 503 with Retry-After           again when the server says; not a failure
    the rest of `retry_statuses`        a failure: again after 60, 120, 240, 480 seconds, five tries in all
    time-out, broken connection         the same
    any other status, redirects too     to review at once
    an address that is not public       to review at once, unless DULY_OUTBOUND_ALLOW allows it

Every try sends the same `Idempotency-Key`, so a receiver can tell a retry from a second request. URLs are arguments and
not trusted: at put, the guard rejects what it can detect without a resolver; later it checks the very address that is
connected to. Values of headers are stored with the item and are in no error and no log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duly import Duly
from duly.apps import alone
from duly.apps.deliver.requests import DeliverSettings, install
from duly.plugin import Plugin
from duly.tasks.task import Task

if TYPE_CHECKING:
    app: Duly
    http: Task[..., Any]

__all__ = ["DeliverSettings", "http_on", "plugin"]

plugin = Plugin(name="deliver", doc="HTTP requests that fall due.", settings=DeliverSettings, install=install)

# Registers the task `http` on an app.
http_on = plugin.on
__getattr__ = alone(globals(), plugin, http=lambda made: made)
