"""A consumer of orders that fail sometimes, with the retry service behind it. It runs if a broker can be reached."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from typing import Any
from uuid import uuid4

from duly.apps.messages import MessagesSettings
from duly.apps.messages.broker import trouble
from duly.config import section
from duly.facade.app import Duly

log = logging.getLogger("duly.demo")

NEW_EVERY = 3.0  # seconds between two orders
# How often each order fails before it succeeds; the last one always fails.
ORDERS = (("Tea for two", 1), ("A red bicycle", 0), ("Socks, size 43", 2), ("A book about queues", 99))


def queues() -> dict[str, str]:
    """Names of queues that nobody else uses, as settings."""
    name = f"duly-demo-{os.getpid()}"
    return {"retry_queue": f"{name}.retry", "manual_review_queue": f"{name}.review"}


def reachable() -> str | None:
    """The URL of the broker in the settings; None if it cannot be reached, or its client is not installed."""
    url = section(MessagesSettings).rabbitmq_url
    return url if trouble(url) is None else None


class MessageDemo:
    """Consumes orders, and sends those that fail to the retry service."""

    def __init__(self, app: Duly, url: str) -> None:
        self._settings = app.section(MessagesSettings)
        self._url = url
        self._orders = f"duly-demo-{os.getpid()}.orders"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duly-shop", daemon=True)

    def __enter__(self) -> MessageDemo:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _run(self) -> None:
        import pika

        while not self._over.is_set():
            with suppress(pika.exceptions.AMQPError, OSError):
                self._work(pika.BlockingConnection(pika.URLParameters(self._url)))
            self._over.wait(1)

    def _work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.queue_declare(self._orders, exclusive=True)
        number = 0
        for method, properties, body in channel.consume(self._orders, auto_ack=True, inactivity_timeout=NEW_EVERY):
            if self._over.is_set():
                break
            if method is None:
                text, _ = ORDERS[number % len(ORDERS)]
                channel.basic_publish("", self._orders, text.encode())
                number += 1
            else:
                self._handle(channel, body, properties.headers or {})
        channel.cancel()
        for name in (self._settings.retry_queue, self._settings.manual_review_queue):
            channel.queue_delete(name)
        connection.close()

    def _handle(self, channel: Any, body: bytes, headers: dict[str, Any]) -> None:
        from duly.bridge.retry_message_pb2 import RetryMessage

        count = headers.get("x-retry-count", 0)
        failures = dict(ORDERS).get(body.decode(), 0)
        if count >= failures:
            log.info("order handled: %s", body)
            return
        failed = RetryMessage(
            message_id=headers.get("x-retry-message-id") or str(uuid4()),
            original_payload=body,
            original_queue=self._orders,
            error_reason="out of stock",
            retry_count=count,
        )
        channel.basic_publish("", self._settings.retry_queue, failed.SerializeToString())
