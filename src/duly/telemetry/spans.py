"""Spans of OpenTelemetry, where someone has set it up in this process; without it there are none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duly.core.model import Item
from duly.tasks.task import Task

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - an extra
    trace = None  # type: ignore[assignment]


def is_tracing() -> bool:
    """Whether someone set up OpenTelemetry in this process."""
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def span(task: Task[..., Any], items: list[Item]) -> Iterator[None]:
    """Around one call of a handler: it goes on from the trace of whoever put the first of its items."""
    parent = propagate.extract({"traceparent": items[0].trace}) if items[0].trace else None
    attributes: dict[str, str | int] = {
        "messaging.system": "duly",
        "messaging.destination.name": task.queue,
        "messaging.message.id": items[0].execution_key,
        "duly.item": items[0].id,
        "duly.attempt": items[0].attempt,
        "messaging.batch.message_count": len(items),
    }
    tracer = trace.get_tracer("duly")
    with tracer.start_as_current_span(
        f"run {task.name}", context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
    ):
        yield


def follow(name: str, item: Item) -> str | None:
    """A span of its own for one item of a batch: its traceparent, for whoever goes on; None without tracing."""
    if not is_tracing():
        return None
    parent = propagate.extract({"traceparent": item.trace}) if item.trace else None
    carrier: dict[str, str] = {}
    with trace.get_tracer("duly").start_as_current_span(name, context=parent, kind=trace.SpanKind.PRODUCER):
        propagate.inject(carrier)
    return carrier.get("traceparent")


def traceparent() -> str | None:
    """The putter's trace, to be continued by whoever runs the item."""
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent")
