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


class Search:
    """A search on its own channel for the message with this header value."""

    def __init__(self, queue: str, header: str, value: int) -> None:
        self._queue = queue
        self._header = header
        self._value = value
        self._messages = 0
        self._bytes = 0

    def begin(self, channel: Any) -> None:
        channel.add_callback(lambda _: self._end(channel), [Basic.GetEmpty])
        self._look(channel)

    def _look(self, channel: Any) -> None:
        channel.basic_get(self._queue, self._on_message)

    def _on_message(self, channel: Any, method: Any, properties: Properties, body: bytes) -> None:
        if properties.header(self._header) == self._value:
            channel.basic_ack(method.delivery_tag)
            self._end(channel)
            return
        self._messages += 1
        self._bytes += len(body)
        count = properties.header("x-delivery-count")
        is_worn = isinstance(count, int) and count >= MOST_DELIVERIES
        if is_worn or self._messages >= MOST or self._bytes >= MOST_BYTES:
            log.info("stopped searching for the copy of message %s in %s", self._value, self._queue)
            self._end(channel)
        else:
            self._look(channel)

    def _end(self, channel: Any) -> None:
        if channel.is_open:
            channel.close()
