"""The retry service's connections to the broker: one takes messages in, one publishes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from duly.apps.messages.settings import MessagesSettings
from duly.bridge.consumer import Consumer, Delivery, Queue
from duly.bridge.publisher import Outgoing, Publisher, Receipt

# After so many redeliveries the broker sets a message aside, for it seems to take its consumer down each time.
DELIVERY_LIMIT = 100


class Wire:
    """Both connections, from the start of a worker to its end."""

    def __init__(self, settings: MessagesSettings) -> None:
        self._settings = settings
        self._publisher: Publisher | None = None
        self._consumer: Consumer | None = None

    def start(self, keep: Callable[[Sequence[Delivery]], None], is_store_up: Callable[[], bool]) -> None:
        """Connect, and go on connecting; returns at once. What comes is given to `keep`."""
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # we log broken connections ourselves, in one line
        settings = self._settings
        self._publisher = Publisher(settings.rabbitmq_url, f"{settings.service_name} publisher")
        self._consumer = Consumer(
            settings.rabbitmq_url,
            f"{settings.service_name} consumer",
            queues(settings),
            keep,
            is_store_up,
            prefetch=settings.message_prefetch,
        )
        self._publisher.start()
        self._consumer.start()

    def rest(self) -> None:
        """Take no more messages in; what is due still goes out."""
        if self._consumer is not None:
            self._consumer.stop()

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()

    def trouble(self) -> str | None:
        """What keeps messages from passing."""
        if self._consumer is None or self._publisher is None:
            return None
        return self._consumer.trouble() or self._publisher.link.trouble()

    @property
    def is_consuming(self) -> bool:
        """Whether its queues are there and messages may come."""
        return self._consumer is not None and self._consumer.is_consuming

    def withdraw(self, mark: int) -> None:
        """Take the copy of a message out of the queue for people, for nobody has to look at it any more."""
        if self._publisher is not None:
            self._publisher.withdraw(self._settings.manual_review_queue, mark)

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Publish these, and say what became of each."""
        if not messages:
            return []
        if self._publisher is None:  # the handler was called without a worker
            why = "the retry service is not running: its worker connects to the broker"
            return [Receipt("not_sent", why)] * len(messages)
        return self._publisher.publish(messages)


def queues(settings: MessagesSettings) -> list[Queue]:
    """The queue to consume and the one for people, as they are declared where they do not exist."""
    incoming = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": settings.manual_review_queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # what at-least-once asks for; the queue has no limit
    }
    review = {"x-queue-type": "quorum"}
    return [Queue(settings.retry_queue, incoming), Queue(settings.manual_review_queue, review)]
