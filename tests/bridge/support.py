"""The retry service in this process, and a broker to talk to it through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pika

from duly import Duly
from duly.apps.messages import message_retry_on
from duly.apps.messages.service import MessageRetry
from duly.bridge.retry_message_pb2 import RetryMessage

QUICK = {"lease_seconds": 2.0, "beat_seconds": 0.5, "sweep_seconds": 0.5, "message_base_delay_ms": 50}
INCOMING, REVIEW = "retry.scheduled", "manual-review.pending"


def retry_message(**fields: Any) -> bytes:
    given = {"message_id": str(uuid4()), "original_payload": b"hello", "original_queue": "orders"}
    return RetryMessage(**{**given, "error_reason": "boom", **fields}).SerializeToString()


class Got:
    """A message from a queue."""

    def __init__(self, properties: Any, body: bytes) -> None:
        self.properties = properties
        self.headers: dict[str, Any] = properties.headers or {}
        self.body = body


class Broker:
    """One connection of a client with another library."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self._connection.channel()
        self.channel.confirm_delivery()

    def declare(self, name: str = "orders", **more: Any) -> None:
        self.channel.queue_declare(name, durable=True, **more)

    def send(self, body: bytes, queue: str = INCOMING, **properties: Any) -> None:
        """Publish, once the service has declared its queue."""
        patiently(lambda: self.exists(queue))
        patiently(lambda: self._is_taken(queue, body, properties))

    def _is_taken(self, queue: str, body: bytes, properties: dict[str, Any]) -> bool:
        try:
            self.channel.basic_publish("", queue, body, pika.BasicProperties(**properties), mandatory=True)
        except pika.exceptions.NackError:  # a queue that was declared a moment ago has no leader yet
            return False
        return True

    def exists(self, queue: str) -> bool:
        probe = self._connection.channel()
        try:
            probe.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        probe.close()
        return True

    def get(self, queue: str = "orders", seconds: float = 120) -> Got:
        """The next message of a queue, which must come."""
        return patiently(lambda: self.look(queue), seconds, f"a message in {queue}")

    def look(self, queue: str) -> Got | None:
        if not self.exists(queue):
            return None
        method, properties, body = self.channel.basic_get(queue, auto_ack=True)
        return Got(properties, body) if method else None

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()


@contextmanager
def broker_at(url: str) -> Iterator[Broker]:
    one = Broker(url)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def service_at(database_url: str, rabbitmq_url: str, **settings: Any) -> Iterator[MessageRetry]:
    """The retry service with a worker of its own."""
    app = Duly(database_url, rabbitmq_url=rabbitmq_url, **{**QUICK, **settings})
    service = message_retry_on(app)
    worker = app.worker()
    worker.start()
    try:
        patiently(lambda: service.is_consuming, 60, "the service")
        yield service
    finally:
        worker.stop()
        worker.drain()
        app.close()


def patiently(what: Callable[[], Any], seconds: float = 120, name: str = "it") -> Any:
    """Wait until something shows, and fail when it does not."""
    give_up = time.monotonic() + seconds
    while not (seen := what()):
        assert time.monotonic() < give_up, f"{name} did not come within {seconds} s"
        time.sleep(0.02)
    return seen
