"""Messages that failed are published again to the queue they came from, later and later, until a person must look.

    RABBITMQ_URL=amqp://broker duly retry-service        # as many as you like on PostgreSQL, one on SQLite

    retry.scheduled ─▶ kept in the database ─▶ acknowledged ─▶ due ─▶ published to its queue ─▶ confirmed ─▶ done
                                                                └─▶ retries used up ─▶ manual-review.pending + review

A message is one row for good, found by its id: the same id with a higher count arms it again. With the same or a lower
one it is a repetition and changes nothing while the row waits or runs; once its retry is out and confirmed it has
failed again, whatever it says: its count is then the next one, so that a consumer that does not count loses nothing.
Delays double: 2, 4, 8 … 60 seconds and up to one second of jitter.
`message_retry_on(app)` puts the same on an app of your own.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from duly import Attempt, Backoff, Duly, GiveUp, InputError, Snooze, codec
from duly.bridge import contract
from duly.bridge.consumer import Consumer, Delivery, Queue
from duly.bridge.contract import Invalid, RetryRequest, clean, queue_problem
from duly.bridge.decode import Decoder
from duly.bridge.message import (
    Failure,
    Message,
    changed,
    fitting,
    key_of,
    merged,
    original,
    prepared,
    preview,
    told_count,
)
from duly.bridge.properties import BadProperties, parse
from duly.bridge.publisher import CONFIRMED, Outgoing, Publisher, Receipt
from duly.config import Settings
from duly.decide import decide
from duly.errors import ConfigError, DulyError, ItemNotFound, StoreUnavailable, WrongState
from duly.model import Armed, NewItem, Revived, State, Verdict
from duly.shown import OwnedRow
from duly.task import NAME
from duly.telemetry import is_tracing

log = logging.getLogger("duly.bridge")

TASK = QUEUE = "message_retry"
WINDOW = 100  # messages that are published before their confirms are waited for
TRIES = 4  # to publish a message: its queue may be there again before a person must look
# Retries are on time; what goes to a person may wait for them.
TASK_RANK, REVIEW_RANK = 0, 10
# Names of queues that have a queue and a label of their own; a stranger may send any number of others.
OWN_NAMES = 500
OTHERS = "others"
# Seconds after which a message that came while its row was under way is looked at again.
LOOK_AGAIN = 1.0
# Redeliveries after which the broker itself sets a message aside: it takes its consumer down each time.
DELIVERY_LIMIT = 100
DRIFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class RetryFailed(DulyError):
    """A message could not be published to its queue."""


class MessageRetry:
    """The retry service on one app. `start` and `stop` are the worker's to call."""

    def __init__(self, app: Duly) -> None:
        self.app = app
        settings = app.settings
        if settings.retry_queue == settings.manual_review_queue:
            raise ConfigError("manual_review_queue: must not be the retry queue")
        self._base = settings.message_base_delay_ms / 1000
        self._cap = settings.message_max_delay_ms / 1000
        self._names: set[str] = set()
        self._marks = itertools.count(1)
        registry = app.telemetry.registry
        self._scheduled = Counter("retries_scheduled", "Retries that were scheduled.", ["queue"], registry=registry)
        self._executed = Counter(
            "retries_executed", "Messages published again, or not: success, failed.", ["queue", "status"],
            registry=registry,
        )  # fmt: skip
        self._exhausted = Counter(
            "retries_exhausted", "Messages moved to manual review after max retries.", ["queue"], registry=registry
        )
        self._drift = Histogram(
            "retry_drift_seconds", "From the scheduled time to the broker's confirm.", buckets=DRIFT, registry=registry
        )
        self._invalid = Counter("retry_invalid_messages", "Messages that nobody can retry.", registry=registry)
        self._repeated = Counter("retry_repeated_messages", "Deliveries of what was known.", registry=registry)
        registry.register(_Depth(app))
        self._decoder = Decoder(settings.message_descriptors, settings.message_types)
        self._publisher: Publisher | None = None
        self._consumer: Consumer | None = None
        self.task = self._register()

    def _register(self) -> Any:
        retry = Backoff(base=self._base, cap=self._cap, tries=TRIES)

        # What is put here is published to whatever queue it names, so it comes from the broker or by code alone.
        @self.app.task(
            name=TASK, queue=QUEUE, batch=WINDOW, retry=retry, trusted=True, internal=True, deadline=900, check=_check
        )
        def message_retry(rows: list[Message], attempts: list[Attempt]) -> list[Verdict | Exception | None]:
            return self.send(rows, attempts)

        return message_retry

    # -- life

    def start(self) -> None:
        """Connect, and go on connecting; returns at once."""
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # what it says of broken connections we say in one line
        settings = self.app.settings
        self._publisher = Publisher(settings.rabbitmq_url, f"{settings.service_name} publisher")
        self._consumer = Consumer(
            settings.rabbitmq_url,
            f"{settings.service_name} consumer",
            queues(settings),
            self.keep,
            self._is_store_up,
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

    def ailing(self) -> str | None:
        """What keeps messages from passing."""
        if self._consumer is None or self._publisher is None:
            return None
        return self._consumer.trouble() or self._publisher.link.trouble()

    @property
    def is_consuming(self) -> bool:
        """Whether its queues are there and messages may come."""
        return self._consumer is not None and self._consumer.is_consuming

    def _is_store_up(self) -> bool:
        """Whether the database takes writes again: one that only answers would have us consume in vain."""
        try:
            self.app.check()
            self.app.store.report(-1, 0, b"0")
        except Exception:
            return False
        return True

    # -- in

    def keep(self, deliveries: Sequence[Delivery]) -> None:
        """Make these durable, all of them: what cannot be retried too, for a person to look at."""
        items = [self._item_of(delivery) for delivery in deliveries]
        try:
            self._arm(items)
        except StoreUnavailable:
            raise
        except DulyError as error:
            # One of them is at fault; the others must not wait for it.
            log.warning("%d messages could not be kept together: %s", len(items), error)
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
                self._repeated.inc()
        if undecided:
            self.app.store.put(undecided)

    def _armed(self, items: Sequence[NewItem]) -> list[Armed]:
        rows: dict[str | None, NewItem] = {item.key: item for item in items}

        def again(old: bytes, item: NewItem) -> NewItem:
            assert item.version is not None
            message = merged(old, item.args, item.version)
            rows[item.key] = replace(self._row(message, self.app.clock.now()), trace=item.trace)
            return rows[item.key]

        armed = self.app.store.arm(items, again)
        for item, answer in zip(items, armed, strict=True):
            if answer.how == "known":
                continue
            if item.version is None:
                self._invalid.inc()
            elif rows[item.key].rank == TASK_RANK:
                self._scheduled.labels(self._label(item.queue)).inc()
        return armed

    def _look_later(self, item: NewItem) -> NewItem:
        """It may have failed again before we noted that its retry was out: whoever runs this finds out."""
        message = replace(msgspec.json.decode(item.args, type=Message), is_undecided=True)
        later = self.app.clock.now() + timedelta(seconds=LOOK_AGAIN)
        return replace(item, args=codec.encode(message), key=None, version=None, rank=TASK_RANK, due_at=later)

    def _decide(self, row: Message, attempt: Attempt) -> Verdict | None:
        item = self._row(replace(row, is_undecided=False), self.app.clock.now())
        try:
            (armed,) = self._armed([replace(item, trace=attempt.item.trace)])
        except DulyError as error:
            log.info("message %s waits: %s", attempt.id, error)
            return Snooze(LOOK_AGAIN)
        if armed.is_begun:
            return Snooze(LOOK_AGAIN)
        if armed.how == "known":
            self._repeated.inc()
        return None

    def _item_of(self, delivery: Delivery) -> NewItem:
        try:
            return self._item(delivery)
        except StoreUnavailable:
            raise
        except Exception as error:  # whatever is in a stranger's message, it is that message's fault alone
            log.exception("a message could not be read")
            return self._invalid_item(delivery, f"it could not be read: {type(error).__name__}: {error}")

    def _item(self, delivery: Delivery) -> NewItem:
        content_type = delivery.properties.text("content_type")
        asked = Invalid(delivery.problem) if delivery.problem else contract.read(delivery.body, content_type)
        if isinstance(asked, RetryRequest) and asked.queue == self.app.settings.retry_queue:
            asked = Invalid(f"original_queue: {asked.queue} is the retry queue itself")
        if isinstance(asked, Invalid):
            return self._invalid_item(delivery, asked.problem)
        if len(delivery.body) > self.app.settings.message_max_bytes:
            return self._invalid_item(delivery, f"it has {len(delivery.body):,} bytes, more than is kept of a message")
        now = self.app.clock.now()
        properties = original(delivery.properties, delivery.body)
        most = self.app.settings.message_max_retries if asked.max_retries is None else asked.max_retries
        count = max(asked.retry_count, told_count(properties, asked.message_id))
        message = Message(
            payload=b64encode(asked.payload).decode(),
            queue=asked.queue,
            message_id=asked.message_id,
            retry_count=count,
            max_retries=most,
            reason=asked.reason,
            properties=b64encode(properties.raw()).decode(),
            story=[Failure(count, now, asked.reason[:500])],
        )
        trace = properties.header("traceparent")
        is_trace = isinstance(trace, str) and _TRACE.fullmatch(trace)
        return replace(self._row(message, now), trace=trace if is_trace else None)

    def _row(self, message: Message, now: datetime) -> NewItem:
        assert message.message_id is not None
        delay = 0.0 if message.is_exhausted else self.delay(message.retry_count)
        return NewItem(
            task=TASK,
            queue=self._queue(message.queue),
            args=codec.encode(message),
            due_at=now + timedelta(seconds=delay),
            key=key_of(message.message_id, message.queue),
            version=message.retry_count,
            rank=REVIEW_RANK if message.is_exhausted else TASK_RANK,
        )

    def delay(self, retry_count: int) -> float:
        """Seconds until the next retry: doubling, capped, and up to a second of jitter."""
        return float(min(self._base * 2 ** min(retry_count, 64), self._cap)) + random.random()  # noqa: S311 - spreads load, hides nothing

    def _invalid_item(self, delivery: Delivery, problem: str) -> NewItem:
        """A row for what nobody can retry: it goes to review, here and at the broker, with its bytes."""
        problem = clean(problem, 1_000)
        if len(delivery.body) > self.app.settings.message_max_bytes:
            # More than a row holds: the broker's review queue has all of it, the row only tells.
            self._send_aside(delivery, problem)
            message = Message(payload="", problem=problem, is_in_review=True)
        else:
            payload, raw = b64encode(delivery.body).decode(), b64encode(delivery.properties.raw()).decode()
            message = Message(payload=payload, properties=raw, problem=problem)
        args, now = codec.encode(message), self.app.clock.now()
        return NewItem(task=TASK, queue=QUEUE, args=args, due_at=now, rank=REVIEW_RANK)

    def _send_aside(self, delivery: Delivery, problem: str) -> None:
        properties = fitting(prepared(delivery.properties), {"x-review-reason": problem})
        mark = -next(self._marks)
        outgoing = Outgoing(mark, self.app.settings.manual_review_queue, properties, delivery.body)
        (receipt,) = self._publish([outgoing])
        if receipt is not CONFIRMED:
            raise StoreUnavailable(f"a message too large to keep could not be set aside: {receipt.why}")

    def _queue(self, name: str) -> str:
        """A queue of its own for each queue of the broker, to see, to pause and to be fair by, within reason."""
        if name not in self._names:
            if len(self._names) >= OWN_NAMES:
                return f"{QUEUE}/{OTHERS}"
            self._names.add(name)
        return _own_queue(name)

    def _label(self, queue: str) -> str:
        return queue.removeprefix(f"{QUEUE}/")

    # -- out

    def send(self, rows: Sequence[Message], attempts: Sequence[Attempt]) -> list[Verdict | Exception | None]:
        """Publish these, each to its queue or to review; what became of each."""
        verdicts: list[Verdict | Exception | None] = [None] * len(rows)
        out: list[tuple[int, Outgoing]] = []
        is_traced = is_tracing()  # asked once: OpenTelemetry takes its time to say no
        for place, (row, attempt) in enumerate(zip(rows, attempts, strict=True)):
            if row.is_undecided and not row.is_sent_back:
                verdicts[place] = self._decide(row, attempt)
                continue
            try:
                if reason := _why_review(row, attempt):
                    if row.is_in_review:
                        verdicts[place] = GiveUp(reason)
                    else:
                        out.append((place, self._for_review(row, attempt, reason)))
                else:
                    out.append((place, self._again(row, attempt, is_traced)))
            except (BadProperties, ValueError) as error:
                verdicts[place] = GiveUp(f"it cannot be published: {error}")
        receipts = self._publish([outgoing for _, outgoing in out])
        left: list[tuple[int, Outgoing, str]] = []
        for (place, _), receipt in zip(out, receipts, strict=True):
            row, attempt = rows[place], attempts[place]
            verdicts[place] = self._judge(row, attempt, receipt, _why_review(row, attempt))
            is_last = attempt.number >= attempt.tries or receipt.what == "refused"
            if isinstance(verdicts[place], RetryFailed) and is_last:
                reason = clean(str(verdicts[place]), 1_000)
                left.append((place, self._for_review(row, attempt, reason), reason))
        for (place, _, reason), receipt in zip(left, self._publish([each[1] for each in left]), strict=True):
            verdicts[place] = self._judge(rows[place], attempts[place], receipt, reason)
        return verdicts

    def _judge(
        self, row: Message, attempt: Attempt, receipt: Receipt, reason: str | None
    ) -> Verdict | Exception | None:
        """`reason` is why it went to review; None when it went to its own queue."""
        label = self._label(self._queue(row.queue)) if row.queue else OTHERS
        match receipt.what:
            case "confirmed" if reason is None:
                self._executed.labels(label, "success").inc()
                self._drift.observe(self._lateness(attempt))
                return None
            case "confirmed":
                if row.problem is None and row.is_exhausted:
                    self._exhausted.labels(label).inc()
                return GiveUp(reason)
            case "unknown":
                return Snooze(1.0)
            case "not_sent" | "nacked":  # a broker that is away or full is not the message's fault
                log.info("message %s waits: %s", attempt.id, receipt.why)
                return Snooze(2.0 + random.random())  # noqa: S311
            case _:
                self._executed.labels(label, "failed").inc()
                return RetryFailed(receipt.why)

    def _lateness(self, attempt: Attempt) -> float:
        is_first = attempt.number == 1 and not attempt.revivals
        since = attempt.planned_at if is_first else attempt.due_at
        return max((self.app.clock.now() - since).total_seconds(), 0.0)

    def _publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        if not messages:
            return []
        if self._publisher is None:  # a handler that is called without a worker around it
            return [Receipt("not_sent", "the retry service is not running: its worker connects to the broker")] * len(
                messages
            )
        return self._publisher.publish(messages)

    def _again(self, row: Message, attempt: Attempt, is_traced: bool) -> Outgoing:
        properties = row.again()
        if is_traced and (trace := self.app.telemetry.follow(f"publish {row.queue}", attempt.item)):
            properties = properties.with_headers({"traceparent": trace})
        return Outgoing(attempt.id, row.queue, properties, row.body)

    def _for_review(self, row: Message, attempt: Attempt, reason: str) -> Outgoing:
        return Outgoing(attempt.id, self.app.settings.manual_review_queue, row.for_review(reason), row.body)

    # -- care

    def resend(
        self,
        item_id: int,
        *,
        queue: str | None = None,
        payload: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> None:
        """Publish this message now, whatever its count: to its queue or another, as it is or changed."""
        self._change(item_id, "message.sent", actor, connection, queue=queue, payload=payload, headers=headers)

    def edit(
        self,
        item_id: int,
        *,
        queue: str | None = None,
        payload: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> None:
        """Change a message that waits or is in review."""
        self._change(item_id, "message.edited", actor, connection, queue=queue, payload=payload, headers=headers)

    def _change(
        self,
        item_id: int,
        action: str,
        actor: str,
        connection: Any,
        *,
        queue: str | None,
        payload: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        store, now = self.app.store, self.app.clock.now()
        if connection is None:
            with store.transaction() as own:
                self._change(item_id, action, actor, own, queue=queue, payload=payload, headers=headers)
            return
        version = store.run(connection, "item_version", {"id": item_id})
        found = store.fetch([item_id])
        if not found or not version or found[0].task != TASK:
            raise ItemNotFound(f"there is no message {item_id}")
        (item,) = found
        if item.state not in ("waiting", "failed"):
            raise WrongState(f"message {item_id} is {item.state} and cannot be changed")
        is_sent = action == "message.sent"
        row = changed(msgspec.json.decode(item.args, type=Message), queue, payload, headers)
        if is_sent:
            row = replace(row, is_sent_back=True)
            if not row.queue:
                raise InputError("queue", "say where to: this message came without a queue")
        if row.queue == self.app.settings.retry_queue:
            raise InputError("queue", "is the retry queue itself")
        if payload is not None and len(payload) > self.app.settings.message_max_bytes:
            raise InputError("payload", "is larger than is kept of a message")
        args = codec.encode(row)
        values = {
            "id": item_id, "owner": None, "was": item.state, "fence": item.fence, "version": version[0][0],
            "args": args.decode(), "due_at": item.due_at, "rank": TASK_RANK, "now": now,
        }  # fmt: skip
        is_changed = bool(store.run(connection, "edit_item", values))
        if is_changed and is_sent:
            revived = decide(item, Revived(now), now, self.task.rules)
            is_changed = not store.settle([revived], connection=connection)
        if not is_changed:
            raise WrongState(f"message {item_id} was changed by someone else; look again")
        said = {
            "queue": queue,
            "payloadBytes": None if payload is None else len(payload),
            "headers": [*(headers or ())],
        }
        note = {"actor": actor, "action": action, "subject": f"item:{item_id}", "now": now}
        store.run(connection, "write_note", {**note, "details": codec.encode(said).decode()})

    def page(
        self,
        owner: str | None,
        *,
        message_id: str | None = None,
        queue: str | None = None,
        state: State | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[OwnedRow]:
        """Messages, newest first."""
        if message_id is None:
            wanted = None if queue is None else _own_queue(queue)
            return self.app.read.owned(owner, before=before, most=most, task=TASK, queue=wanted, state=state)
        # There is one for each queue that it failed in.
        named = _canonical(message_id)
        ids = self.app.store.read("versioned", {"task": TASK, "low": f"{named} ", "high": f"{named}!"})
        rows = [self.app.read.owned_item(item_id, owner) for (item_id,) in ids if before is None or item_id < before]
        found = [row for row in rows if row is not None and state in (None, row.state)]
        return [row for row in found if queue in (None, row.args["queue"])][:most]

    def shown(self, row: OwnedRow, is_brief: bool = False) -> dict[str, Any]:
        """A message for people to read; in lists without what costs time."""
        message = msgspec.convert(row.args, Message)
        body = message.body
        try:
            properties = message.kept.shown()
        except BadProperties:
            properties = {}
        return {
            "id": row.id,
            "message_id": message.message_id,
            "queue": message.queue,
            "state": row.state,
            "due_at": row.due_at,
            "retry_count": message.retry_count,
            "max_retries": message.max_retries,
            "reason": message.reason or message.problem or "",
            "error": row.last_error,
            "first_failed_at": message.story[0].at if message.story else None,
            "story": [msgspec.to_builtins(each, builtin_types=(datetime,)) for each in message.story],
            "properties": properties,
            "payload": {**preview(body), "decoded": None if is_brief else self._decoder.decode(message.queue, body)},
        }


class _Depth:
    """The gauge of waiting messages."""

    def __init__(self, app: Duly) -> None:
        self._depths = app.telemetry.depths

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("retry_queue_depth", "Pending retry tasks.")
        try:
            depths = self._depths()
        except DulyError:
            return
        mine = (QUEUE, f"{QUEUE}/")
        waiting = sum(
            each.items for each in depths
            if each.state == "waiting" and (each.queue == mine[0] or each.queue.startswith(mine[1]))
        )  # fmt: skip
        depth.add_metric([], waiting)
        yield depth

    def describe(self) -> Iterable[Metric]:
        return ()


def message_retry_on(app: Duly) -> MessageRetry:
    """Register the task `message_retry` on this app; its workers connect to the broker."""
    service = MessageRetry(app)
    app.apps["messages"] = service
    app.companions.append(service)
    return service


def queues(settings: Settings) -> list[Queue]:
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


def _canonical(message_id: str) -> str:
    try:
        return str(UUID(message_id))
    except ValueError:
        raise InputError("message_id", "must be a UUID") from None


def _own_queue(name: str) -> str:
    is_plain = NAME.fullmatch(name) is not None and len(name) <= 150
    return f"{QUEUE}/{name if is_plain else sha256(name.encode()).hexdigest()[:32]}"


def _check(args: dict[str, Any]) -> None:
    """What people may put by themselves: a message like any that arrives."""
    try:
        b64decode(args["payload"], validate=True)
        parse(b64decode(args["properties"], validate=True)) if args["properties"] else None
    except ValueError as error:
        raise InputError("payload", f"must be base64: {error}") from None
    if args["problem"] is None and (problem := queue_problem(args["queue"])):
        raise InputError("queue", problem)


def _why_review(row: Message, attempt: Attempt) -> str | None:
    """Why this message goes to a person, not to its queue; None once a person has sent it back."""
    if row.problem is not None:
        return row.problem
    if row.is_exhausted and not row.is_sent_back and not attempt.revivals:
        return f"retries exhausted ({row.retry_count} of {row.max_retries}): {row.reason}"
    return None


app = Duly()
messages = message_retry_on(app)
