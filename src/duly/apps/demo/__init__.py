"""`duly up --demo`: five systems on a scratch database, with those whom they call in this very process.

Everything else is the real thing: the worker, the apps for reminders, a catalog, birthdays and files of products, their
HTTP calls, the service with its dashboard; and the retry service, where a RabbitMQ is within reach.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

from duly.apps import messages
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.demo import shop
from duly.apps.demo.party import Party, minute_to_come
from duly.apps.demo.provider import Provider
from duly.apps.demo.scene import Scene
from duly.apps.demo.shelf import Shelf
from duly.apps.demo.stall import Stall
from duly.apps.demo.view import view
from duly.apps.enrichment import enrichment_on
from duly.cli.run import ending
from duly.cli.serve import serving
from duly.config import imposed
from duly.facade.loading import load_app

REMINDERS = "duly.apps.reminders:app"


def run_demo(seconds: float | None) -> None:
    """Play until Ctrl-C, or for so many seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-demo-")))
        logging.basicConfig(filename=folder / "demo.log", level=logging.INFO, force=True)
        provider = stack.enter_context(Provider())
        broker = shop.reachable()
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
                birthdays_at=minute_to_come(),
                **({"message_base_delay_ms": 1_500, **shop.queues()} if broker else {}),
            )
        )
        app = load_app(REMINDERS)
        stack.callback(app.close)
        enrichment_on(app)
        plays = [
            Scene(app, provider).play, Stall(app).play, Shelf(catalog_on(app)).play,
            Party(birthdays_on(app), provider).play,
        ]  # fmt: skip
        if broker:
            messages.message_retry_on(app)
            stack.enter_context(shop.Shop(app, broker))
        else:
            app.offered[messages.plugin.name] = messages.plugin
        worker = app.worker()
        signal.signal(signal.SIGHUP, lambda *_: worker.stop())  # a closed terminal leaves nothing behind
        service = stack.enter_context(serving(app, worker.ailing))

        def play() -> None:
            for each in plays:
                each()

        play()
        stack.enter_context(ending(worker, seconds))
        stack.enter_context(view(app, worker, play, service.url if service else None))
        worker.run()
