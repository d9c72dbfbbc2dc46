"""`duly up --demo`: the five apps on a scratch database, with a stand-in for the servers that they call.

Everything else is real: the worker, the apps, their HTTP calls, and the service with its dashboard. The retry service
runs if a RabbitMQ can be reached.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.demo import scenes
from duly.apps.demo.provider import Provider
from duly.apps.demo.view import view
from duly.apps.enrichment import enrichment_on
from duly.apps.messages import message_retry_on
from duly.apps.messages import plugin as retry_service
from duly.cli.run import ending, serving
from duly.config import imposed
from duly.facade.loading import load_app

REMINDERS = "duly.apps.reminders:app"


def run_demo(seconds: float | None) -> None:
    """Run until Ctrl-C, or for this many seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-demo-")))
        logging.basicConfig(filename=folder / "demo.log", level=logging.INFO, force=True)
        provider = stack.enter_context(Provider())
        broker = scenes.reachable_broker()
        soon = datetime.now(UTC) + timedelta(minutes=2)
        stack.enter_context(
            imposed(
                database_url=f"sqlite:///{folder / 'demo.db'}",
                vapi_base_url=provider.url,
                vapi_timeout_seconds=5.0,
                retry_base_seconds=2.0,
                retry_tries=3,
                files_url=str(folder / "files"),
                enrichment_base_url=provider.url,
                enrichment_not_found_seconds=1.0,
                enrichment_calls_at_a_time=3,
                pending_enabled=True,
                catalog_base_url=provider.url,
                catalog_calls_per_minute=30,
                catalog_max_consecutive_failures=2,
                birthdays_webhook_url=f"{provider.url}/greetings",
                birthdays_at=f"{soon:%H:%M}",
                message_base_delay_ms=1_500,
                retry_queue=scenes.RETRY,
                manual_review_queue=scenes.REVIEW,
            )
        )
        app = load_app(REMINDERS)
        stack.callback(app.close)
        enrichment_on(app)
        scenario = scenes.Scenario(
            app.clock, scenes.reminders(app, provider), scenes.files(app), scenes.catalog(catalog_on(app)),
            scenes.birthdays(birthdays_on(app), provider),
        )  # fmt: skip
        if broker:
            message_retry_on(app)
            stack.enter_context(scenes.beside(partial(scenes.orders, broker), "duly-shop"))
        else:
            app.internals.offered[retry_service.name] = retry_service
        worker = app.worker()
        signal.signal(signal.SIGHUP, lambda *_: worker.stop())  # a closed terminal leaves nothing behind
        service = stack.enter_context(serving(app, worker.ailing))
        scenario.step()
        stack.enter_context(ending(worker, seconds))
        stack.enter_context(view(app, worker, scenario.step, service.url if service else None))
        worker.run()
