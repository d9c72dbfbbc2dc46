"""`duly retry-service`: the process that retries messages."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import click

from duly.cli import options
from duly.cli.run import ending, lifetime, loaded, probing, serving
from duly.config import imposed, sources
from duly.core.errors import ConfigError

log = logging.getLogger("duly.cli")

APP = "duly.apps.messages:app"
# The drift of a retry is seconds at most, also of one whose service was killed: leases are short.
PROMPT = {"lease_seconds": 2.5, "beat_seconds": 0.5, "sweep_seconds": 1.0}


def _impose_poll(ctx: click.Context, _: click.Parameter, value: int) -> None:
    if "poll_seconds" not in sources():
        ctx.with_resource(imposed(poll_seconds=value / 1000))


@click.command("retry-service", short_help="Retry messages between RabbitMQ queues.")
@lifetime
@options.setting(
    "--database-url", "The database; or DATABASE_URL.", metavar="URL", envvar=["DULY_DATABASE_URL", "DATABASE_URL"]
)
@options.setting("--rabbitmq-url", "The broker; or RABBITMQ_URL.", metavar="URL")
@options.http_host
@options.setting(
    "--http-port", "The port of the service; or HTTP_PORT; 0: none.", type=int, metavar="N",
    envvar=["DULY_HTTP_PORT", "HTTP_PORT"],
)  # fmt: skip
@click.option(
    "--poll-interval-ms", type=click.IntRange(min=10), default=10_000, envvar="RETRY_POLL_INTERVAL_MS", metavar="N",
    expose_value=False, callback=_impose_poll, help="The longest sleep when nothing is known to be due.",
)  # fmt: skip
@options.concurrency
@options.log_level
@options.log_format
def retry_service(seconds: float | None) -> None:
    """Consume the retry queue, keep what comes, publish it again when it is due; serve the API and /metrics.

    All of it by environment: RABBITMQ_URL, RETRY_QUEUE, MANUAL_REVIEW_QUEUE, DEFAULT_MAX_RETRIES, BASE_DELAY_MS,
    MAX_DELAY_MS, RETRY_POLL_INTERVAL_MS, DATABASE_URL, HTTP_PORT, SERVICE_NAME. The database is migrated on the way.
    """
    with ExitStack() as stack:
        known = sources()
        stack.enter_context(imposed(**{name: value for name, value in PROMPT.items() if name not in known}))
        app = stack.enter_context(loaded(APP))
        app.migrate(lambda name: log.info("applied migration %s", name))
        worker = app.worker()
        try:
            stack.enter_context(serving(app, worker.ailing))
        except ConfigError as error:
            # Probes must be reachable even if there is no API key yet.
            log.warning("no API, only /metrics, /healthz and /readyz: %s", error)
            stack.enter_context(probing(app, worker))
        with ending(worker, seconds):
            worker.run()
