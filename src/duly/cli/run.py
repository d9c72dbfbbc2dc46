"""`duly up`, `duly worker` and `duly serve`: processes that run until a signal ends them."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import click

from duly import Duly
from duly.cli import options
from duly.cli.session import BUILT_IN
from duly.config import sources
from duly.core.errors import ConfigError, DulyError
from duly.core.settings import Settings
from duly.facade.loading import load_app
from duly.telemetry.logs import set_up_logs

if TYPE_CHECKING:
    from duly.engine.worker import Worker
    from duly.web.server import Service

log = logging.getLogger("duly.cli")

EXTRA = frozenset(("fastapi", "pydantic", "starlette", "uvicorn"))
DEMO = "duly.apps.demo:run_demo"  # by name, because the command line imports no app

lifetime = click.option(
    "--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop after this time."
)


@click.command(short_help="Run the tasks of an app.")
@click.argument("spec", metavar="MODULE:APP", envvar="DULY_APP")
@click.option("--tasks", metavar="A,B", help="Only these tasks.")
@options.concurrency
@options.database_url
@options.http_host
@options.http_port
@options.log_level
@options.log_format
def worker(spec: str, tasks: str | None) -> None:
    """Run the tasks of an app until SIGTERM or Ctrl-C; a second one stops at once.

    MODULE:APP is such as shop.work:app, or a file: work.py:app. Metrics and probes are served when a port is given.
    """
    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    with ExitStack() as stack:
        app = stack.enter_context(loaded(spec))
        faulthandler.register(signal.SIGUSR1)
        one = app.worker(names)
        if _is_port_said(app):
            stack.enter_context(probing(app, one))
        trouble = one.run(is_replaced=True)
    if trouble is not None:
        replace_process(trouble)
    _leave()


def replace_process(trouble: str) -> None:
    """Start this program anew in this process, which ends all its threads. It keeps its id, for those that watch it."""
    for number in (signal.SIGTERM, signal.SIGINT):  # one that comes now ends the process, instead of being forgotten
        signal.signal(number, signal.SIG_DFL)
    command = [sys.executable, *sys.orig_argv[1:]]
    log.warning("starting anew: %s", trouble, extra={"command": command[1:]})
    logging.shutdown()
    try:
        os.execv(sys.executable, command)  # noqa: S606 - our own command line
    except OSError as error:
        log.error("cannot start anew (%s); ending, so that whatever started this process starts it again", error)
        os._exit(os.EX_TEMPFAIL)


def _leave() -> None:
    """End the process now: a normal exit would wait for threads of handlers whose items were released."""
    if any(thread.name.startswith(("asyncio_", "ThreadPoolExecutor")) for thread in threading.enumerate()):
        log.warning("exiting, although some handlers have not stopped")
        logging.shutdown()
        os._exit(0)


@click.command(short_help="Migrate, run a worker and serve, in one process.")
@click.argument("spec", metavar="[MODULE:APP]", required=False, envvar="DULY_APP")
@click.option("--demo", is_flag=True, help="Run demo apps on a scratch database.")
@lifetime
@options.concurrency
@options.database_url
@options.http_host
@options.service_port
@options.log_level
@options.log_format
def up(spec: str | None, demo: bool, seconds: float | None) -> None:
    """Everything in one process: migrate, work, and serve the API, /metrics, /healthz and /readyz on port 8086.

    Without MODULE:APP it runs the apps that are installed, or those that DULY_APPS names.
    """
    if demo:
        resolve_name(DEMO)(seconds)
        return
    with loaded(spec or BUILT_IN) as app:
        app.migrate(lambda name: log.info("applied migration %s", name))
        one = app.worker()
        with serving(app, one.ailing):
            with ending(one, seconds):
                trouble = one.run(is_replaced=seconds is None)  # otherwise the time would begin anew
            Signals(1)  # a second signal ends the process while the service finishes its requests
    if trouble is not None:
        replace_process(trouble)


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
    with loaded(spec or BUILT_IN) as app:
        signals = Signals()
        app.check()
        with serving(app) as service:
            if service is None:
                raise ConfigError("http_port: 0 means no port; choose one with --http-port or DULY_HTTP_PORT")
            while not signals.count:
                if not service.is_alive:
                    raise DulyError("the service ended unexpectedly; see its log")
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
            "`duly worker` does not need it"
        ) from None
    with Service(app, settings.http_host, settings.http_port, ailing) as service:
        click.echo(f"dashboard at {service.shown_url}")
        log.info("service at %s", service.url)
        yield service


@contextmanager
def loaded(spec: str) -> Iterator[Duly]:
    """The app that a process runs, with logging configured by its settings."""
    with closing(load_app(spec)) as app:
        set_up_logs(app.settings.log_level, app.settings.log_format)
        yield app


@contextmanager
def probing(app: Duly, worker: Worker) -> Iterator[str | None]:
    """Serve the probes of this process until the end of the block; gives their URL, or None if they are off."""
    settings = app.settings
    if not settings.http_port:
        yield None
        return
    from duly.web.probe import Probe

    with Probe(app, settings.http_host, settings.http_port, worker.ailing) as probe:
        log.info("metrics and probes at %s", probe.url)
        yield probe.url


@contextmanager
def ending(worker: Worker, seconds: float | None) -> Iterator[None]:
    """Stop the worker after this many seconds; with None, never."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, worker.stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_port_said(app: Duly) -> bool:
    """Whether the port was set, for by default several workers on one host would want the same port."""
    return "http_port" in sources() or app.settings.http_port != Settings.http_port
