"""`duly up` and `duly worker`: processes that run until a signal ends them."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import click

from duly.cli import options
from duly.cli.serve import Signals, serving, set_up_logs
from duly.cli.session import BUILT_IN

if TYPE_CHECKING:
    from duly import Duly
    from duly.engine.worker import Worker

log = logging.getLogger("duly.cli")

DEMO = "duly.apps.demo:run_demo"  # by name, because the command line imports no app

lifetime = click.option(
    "--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop after this time."
)


@click.command(short_help="Run the tasks of an app.")
@click.argument("spec", metavar="MODULE:APP", envvar="DULY_APP")
@click.option("--tasks", metavar="A,B", help="Only these tasks.")
@options.concurrency
@options.database_url
@options.http_port
@options.log_level
@options.log_format
def worker(spec: str, tasks: str | None) -> None:
    """Run the tasks of an app until SIGTERM or Ctrl-C; a second one stops at once.

    MODULE:APP is such as shop.work:app, or a file: work.py:app. Metrics and probes are served when a port is given.
    """
    from duly.facade.loading import load_app

    app = load_app(spec)
    set_up_logs(app)
    faulthandler.register(signal.SIGUSR1)
    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    with ExitStack() as stack:
        stack.callback(app.close)
        one = app.worker(names)
        if _is_port_said(app):
            stack.enter_context(probing(app, one))
        one.run()
    _leave()


def _leave() -> None:
    """End the process now: a normal exit would wait for threads of handlers whose items were given back."""
    if any(thread.name.startswith(("asyncio_", "ThreadPoolExecutor")) for thread in threading.enumerate()):
        log.warning("leaving handlers behind that did not stop")
        logging.shutdown()
        os._exit(0)


@click.command(short_help="Migrate, work and serve, in one process.")
@click.argument("spec", metavar="[MODULE:APP]", required=False, envvar="DULY_APP")
@click.option(
    "--demo",
    is_flag=True,
    help="Made-up work on a scratch database that falls due, fails, is retried and ends in review.",
)
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
    from duly.facade.loading import load_app

    app = load_app(spec or BUILT_IN)
    set_up_logs(app)
    with ExitStack() as stack:
        stack.callback(app.close)
        app.migrate(lambda name: log.info("applied migration %s", name))
        one = app.worker()
        stack.enter_context(serving(app, one.ailing))
        with ending(one, seconds):
            one.run()
        Signals(1)  # a second signal ends the process while the service finishes its requests


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
    """Stop the worker after so many seconds; with None, never."""
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
    from duly.config import sources
    from duly.core.settings import Settings

    return "http_port" in sources() or app.settings.http_port != Settings.http_port
