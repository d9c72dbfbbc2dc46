"""A consumer of orders that fail sometimes, with the retry service behind it. It runs if a broker can be reached."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from typing import Any
from uuid import uuid4

from duly.apps.messages import MessagesSettings
from duly.apps.messages.settings import broker_trouble
from duly.config import section

log = logging.getLogger("duly.demo")

NEW_EVERY = 3.0  # seconds between two orders
# How often each order fails before it succeeds; the last one always fails.
ORDERS = (("Tea for two", 1), ("A red bicycle", 0), ("Socks, size 43", 2), ("A book about queues", 99))
# Names of queues that nobody else uses.
QUEUE, RETRY, REVIEW = (f"duly-demo-{os.getpid()}.{name}" for name in ("orders", "retry", "review"))


def reachable() -> str | None:
    """The URL of the broker in the settings; None if it cannot be reached, or its client is not installed."""
    url = section(MessagesSettings).rabbitmq_url
    return url if broker_trouble(url) is None else None


def orders(url: str, over: threading.Event) -> None:
    """Consume orders, and send those that fail to the retry service."""
    import pika

    while not over.is_set():
        with suppress(pika.exceptions.AMQPError, OSError):
            _work(pika.BlockingConnection(pika.URLParameters(url)), over)
        over.wait(1)


def _work(connection: Any, over: threading.Event) -> None:
    channel = connection.channel()
    channel.queue_declare(QUEUE, exclusive=True)
    number = 0
    for method, properties, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=NEW_EVERY):
        if over.is_set():
            break
        if method is None:
            channel.basic_publish("", QUEUE, ORDERS[number % len(ORDERS)][0].encode())
            number += 1
        else:
            _handle(channel, body, properties.headers or {})
    channel.cancel()
    for name in (RETRY, REVIEW):
        channel.queue_delete(name)
    connection.close()


def _handle(channel: Any, body: bytes, headers: dict[str, Any]) -> None:
    from duly.bridge.retry_message_pb2 import RetryMessage

    count = headers.get("x-retry-count", 0)
    if count >= dict(ORDERS).get(body.decode(), 0):
        log.info("order handled: %s", body)
        return
    failed = RetryMessage(
        message_id=headers.get("x-retry-message-id") or str(uuid4()),
        original_payload=body,
        original_queue=QUEUE,
        error_reason="out of stock",
        retry_count=count,
    )
    channel.basic_publish("", RETRY, failed.SerializeToString())
