"""What the outside sees: metrics, log lines, spans."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

import duly.testing
from duly import Attempt, Backoff, Duly, Limit, Windows
from duly.telemetry.logs import JsonFormatter, set_up_logs


@pytest.fixture
def app() -> Iterator[Duly]:
    one = Duly("sqlite:///unused.db")

    @one.task(retry=Backoff(base=60, tries=2), label="reminder")
    def call(fails: int, attempt: Attempt) -> None:
        if attempt.number <= fails:
            raise ConnectionError("line busy")

    yield one
    one.close()


def test_metrics_tell_what_happened_and_what_waits(app: Duly) -> None:
    with duly.testing.virtual(app) as world:
        call = app.tasks["call"]
        call.put(fails=0)
        call.put(fails=1)
        call.put(fails=9)
        call.after(86_400).put(fails=0)
        world.advance(60)
        app.pause("call")
        text = generate_latest(app.internals.telemetry.registry).decode()
    for line in (
        'duly_claimed_items_total{task="call"} 5.0',
        'duly_attempts_total{outcome="done",task="call"} 2.0',
        'duly_attempts_total{outcome="failed",task="call"} 3.0',
        'duly_finished_items_total{state="done",task="call"} 2.0',
        'duly_finished_items_total{state="failed",task="call"} 1.0',
        'duly_retries_total{task="call"} 2.0',
        'duly_lateness_seconds_count{task="call"} 5.0',
        'duly_queue_items{lane="main",queue="call",state="waiting"} 1.0',
        'duly_queue_items{lane="main",queue="call",state="failed"} 1.0',
        'duly_queue_due_items{lane="main",queue="call"} 0.0',
        'duly_queue_paused{queue="call"} 1.0',
        "duly_store_up 1.0",
    ):
        assert line in text, f"{line} is not among\n{text}"


def test_the_log_tells_the_seeds_messages_at_their_levels(app: Duly, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "duly"), duly.testing.virtual(app) as world:
        item_id = app.put("call", fails=9).id
        world.advance(60)
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "duly.item"]
    assert told == [
        ("INFO", f"Processing reminder {item_id} (attempt 1/2)"),
        ("WARNING", f"Reminder {item_id} failed, scheduling retry"),
        ("INFO", f"Processing reminder {item_id} (attempt 2/2)"),
        ("ERROR", f"Reminder {item_id} permanently failed"),
    ]
    assert vars(caplog.records[-1])["errorClass"] == "ConnectionError"


def test_a_late_start_is_logged_with_how_late_it_was(app: Duly, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "duly"), duly.testing.virtual(app) as world:
        app.task_named("call").at("2026-01-01T00:00Z").put(fails=0)
        app.put("call", fails=0)
        world.clock.move(19 * 3600)
        world.run()
    late = [vars(record) for record in caplog.records if record.getMessage() == "Late event execution (recovery)"]
    assert {each["latenessHours"] for each in late} == {"19.0"}
    assert {each["latenessMinutes"] for each in late} == {1140}


def test_what_waited_for_the_next_day_of_its_limit_is_no_recovery(app: Duly, caplog: pytest.LogCaptureFixture) -> None:
    app.task(name="daily", limits=Limit("tower", 2, per="1d"))(lambda: None)
    with caplog.at_level(logging.WARNING, "duly"), duly.testing.virtual(app) as world:
        for _ in range(4):
            app.put("daily")
        world.advance(2 * 86_400)
        assert [item.state for item in world.items(task="daily")] == ["done"] * 4
    assert caplog.records == []


def test_a_log_line_is_one_json_object_with_its_fields() -> None:
    record = logging.LogRecord("duly.item", logging.WARNING, "x.py", 1, "Reminder %s failed", (7,), None)
    record.itemId = 7
    try:
        raise ValueError("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["level"], fields["message"], fields["itemId"]) == ("warning", "Reminder 7 failed", 7)
    assert fields["time"].endswith("Z")
    assert "ValueError: why" in fields["exception"]


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("text", False), ("auto", True)])
def test_logs_are_set_up_for_people_or_machines(
    form: str, is_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    set_up_logs("info", form)
    logging.getLogger("duly.test").info("hello")
    assert capsys.readouterr().err.startswith("{") is is_json


TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

import duly.testing
from duly import Duly

app = Duly("sqlite:///unused.db")

@app.task
async def speak(n: int) -> None: ...

@app.task
def shout(n: int) -> None: ...

with duly.testing.virtual(app) as world:
    with trace.get_tracer("test").start_as_current_span("putter"):
        speak.put(n=1)
        shout.put_many([{"n": 2}])
    speak.put(n=3)
    world.run()

spans = {span.name: span for span in exporter.get_finished_spans() if span.parent or span.name == "putter"}
putter = spans["putter"]
for name in ("run speak", "run shout"):
    assert spans[name].context.trace_id == putter.context.trace_id, name
    assert spans[name].parent.span_id == putter.context.span_id, name
alone = [span for span in exporter.get_finished_spans() if span.name == "run speak" and span.parent is None]
assert len(alone) == 1
print("traced")
"""


def test_a_handlers_span_continues_the_trace_of_whoever_put_the_item(tmp_path: Path) -> None:
    script = tmp_path / "traced.py"
    script.write_text(TRACED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "traced\n", done.stderr


def test_the_summary_counts_the_works_time_and_all_failed_tries(
    app: Duly, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("duly.telemetry.counts.time.monotonic", lambda: clock[0])
    app.internals.telemetry.summary()
    with duly.testing.virtual(app) as world:
        for fails in (0, 0, 0, 0, 1, 9):
            app.put("call", fails=fails)
        world.run()
        app.internals.telemetry.ran([("call", 0.5)] * 6)
        clock[0] += 30
        said = app.internals.telemetry.summary()
        assert said is not None
        assert (said["processed"], said["failed"], said["willRetry"]) == (4, 2, 2)
        assert (said["durationMs"], said["eventsPerSecond"]) == (3_000, 0.13)
        world.advance(60)
        said = app.internals.telemetry.summary()
    assert said is not None
    assert (said["processed"], said["failed"], said["willRetry"]) == (1, 1, 0)
    assert app.internals.telemetry.summary() is None


def test_what_a_limit_or_a_window_holds_back_is_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    one = Duly("sqlite:///unused.db")

    @one.task(limits=Limit("tower", 1, per="1m"), retry=Windows("30 */4 * * *", cap=1))
    def ring(attempt: Attempt) -> None:
        if attempt.number == 1:
            raise ConnectionError("line busy")

    with caplog.at_level(logging.WARNING, "duly"), duly.testing.virtual(one) as world:
        one.internals.telemetry.summary()
        ring.put_many({} for _ in range(12))
        world.advance(minutes=15)
        said = one.internals.telemetry.summary()
        assert said is not None
        assert (said["failed"], said["eventsLate"], said["recoveryMode"]) == (12, 0, False)
        world.advance(days=3)
        assert {item.state for item in world.items()} == {"done"}
    assert [record.getMessage() for record in caplog.records if "Late" in record.getMessage()] == []
