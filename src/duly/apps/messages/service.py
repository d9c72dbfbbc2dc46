"""The retry service on one app: its task, its connections to the broker, its metrics, and its parts."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from duly import Attempt, Backoff, Duly, InputError
from duly.apps.messages.dispatch import Dispatch
from duly.apps.messages.intake import MessageIntake
from duly.apps.messages.queries import Queries
from duly.apps.messages.review import Review
from duly.apps.messages.rows import QUEUE, TASK, Rows
from duly.apps.messages.settings import MessagesSettings
from duly.bridge.consumer import Consumer
from duly.bridge.message import Message, queue_problem
from duly.bridge.properties import parse
from duly.bridge.publisher import Outgoing, Publisher, Receipt
from duly.core.errors import DulyError
from duly.core.model import Verdict
from duly.core.shown import Depth
from duly.tasks.task import Task

WINDOW = 100  # messages that are published before their confirms are waited for
TRIES = 4  # tries to publish a message before it goes to review: its queue may come back
# The number of redeliveries after which the broker sets a message aside: it seems to crash its consumer each time.
DELIVERY_LIMIT = 100
# The buckets of the drift, in seconds.
DRIFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)


class MessageRetry:
    """The parts of the service. The worker calls `start`, `rest`, `stop` and `ailing`."""

    def __init__(self, app: Duly, settings: MessagesSettings) -> None:
        self.app = app
        self.settings = settings
        self.metrics = Metrics(app.internals.telemetry.depths)
        self.rows = Rows(settings)
        self.intake = MessageIntake(self)
        self._dispatch = Dispatch(self)
        self.task = self._register()
        self.review = Review(app, settings, self.rows)
        self.queries = Queries(app, settings)
        # Both connect to the broker, from the start of a worker to its end.
        self._publisher: Publisher | None = None
        self._consumer: Consumer | None = None

    def _register(self) -> Task[..., Any]:
        base, cap = self.settings.message_base_delay_ms / 1000, self.settings.message_max_delay_ms / 1000
        retry = Backoff(base=base, cap=cap, tries=TRIES)

        # Internal, because an item of this task is published to any queue that it names.
        @self.app.task(
            name=TASK, queue=QUEUE, batch=WINDOW, retry=retry, trusted=True, internal=True, deadline=900, check=_check
        )
        def message_retry(rows: list[Message], attempts: list[Attempt]) -> list[Verdict | Exception | None]:
            return self._dispatch.send(rows, attempts)

        return message_retry

    def start(self) -> None:
        """Connect in the background, and reconnect after errors; returns at once."""
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # we log broken connections ourselves, in one line
        url, name, prefetch = self.settings.rabbitmq_url, self.settings.service_name, self.settings.message_prefetch
        self._publisher = Publisher(url, f"{name} publisher")
        self._consumer = Consumer(
            url, f"{name} consumer", queues(self.settings), self.intake.keep, self._is_store_up, prefetch
        )
        self._publisher.start()
        self._consumer.start()

    def rest(self) -> None:
        """Stop consuming messages; due messages are still published."""
        if self._consumer is not None:
            self._consumer.stop()

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()

    def ailing(self) -> str | None:
        """What keeps messages from passing."""
        if self._consumer is None or self._publisher is None:
            return None
        return self._consumer.trouble() or self._publisher.trouble()

    @property
    def is_consuming(self) -> bool:
        """Whether its queues are there and messages may come."""
        return self._consumer is not None and self._consumer.is_consuming

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Publish these messages; returns the result of each."""
        if not messages:
            return []
        if self._publisher is None:  # the handler was called without a worker
            why = "the retry service is not running: its worker connects to the broker"
            return [Receipt("not_sent", why)] * len(messages)
        return self._publisher.publish(messages)

    def withdraw(self, mark: int) -> None:
        """Remove the copy of a message from the queue for manual review, because it is settled."""
        if self._publisher is not None:
            self._publisher.withdraw(self.settings.manual_review_queue, mark)

    def _is_store_up(self) -> bool:
        """Whether the database takes writes again; reading is not enough, since messages have to be stored."""
        try:
            self.app.check()
            self.app.internals.store.report(-1, 0, b"0")
        except Exception:
            return False
        return True


def install(app: Duly, settings: MessagesSettings) -> MessageRetry:
    """Register the task `message_retry` on this app; its workers connect to the broker."""
    service = MessageRetry(app, settings)
    app.internals.companions.append(service)
    return service


def queues(settings: MessagesSettings) -> dict[str, dict[str, Any]]:
    """The queue to consume and the one for people, with the arguments to declare them where they do not exist."""
    incoming = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": settings.manual_review_queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # what at-least-once asks for; the queue has no limit
    }
    return {settings.retry_queue: incoming, settings.manual_review_queue: {"x-queue-type": "quorum"}}


def _check(args: dict[str, Any]) -> None:
    """Check a message that was put by code as one that arrives is checked."""
    try:
        b64decode(args["payload"], validate=True)
        parse(b64decode(args["properties"], validate=True)) if args["properties"] else None
    except ValueError as error:
        raise InputError("payload", f"must be base64: {error}") from None
    if args["problem"] is None and (problem := queue_problem(args["queue"])):
        raise InputError("queue", problem)


class Metrics:
    """What the parts of the service count. The plug-in registers all of it on the app."""

    def __init__(self, depths: Callable[[], Sequence[Depth]]) -> None:
        self.scheduled = Counter("retries_scheduled", "Retries that were scheduled.", ["queue"], registry=None)
        self.executed = Counter(
            "retries_executed", "Messages published again, or not: success, failed.", ["queue", "status"], registry=None
        )
        self.exhausted = Counter(
            "retries_exhausted", "Messages moved to manual review after max retries.", ["queue"], registry=None
        )
        self.drift = Histogram(
            "retry_drift_seconds", "From the scheduled time to the broker's confirm.", buckets=DRIFT, registry=None
        )
        self.invalid = Counter("retry_invalid_messages", "Messages that cannot be retried.", registry=None)
        self.repeated = Counter("retry_repeated_messages", "Repeated deliveries of known messages.", registry=None)
        self.depth = _Waiting(depths)


class _Waiting(Collector):
    """The gauge of waiting messages."""

    def __init__(self, depths: Callable[[], Sequence[Depth]]) -> None:
        self._depths = depths

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("retry_queue_depth", "Pending retry tasks.")
        try:
            depths = self._depths()
        except DulyError:
            return
        waiting = sum(
            each.items for each in depths if each.state == "waiting" and each.queue.partition("/")[0] == QUEUE
        )
        depth.add_metric([], waiting)
        yield depth

    def describe(self) -> Iterable[Metric]:
        return ()
