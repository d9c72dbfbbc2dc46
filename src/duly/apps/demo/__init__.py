"""`duly up --demo`: the five apps on a scratch database, with a stand-in for the servers that they call.

Everything else is real: the worker, the apps, their HTTP calls, and the service with its dashboard. The retry service
runs if a RabbitMQ can be reached.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.demo.birthdays import BirthdayDemo, soon
from duly.apps.demo.catalog import CatalogDemo
from duly.apps.demo.files import FileDemo
from duly.apps.demo.messages import MessageDemo, queues, reachable
from duly.apps.demo.provider import Provider
from duly.apps.demo.reminders import ReminderDemo
from duly.apps.demo.view import view
from duly.apps.enrichment import enrichment_on
from duly.apps.messages import message_retry_on
from duly.apps.messages import plugin as messages
from duly.cli.run import ending
from duly.cli.serve import serving
from duly.config import imposed
from duly.facade.loading import load_app

REMINDERS = "duly.apps.reminders:app"


def run_demo(seconds: float | None) -> None:
    """Run until Ctrl-C, or for this many seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-demo-")))
        logging.basicConfig(filename=folder / "demo.log", level=logging.INFO, force=True)
        provider = stack.enter_context(Provider())
        broker = reachable()
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
                birthdays_at=soon(),
                **({"message_base_delay_ms": 1_500, **queues()} if broker else {}),
            )
        )
        app = load_app(REMINDERS)
        stack.callback(app.close)
        enrichment_on(app)
        demos = (
            ReminderDemo(app, provider), FileDemo(app), CatalogDemo(catalog_on(app)),
            BirthdayDemo(birthdays_on(app), provider),
        )  # fmt: skip
        if broker:
            message_retry_on(app)
            stack.enter_context(MessageDemo(app, broker))
        else:
            app.offered[messages.name] = messages
        worker = app.worker()
        signal.signal(signal.SIGHUP, lambda *_: worker.stop())  # a closed terminal leaves nothing behind
        service = stack.enter_context(serving(app, worker.ailing))

        def step() -> None:
            for each in demos:
                each.step()

        step()
        stack.enter_context(ending(worker, seconds))
        stack.enter_context(view(app, worker, step, service.url if service else None))
        worker.run()
