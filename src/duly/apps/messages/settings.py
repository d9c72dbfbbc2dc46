"""The settings of the retry service, and what `duly doctor` checks of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from duly.bridge.message import queue_problem
from duly.config import sources
from duly.core.errors import ConfigError
from duly.plugin import Finding, Section, setting

PATIENCE = 2  # seconds that a broker has to answer `duly doctor`


class QueueRules(Struct, frozen=True):
    """How messages of a queue are retried: the first delay, the longest, and how often."""

    base_ms: int
    max_ms: int
    retries: int


def rules_of(message_queues: str, general: QueueRules) -> dict[str, QueueRules]:
    """The rules of each queue in the setting `message_queues`, which differ from those of all others."""
    rules: dict[str, QueueRules] = {}
    for each in filter(None, map(str.strip, message_queues.split(","))):
        queue, _, text = each.rpartition("=")
        numbers = text.split("/")
        if not queue.strip() or len(numbers) > 3 or not all(re.fullmatch(r" *[0-9]{0,9} *", one) for one in numbers):
            raise ValueError(f"must be like orders=500/30000/5, got {each!r:.80}")
        given = zip(QueueRules.__struct_fields__, numbers, strict=False)
        rules[queue.strip()] = replace(general, **{name: int(one) for name, one in given if one.strip()})
    return rules


def _check_queue(name: str) -> None:
    if problem := queue_problem(name):
        raise ValueError(problem)


@dataclass(frozen=True, kw_only=True)
class MessagesSettings(Section):
    """The settings of the retry service: by their aliases in the environment, or with DULY_ in front of their names."""

    service_name: str = setting(
        "retry-scheduler", "The name of the retry service's connections at the broker.", "SERVICE_NAME"
    )
    rabbitmq_url: str = setting("amqp://localhost:5672", "The URL of the broker.", "RABBITMQ_URL", secret=True)
    retry_queue: str = setting(
        "retry.scheduled", "The queue that the retry service consumes.", "RETRY_QUEUE", check=_check_queue
    )
    manual_review_queue: str = setting(
        "manual-review.pending", "The queue of messages for manual review.", "MANUAL_REVIEW_QUEUE", check=_check_queue
    )
    message_max_retries: int = setting(
        3, "How many retries a message has that sets no number itself.", "DEFAULT_MAX_RETRIES", least=0
    )
    message_base_delay_ms: int = setting(
        2_000, "The delay of the first retry in milliseconds. It doubles with each retry.", "BASE_DELAY_MS", least=0
    )
    message_max_delay_ms: int = setting(
        60_000, "The longest delay of a retry in milliseconds.", "MAX_DELAY_MS", least=0
    )
    message_queues: str = setting(
        "",
        "Other delays and retries for some queues, as QUEUE=FIRST_MS/LONGEST_MS/RETRIES, separated by commas: "
        "orders=500/30000/5. An empty part keeps the general value.",
        check=lambda text: rules_of(text, QueueRules(0, 0, 0)),
    )
    message_descriptors: str = setting("", "A file with a protobuf FileDescriptorSet, to show the content of messages.")
    message_types: str = setting(
        "", "The type of the messages of a queue, separated by commas: orders=shop.Order,*=shop.Event."
    )
    message_max_bytes: int = setting(
        1_048_576, "The largest message that is retried. A larger one goes to manual review at once.", least=1
    )
    message_prefetch: int = setting(
        500, "At most this many unacknowledged messages are prefetched. Set fewer if messages are large.", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retry_queue == self.manual_review_queue:
            raise ConfigError("manual_review_queue: must not be the retry queue")


def is_broker_named() -> bool:
    """Whether the URL of the broker was set."""
    return "rabbitmq_url" in sources(kind=MessagesSettings)


def lacking(error: ModuleNotFoundError) -> str:
    """The package that a missing module belongs to."""
    module = (error.name or "").partition(".")[0]
    return {"google": "protobuf"}.get(module, module)


def broker_trouble(url: str) -> str | None:
    """What keeps us from this broker, in a line; None when it answers."""
    try:
        import pika

        parameters = pika.URLParameters(url)
        parameters.socket_timeout = parameters.stack_timeout = PATIENCE
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        pika.BlockingConnection(parameters).close()
    except ModuleNotFoundError as error:
        return f"{lacking(error)} is not installed: pip install 'duly[rabbitmq]'"
    except Exception as error:  # pika has many exceptions for an unreachable broker
        from duly.bridge.link import words

        return f"it does not answer: {words(error)}"
    return None


def checks(settings: MessagesSettings, _: Mapping[str, int]) -> Iterator[Finding]:
    """Find a broker that was set and does not answer."""
    if is_broker_named():
        place = settings.shown()["rabbitmq_url"]
        if wrong := broker_trouble(settings.rabbitmq_url):
            yield Finding("bad", "messages", f"{place}: {wrong}", "is RabbitMQ up, and RABBITMQ_URL right?")
        else:
            yield Finding("ok", "messages", f"{place} answers")
