"""Simulated messages: each fails once, is published again when its retry is due, and may fail again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from duly import Fingerprint, Snooze
from duly.bridge.message import Message
from duly.bridge.publisher import CONFIRMED
from duly.core.model import Done, Item, NewItem
from duly.tasks.task import Task

if TYPE_CHECKING:
    from duly.apps.messages.service import MessageRetry
    from duly.engine.calls import Verdicts
    from duly.virtual.simulation import Simulation

GOLDEN = 0.6180339887498949  # its multiples, without their whole parts, are spread evenly from 0 to 1
QUEUE = "orders"


def fill(service: MessageRetry, world: Simulation, messages: int) -> None:
    """Fill a simulation with this many messages that fail, evenly over its time.

    The handler publishes to a broker that takes everything. Then the model decides whether a message fails again: its
    next retry is a new item, as a delivery of it would arm it again. In an outage the broker is away.
    """
    begin, long = world.clock.now(), world.until - world.clock.now()

    def row(message: Message, at: datetime) -> NewItem:
        """The row of a message that failed then, without jitter: the same seed gives the same days."""
        made = service.rows.of(message, at)
        wait = 0.0 if message.is_exhausted else service.rows.backoff(message.retry_count, message.queue)
        return replace(made, due_at=at + timedelta(seconds=wait), version=None)

    def answer(task: Task[..., Any], items: Sequence[Item]) -> Verdicts:
        if away := world.upstream.out_for():
            return [Snooze(away)] * len(items)
        verdicts = list(world.call(task, items))
        for place, (item, verdict) in enumerate(zip(items, verdicts, strict=True)):
            if isinstance(verdict, Done) and world.upstream.fails():
                message = msgspec.json.decode(item.args, type=Message)
                again = replace(message, retry_count=message.retry_count + 1)
                verdicts[place] = Fingerprint("failed again", then=[row(again, world.clock.now())])
        return verdicts

    setattr(service, "publish", lambda outgoing: [CONFIRMED] * len(outgoing))  # noqa: B010 - of this instance only
    world.answer = answer
    for n in range(messages):
        message = Message(
            payload="", queue=QUEUE, message_id=f"simulated-{n}", max_retries=service.rows.retries(QUEUE),
            reason="simulated failure",
        )  # fmt: skip
        service.app.internals.place(row(message, begin + long * (n * GOLDEN % 1)))
