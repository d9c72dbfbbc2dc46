"""Messages in: deliveries of the broker are read and stored, for manual review if they cannot be retried."""

from __future__ import annotations

import itertools
import logging
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from duly import Attempt, Snooze
from duly.apps.messages.rows import TASK_RANK, about, label
from duly.bridge.consumer import Delivery
from duly.bridge.contract import clean, original, read, stated_count, stated_route
from duly.bridge.message import Failure, Message, fitting, merged, prepared
from duly.bridge.publisher import CONFIRMED, Outgoing
from duly.core import codec
from duly.core.errors import DulyError, StoreUnavailable
from duly.core.model import Armed, NewItem, Verdict

if TYPE_CHECKING:
    from duly.apps.messages.service import MessageRetry

log = logging.getLogger("duly.bridge")

# Seconds after which a message that came while its row was under way is looked at again.
LOOK_AGAIN = 1.0

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class MessageIntake:
    """Makes rows of deliveries: one row for each message, with any content."""

    def __init__(self, service: MessageRetry) -> None:
        self.service = service
        self.app, self.settings = service.app, service.settings
        self.rows, self.metrics = service.rows, service.metrics
        self._marks = itertools.count(1)  # of messages that get no row

    def keep(self, deliveries: Sequence[Delivery]) -> None:
        """Make these durable, all of them: what cannot be retried too, for a person to look at."""
        items = [self._item_of(delivery) for delivery in deliveries]
        try:
            self._arm(items)
        except StoreUnavailable:
            raise
        except DulyError as error:
            # One of them is at fault; the others must not wait for it.
            log.warning("%d messages could not be stored together: %s", len(items), error)
            for delivery, item in zip(deliveries, items, strict=True):
                try:
                    self._arm([item])
                except StoreUnavailable:
                    raise
                except DulyError as problem:
                    self._arm([self._invalid_item(delivery, str(problem))])

    def _arm(self, items: Sequence[NewItem]) -> None:
        undecided = []
        for item, armed in zip(items, self._armed(items), strict=True):
            if armed.is_begun:
                undecided.append(self._look_later(item))
            elif armed.how == "known":
                self.metrics.repeated.inc()
        if undecided:
            self.app.internals.store.put(undecided)

    def _armed(self, items: Sequence[NewItem]) -> list[Armed]:
        rows: dict[str | None, NewItem] = {item.key: item for item in items}

        def again(old: bytes, item: NewItem) -> NewItem:
            assert item.version is not None
            message = merged(old, item.args, item.version)
            rows[item.key] = replace(self.rows.of(message, self.app.clock.now()), trace=item.trace)
            return rows[item.key]

        armed = self.app.internals.store.arm(items, again)
        for item, answer in zip(items, armed, strict=True):
            if answer.how == "known":
                continue
            if item.version is None:
                self.metrics.invalid.inc()
            elif rows[item.key].rank == TASK_RANK:
                self.metrics.scheduled.labels(label(item.queue)).inc()
        return armed

    def _look_later(self, item: NewItem) -> NewItem:
        """It may have failed again before its retry was recorded as published; a later run of this item decides."""
        message = replace(msgspec.json.decode(item.args, type=Message), is_undecided=True)
        later = self.app.clock.now() + timedelta(seconds=LOOK_AGAIN)
        return replace(item, args=codec.encode(message), key=None, version=None, rank=TASK_RANK, due_at=later)

    def decide(self, row: Message, attempt: Attempt) -> Verdict | None:
        """Find out about a message that came while its row was under way; a verdict for what asks again later."""
        item = self.rows.of(replace(row, is_undecided=False), self.app.clock.now())
        try:
            (armed,) = self._armed([replace(item, trace=attempt.item.trace)])
        except DulyError as error:
            log.info("message %s waits: %s", row.message_id, error, extra=about(row, attempt))
            return Snooze(LOOK_AGAIN)
        if armed.is_begun:
            return Snooze(LOOK_AGAIN)
        if armed.how == "known":
            self.metrics.repeated.inc()
        return None

    def _item_of(self, delivery: Delivery) -> NewItem:
        try:
            return self._item(delivery)
        except StoreUnavailable:
            raise
        except Exception as error:  # a malformed message must not affect others
            log.exception("a message could not be read")
            return self._invalid_item(delivery, f"it could not be read: {type(error).__name__}: {error}")

    def _item(self, delivery: Delivery) -> NewItem:
        if delivery.properties.problem is not None:
            return self._invalid_item(delivery, delivery.properties.problem)
        message = read(delivery.body, delivery.properties.text("content_type"))
        problem = message.problem
        if problem is None and message.queue == self.settings.retry_queue:
            problem = f"original_queue: {message.queue} is the retry queue itself"
        if problem is None and len(delivery.body) > self.settings.message_max_bytes:
            problem = f"it has {len(delivery.body):,} bytes, more than a message may have"
        if problem is not None:
            return self._invalid_item(delivery, problem, message.queue or message.named_queue)
        now = self.app.clock.now()
        properties = original(delivery.properties, delivery.body)
        exchange, routing_key = stated_route(properties)
        count = max(message.retry_count, stated_count(properties, message.message_id or ""))
        message = replace(
            message,
            retry_count=count,
            max_retries=message.max_retries or self.rows.retries(message.queue),
            properties=b64encode(properties.raw()).decode(),
            story=[Failure(count, now, message.reason[:500])],
            exchange=exchange,
            routing_key=routing_key,
        )
        trace = properties.header("traceparent")
        is_trace = isinstance(trace, str) and _TRACE.fullmatch(trace)
        return replace(self.rows.of(message, now), trace=trace if is_trace else None)

    def _invalid_item(self, delivery: Delivery, problem: str, queue: str = "") -> NewItem:
        """A row for a message that cannot be retried, with its bytes, and the queue that it names."""
        problem = clean(problem, 1_000)
        log.warning("a message cannot be retried: %s", problem, extra={"queue": queue})
        if len(delivery.body) > self.settings.message_max_bytes:
            # Too large for a row: the broker's review queue has all of it, and the row only records it.
            self._send_aside(delivery, problem, queue)
            message = Message(payload="", problem=problem, is_in_review=True, named_queue=queue)
        else:
            payload, raw = b64encode(delivery.body).decode(), b64encode(delivery.properties.raw()).decode()
            message = Message(payload=payload, properties=raw, problem=problem, named_queue=queue)
        return self.rows.invalid(message, self.app.clock.now())

    def _send_aside(self, delivery: Delivery, problem: str, queue: str) -> None:
        told: dict[str, str | int] = {"x-review-reason": problem}
        if queue:
            told["x-original-queue"] = queue
        properties = fitting(prepared(delivery.properties), told)
        mark = -next(self._marks)
        outgoing = Outgoing(mark, self.settings.manual_review_queue, properties, delivery.body)
        (receipt,) = self.service.publish([outgoing])
        if receipt is not CONFIRMED:
            raise StoreUnavailable(f"a message that is too large to store could not be set aside: {receipt.why}")
