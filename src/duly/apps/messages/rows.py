"""A message as an item: its key, its queue, its rank, and when its retry is due."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from duly import Attempt
from duly.apps.messages.settings import MessagesSettings, QueueRules, rules_of
from duly.bridge.message import Message, key_of
from duly.core import codec
from duly.core.model import NewItem
from duly.tasks.checks import NAME

TASK = QUEUE = "message_retry"
# Ranks: retries start first, and messages for review after them.
TASK_RANK, REVIEW_RANK = 0, 10
# How many queues of the broker have a queue and a metric label of their own here; messages may name any number.
OWN_NAMES = 500
OTHERS = "others"


class Rows:
    """Makes items of messages."""

    def __init__(self, settings: MessagesSettings) -> None:
        self._general = QueueRules(
            settings.message_base_delay_ms, settings.message_max_delay_ms, settings.message_max_retries
        )
        self._rules = rules_of(settings.message_queues, self._general)
        self._names: set[str] = set()

    def of(self, message: Message, now: datetime) -> NewItem:
        """The row of a message that can be retried."""
        assert message.message_id is not None
        delay = 0.0 if message.is_exhausted else self.delay(message.retry_count, message.queue)
        return NewItem(
            task=TASK,
            queue=self.queue_for(message.queue),
            args=codec.encode(message),
            due_at=now + timedelta(seconds=delay),
            key=key_of(message.message_id, message.queue),
            version=message.retry_count,
            rank=REVIEW_RANK if message.is_exhausted else TASK_RANK,
        )

    def invalid(self, message: Message, now: datetime) -> NewItem:
        """The row of a message that cannot be retried: it goes to review, here and at the broker."""
        return NewItem(task=TASK, queue=QUEUE, args=codec.encode(message), due_at=now, rank=REVIEW_RANK)

    def replay(self, message: Message) -> NewItem:
        """A row that publishes a message again at once. The key stays with the row that had it before."""
        return NewItem(task=TASK, queue=self.queue_for(message.queue), args=codec.encode(message), rank=TASK_RANK)

    def delay(self, retry_count: int, queue: str = "") -> float:
        """Seconds until the next retry: doubling, capped, and up to a second of jitter."""
        return self.backoff(retry_count, queue) + random.random()  # noqa: S311 - spreads load, hides nothing

    def backoff(self, retry_count: int, queue: str = "") -> float:
        """The same without jitter."""
        rules = self._rules.get(queue, self._general)
        delay_ms: int = min(rules.base_ms * 2 ** min(retry_count, 64), rules.max_ms)
        return delay_ms / 1000

    def retries(self, queue: str) -> int:
        """How many retries a message of this queue has if it sets no number itself."""
        return self._rules.get(queue, self._general).retries

    def queue_for(self, name: str) -> str:
        """The queue here for a queue of the broker: its own one, to be seen and paused, unless there are too many."""
        if name not in self._names:
            if len(self._names) >= OWN_NAMES:
                return f"{QUEUE}/{OTHERS}"
            self._names.add(name)
        return own_queue(name)

    def label_for(self, name: str) -> str:
        """What metrics call the queue of this name at the broker."""
        return label(self.queue_for(name)) if name else OTHERS


def about(message: Message, attempt: Attempt) -> dict[str, Any]:
    """The fields of every log line about a message."""
    return {"itemId": attempt.id, "messageId": message.message_id, "queue": message.queue or message.named_queue}


def own_queue(name: str) -> str:
    """The queue here for a queue of the broker."""
    is_plain = NAME.fullmatch(name) is not None and len(name) <= 150
    return f"{QUEUE}/{name if is_plain else sha256(name.encode()).hexdigest()[:32]}"


def label(queue: str) -> str:
    """What metrics call a queue of ours."""
    return queue.removeprefix(f"{QUEUE}/")
