"""Republishes failed messages to the queue they came from, after growing delays, until they go to manual review.

    RABBITMQ_URL=amqp://broker duly retry-service        # as many as you like on PostgreSQL, one on SQLite

    retry.scheduled ─▶ kept in the database ─▶ acknowledged ─▶ due ─▶ published to its queue ─▶ confirmed ─▶ done
                                                                └─▶ retries used up ─▶ manual-review.pending + review

A message is one row for good, found by its id: the same id with a higher count arms it again. With the same or a lower
one it is a repetition and changes nothing while the row waits or runs; once its retry is out and confirmed it has
failed again, whatever it says: its count is then the next one, so that a consumer that does not count loses nothing.
Delays double: 2, 4, 8 … 60 seconds and up to one second of jitter.
`message_retry_on(app)` puts the same on an app of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly import Duly
from duly.apps import alone, shipped
from duly.apps.messages.settings import MessagesSettings, checks, is_broker_named, lacking
from duly.core.errors import ConfigError
from duly.plugin import Parameter, Screen, Simulated

if TYPE_CHECKING:
    from duly.apps.messages.service import MessageRetry
    from duly.virtual.simulation import Simulation

    app: Duly
    messages: MessageRetry

__all__ = ["MessagesSettings", "message_retry_on", "plugin"]


def _install(app: Duly, settings: MessagesSettings) -> MessageRetry:
    try:
        from duly.apps.messages.service import install
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the retry service needs {lacking(error)}, which is not installed: pip install 'duly[rabbitmq]'"
        ) from None
    return install(app, settings)


def _simulated(service: MessageRetry, world: Simulation, messages: int) -> None:
    from duly.apps.messages.simulated import fill

    fill(service, world, messages)


plugin = shipped(
    __name__, "A retry service between RabbitMQ queues.", MessagesSettings, _install, checks=checks,
    metrics=lambda service: vars(service.metrics).values(), is_default=is_broker_named,
    needs="duly[rabbitmq]",
    simulation=Simulated(parameters=(Parameter(name="messages", label="Messages", default=1_000),), fill=_simulated),
    screens=(Screen(path="messages", title="Messages", script="messages.js"),),
)  # fmt: skip

# Registers the task `message_retry` on an app; its workers connect to the broker.
message_retry_on = plugin.on
__getattr__ = alone(globals(), plugin, messages=lambda made: made)
