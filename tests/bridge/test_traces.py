"""A trace goes on through the retry service: from the headers of a message to those of its retry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bridge.fleet import ROOT
from tests.bridge.support import broker_at, patiently, retry_message, service_at

SCRIPT = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from tests.bridge.support import broker_at, retry_message, service_at

TRACES = [f"00-{n:032x}-{n:016x}-01" for n in (7, 8, 9)]
with broker_at(sys.argv[1]) as broker, service_at(sys.argv[2], sys.argv[1]) as service:
    broker.declare("orders")
    for parent in TRACES:
        broker.send(retry_message(), headers={"traceparent": parent})
    broker.send(retry_message(), headers={"traceparent": "not one"})
    came = [broker.get().headers["traceparent"] for _ in range(4)]
published = [span for span in exporter.get_finished_spans() if span.name == "publish orders"]
spans = {f"{span.context.trace_id:032x}": span for span in published}
for n, parent in zip((7, 8, 9), TRACES):
    (mine,) = [each for each in came if each.split("-")[1] == parent.split("-")[1]]
    assert mine != parent, "the retry has a span of its own"
    assert spans[f"{n:032x}"].parent.span_id == n
    assert mine.split("-")[2] == f"{spans[f'{n:032x}'].context.span_id:016x}"
print("traced")
"""


def test_a_retry_continues_the_trace_of_its_message(sqlite_url: str, vhost_url: str, tmp_path: Path) -> None:
    script = tmp_path / "traced.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, vhost_url, sqlite_url], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip
    assert done.stdout == "traced\n", done.stderr


def test_without_tracing_the_header_stays_as_it_came(sqlite_url: str, vhost_url: str) -> None:
    with broker_at(vhost_url) as broker, service_at(sqlite_url, vhost_url) as service:
        broker.declare("orders")
        broker.send(retry_message(), headers={"traceparent": f"00-{7:032x}-{7:016x}-01"})
        assert broker.get().headers["traceparent"] == f"00-{7:032x}-{7:016x}-01"
        (row,) = patiently(lambda: [row for row in service.app.read.pages() if row.state == "done"])
        assert service.app.internals.store.fetch([row.id])[0].trace == f"00-{7:032x}-{7:016x}-01"
