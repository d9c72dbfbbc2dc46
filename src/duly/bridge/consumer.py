"""Takes messages from the broker in batches, and acknowledges them once they have been committed to the database.

    broker ─▶ link's thread ─▶ a deque ─▶ keeper's thread: keep(batch), commit ─▶ link's thread: ack up to the last

If a batch cannot be committed because the database is away, the channel is closed, so that the broker gets all of its
messages back, and nothing is consumed until the database answers again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from duly.bridge.link import Link
from duly.bridge.properties import Properties
from duly.core.errors import StoreUnavailable

log = logging.getLogger("duly.bridge")

# After each pause the same messages are delivered again, and brokers count that. So pauses grow until one succeeds.
FIRST_REST, LONGEST_REST = 0.2, 60.0
PROBE_EVERY = 1.0
# A batch has at most this many messages, and ends with the message that makes it this large.
BATCH, BATCH_BYTES = 500, 16 * 1024 * 1024


class Delivery(Struct, frozen=True):
    """A message as the broker delivered it."""

    body: bytes
    properties: Properties


class Consumer(Link):
    def __init__(
        self,
        url: str,
        name: str,
        queues: Mapping[str, dict[str, Any]],
        keep: Callable[[list[Delivery]], None],
        is_store_up: Callable[[], bool],
        prefetch: int,
    ) -> None:
        super().__init__(url, name)
        self._queues = queues  # each with its arguments, if it has to be declared; the first one is consumed
        self._queue = next(iter(queues))
        self._keep = keep
        self._is_store_up = is_store_up
        self._prefetch = prefetch
        self._consuming: Any = None  # the channel that messages come by
        self._tag: str | None = None
        # Each delivery with its channel and tag; on another channel the same tag would acknowledge another message.
        self._come: deque[tuple[Any, int, Delivery]] = deque()
        self._news = threading.Event()
        self._resting: str | None = None
        self._rest_pause = FIRST_REST
        self._keeper = threading.Thread(target=self._keep_all, name="duly-keeper-of-messages", daemon=True)

    def start(self) -> None:
        super().start()
        self._keeper.start()

    def stop(self) -> None:
        """Consume nothing more; what was not acknowledged stays with the broker."""
        self._stopping.set()
        self._news.set()
        self._keeper.join(30)
        super().stop()

    @property
    def is_consuming(self) -> bool:
        return self._tag is not None

    def trouble(self) -> str | None:
        if self._resting is not None:
            return f"not consuming while the database is away: {self._resting}"
        return super().trouble() if not self.is_open else None

    # -- on the link's thread

    def opened(self, channel: Any) -> None:
        if self._resting is None:
            self._declare(channel, list(self._queues.items()))

    def closed(self, reason: str, is_refusal: bool) -> None:
        self._consuming = self._tag = None
        self._come.clear()

    def _declare(self, channel: Any, left: list[tuple[str, dict[str, Any]]]) -> None:
        """Declare these queues one after the other, unless they exist, and then consume the first."""
        if not channel.is_open:
            return
        if not left:
            self._consume(channel)
            return
        (queue, arguments), *others = left

        def ask(other: Any) -> None:
            other.queue_declare(queue, passive=True, callback=lambda _: found(other))

        def found(other: Any) -> None:
            other.close()
            go_on()

        def missing() -> None:
            if channel.is_open:
                log.info("declaring queue %s", queue)
                channel.queue_declare(queue, durable=True, arguments=arguments, callback=go_on)

        def go_on(*_: Any) -> None:
            self._declare(channel, others)

        self.another_channel(ask, missing)

    def _consume(self, channel: Any) -> None:
        self._consuming = channel
        channel.add_on_cancel_callback(lambda _: self._cancelled(channel))
        channel.basic_qos(prefetch_count=self._prefetch, callback=lambda _: self._begin(channel))

    def _begin(self, channel: Any) -> None:
        self._tag = channel.basic_consume(self._queue, self._on_message)

    def _cancelled(self, channel: Any) -> None:
        """The queue was deleted, so open a new channel, which declares it again."""
        log.warning("queue %s was deleted", self._queue)
        channel.close()

    def _on_message(self, channel: Any, method: Any, properties: Properties, body: bytes) -> None:
        self._come.append((channel, method.delivery_tag, Delivery(body, properties)))
        self._news.set()

    def _ack(self, channel: Any, tag: int) -> None:
        if channel is self._consuming and channel.is_open:
            channel.basic_ack(tag, multiple=True)

    # -- on the keeper's thread

    def _keep_all(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(1.0)
            self._news.clear()
            while batch := self._take():
                if self._stopping.is_set():
                    return
                self._keep_one(batch)

    def _take(self) -> list[tuple[Any, int, Delivery]]:
        batch: list[tuple[Any, int, Delivery]] = []
        size = 0
        while len(batch) < BATCH and size < BATCH_BYTES:
            try:
                each = self._come.popleft()
            except IndexError:
                break
            if batch and each[0] is not batch[0][0]:  # it came by a newer channel; the broker has the older ones back
                batch, size = [], 0
            batch.append(each)
            size += len(each[2].body)
        return batch

    def _keep_one(self, batch: list[tuple[Any, int, Delivery]]) -> None:
        channel, last, _ = batch[-1]
        try:
            self._keep([delivery for _, _, delivery in batch])
        except StoreUnavailable as error:
            self._rest(str(error))
        except Exception as error:  # nothing is lost, because the messages stay with the broker
            log.exception("cannot store %d messages; they stay with the broker", len(batch))
            self._rest(f"{type(error).__name__}: {error}")
        else:
            self._rest_pause = FIRST_REST
            self.call(lambda: self._ack(channel, last))

    def _rest(self, why: str) -> None:
        """Leave all messages with the broker until the database is back."""
        log.warning("stopped consuming until the database answers: %s", why)
        self._resting = why
        self.call(self.reopen)
        pause, self._rest_pause = self._rest_pause, min(self._rest_pause * 2, LONGEST_REST)
        while not self._stopping.wait(pause) and not self._is_store_up():
            pause = min(pause * 2, PROBE_EVERY)
        self._resting = None
        if not self._stopping.is_set():
            log.info("consuming again")
            self.call(self.reopen)
