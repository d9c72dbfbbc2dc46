"""`duly serve`: the service without a worker; and the service that `duly up` runs beside one."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from duly.cli import options
from duly.cli.session import BUILT_IN
from duly.core.errors import ConfigError, DulyError

if TYPE_CHECKING:
    from duly import Duly
    from duly.web.server import Service

log = logging.getLogger("duly.cli")

EXTRA = frozenset(("fastapi", "pydantic", "starlette", "uvicorn"))


@click.command(short_help="Serve the HTTP API, without a worker.")
@click.argument("spec", metavar="[MODULE:APP]", required=False, envvar="DULY_APP")
@options.database_url
@options.http_host
@options.service_port
@options.log_level
@options.log_format
def serve(spec: str | None) -> None:
    """Serve the HTTP API, /metrics, /healthz and /readyz on port 8086 until SIGTERM or Ctrl-C; workers run elsewhere.

    Without MODULE:APP it serves the apps that are installed, or those that DULY_APPS names. SQLite is migrated on the
    way; PostgreSQL by `duly migrate`.
    """
    from duly.facade.loading import load_app

    app = load_app(spec or BUILT_IN)
    set_up_logs(app)
    with ExitStack() as stack:
        stack.callback(app.close)
        signals = Signals()
        app.check()
        service = stack.enter_context(serving(app))
        if service is None:
            raise ConfigError("http_port: 0 is nowhere; choose a port with --http-port or DULY_HTTP_PORT")
        while not signals.count:
            if not service.is_alive:
                raise DulyError("the service ended by itself; its log says why")
            time.sleep(0.1)
        log.info("stopping: finishing the requests under way")
        app.internals.store.hasten()
    log.info("the service at %s stopped", service.url)


class Signals:
    """Counts SIGTERM and SIGINT. The second one ends the process at once; clients can repeat their requests safely."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._came)

    def _came(self, number: int, _: object) -> None:
        # Only count: a signal handler that takes a lock could wait for the very thread that it interrupted.
        self.count += 1
        if self.count > 1:
            os._exit(128 + number)


@contextmanager
def serving(app: Duly, ailing: Callable[[], str | None] = lambda: None) -> Iterator[Service | None]:
    """Serve this app until the end of the block, or not at all when the port is 0. The database must be migrated."""
    settings = app.settings
    if not settings.http_port:
        yield None
        return
    try:
        from duly.web.server import Service
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise ConfigError(
            f"the service needs {error.name}, which is not installed: pip install 'duly[server]'; "
            "`duly worker` does without"
        ) from None
    with Service(app, settings.http_host, settings.http_port, ailing) as service:
        click.echo(f"dashboard at {service.shown_url}")
        log.info("service at %s", service.url)
        yield service


def set_up_logs(app: Duly) -> None:
    from duly.telemetry.logs import set_up_logs

    set_up_logs(app.settings.log_level, app.settings.log_format)
