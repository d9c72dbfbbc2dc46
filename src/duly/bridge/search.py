"""Takes one message out of a queue in which others wait, and leaves those in the queue.

A broker delivers messages from the head of a queue only. So they are taken one by one, without acknowledging them,
until the message that is looked for has come, which is acknowledged. Closing the channel requeues all others. A classic
queue puts them back in their places. A quorum queue keeps them at its head, but not always in their order.
"""

from __future__ import annotations

import logging
from typing import Any

from pika.spec import Basic

from duly.bridge.properties import Properties

log = logging.getLogger("duly.bridge")

# A search ends after this many messages, and after this many bytes.
MOST, MOST_BYTES = 1_000, 16 * 1024 * 1024
# A quorum queue counts how often a message was handed out, and drops it when a limit is reached, which may be 20.
MOST_DELIVERIES = 10


def take_out(channel: Any, queue: str, header: str, value: int) -> None:
    """Search on this channel, which is closed afterwards, for the message whose header has this value."""
    messages = size = 0

    def on_message(_: Any, method: Any, properties: Properties, body: bytes) -> None:
        nonlocal messages, size
        if properties.header(header) == value:
            channel.basic_ack(method.delivery_tag)
            end()
            return
        messages, size = messages + 1, size + len(body)
        count = properties.header("x-delivery-count")
        is_worn = isinstance(count, int) and count >= MOST_DELIVERIES
        if is_worn or messages >= MOST or size >= MOST_BYTES:
            log.info("stopped searching for the copy of message %s in %s", value, queue)
            end()
        else:
            channel.basic_get(queue, on_message)

    def end(*_: Any) -> None:
        if channel.is_open:
            channel.close()

    channel.add_callback(end, [Basic.GetEmpty])
    channel.basic_get(queue, on_message)
