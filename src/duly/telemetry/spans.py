"""Spans of OpenTelemetry, if it is set up in this process; otherwise there are none."""

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
    """Whether OpenTelemetry is configured in this process."""
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def span(task: Task[..., Any], items: list[Item]) -> Iterator[None]:
    """A span around one call of a handler. It continues the trace in which the first of its items was put."""
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
    """Make a span for one item of a batch; returns its traceparent, to be sent along, or None without tracing."""
    if not is_tracing():
        return None
    parent = propagate.extract({"traceparent": item.trace}) if item.trace else None
    carrier: dict[str, str] = {}
    with trace.get_tracer("duly").start_as_current_span(name, context=parent, kind=trace.SpanKind.PRODUCER):
        propagate.inject(carrier)
    return carrier.get("traceparent")


def traceparent() -> str | None:
    """The traceparent of the code that puts an item, so that the item's run can continue its trace."""
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent")
