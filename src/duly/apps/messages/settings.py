"""What the retry service has to know, and what `duly doctor` says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from duly.config import sources
from duly.plugin import Finding, Section, setting


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """The seed's names, and DULY_… before them."""

    service_name: str = setting("retry-scheduler", "How the retry service calls itself at the broker.", "SERVICE_NAME")
    rabbitmq_url: str = setting(
        "amqp://localhost:5672", "The broker of the retry service.", "RABBITMQ_URL", secret=True
    )
    retry_queue: str = setting("retry.scheduled", "The queue that it consumes.", "RETRY_QUEUE")
    manual_review_queue: str = setting(
        "manual-review.pending", "Where messages go that nobody but a person can help.", "MANUAL_REVIEW_QUEUE"
    )
    message_max_retries: int = setting(
        3, "Retries of a message that does not say how many it may have.", "DEFAULT_MAX_RETRIES", least=0
    )
    message_base_delay_ms: int = setting(2_000, "Delay of a first retry; it doubles.", "BASE_DELAY_MS", least=0)
    message_max_delay_ms: int = setting(60_000, "The longest delay of a retry.", "MAX_DELAY_MS", least=0)
    message_descriptors: str = setting("", "A file with a protobuf FileDescriptorSet, to show what messages hold.")
    message_types: str = setting(
        "", "Which of its types a queue holds, such as orders=shop.Order,*=shop.Event; several by commas."
    )
    message_max_bytes: int = setting(
        1_048_576, "The largest message that is kept; a larger one goes to manual review at once, whole.", least=1
    )
    message_prefetch: int = setting(
        500, "Messages that the broker sends ahead of their acknowledgement; fewer where they are large.", least=1
    )


def is_broker_named() -> bool:
    """Whether someone said where the broker is."""
    return "rabbitmq_url" in sources(kind=Settings)


def checks(settings: Settings, _: Mapping[str, int]) -> Iterator[Finding]:
    """Queues that are one, and a broker that is named and does not answer."""
    if settings.retry_queue == settings.manual_review_queue:
        yield Finding(
            "bad", "messages", f"{settings.retry_queue} is the retry queue and the one for manual review",
            "give MANUAL_REVIEW_QUEUE another name",
        )  # fmt: skip
    if is_broker_named():
        from duly.apps.messages.broker import trouble

        place = settings.shown()["rabbitmq_url"]
        if problem := trouble(settings.rabbitmq_url):
            yield Finding("bad", "messages", f"{place}: {problem}", "is RabbitMQ up, and RABBITMQ_URL right?")
        else:
            yield Finding("ok", "messages", f"{place} answers")
