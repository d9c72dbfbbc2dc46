"""The gate of tasks with a pace: how many calls begin, how far apart, and what it learns from their ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, Pace, Throttled
from duly.core.errors import InputError
from duly.core.model import Crashed, Done, Failed, GiveUp, Lost, NotFound, Released, Skip, Snooze
from duly.core.policy.adapt import Load, SliceBounds
from duly.engine.gate import PaceGate
from duly.outbound.http import request
from tests.engine.test_outage import working

QUIET = Load()


class Ticks:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_gate(ticks: Ticks, load: Load = QUIET, **bounds: Any) -> PaceGate:
    return PaceGate(Pace("p", **bounds), SliceBounds(), ticks, lambda: load)


def call(gate: PaceGate, ticks: Ticks, seconds: float, verdict: Any, in_flight: int = 8) -> None:
    started = ticks.now
    ticks.now += seconds
    gate.ended(started, in_flight, [verdict])


def test_it_begins_with_one_call_and_doubles_them_as_long_as_all_goes_well() -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    widths = [gate.width()]
    for in_flight in (1, 2, 2, 4, 4, 4, 4):
        call(gate, ticks, 0.1, Done(), in_flight)
        widths.append(gate.width())
    assert widths == [1, 2, 2, 4, 4, 4, 4, 8]
    assert gate.throttled() == 0


OVERLOADED = "duly.outbound.http.OutboundError"


@pytest.mark.parametrize(
    ("verdict", "times", "less"),
    [
        (Throttled(0), 1, True),
        (Failed("x", ("duly.outbound.http.TimedOut", OVERLOADED)), 1, False),
        (Failed("x", ("duly.outbound.http.BadStatus", OVERLOADED)), 1, False),
        (Failed("x", ("duly.outbound.http.BadStatus", OVERLOADED)), 8, True),
        (Failed("x", ("ValueError",)), 8, False),
        (Released(), 8, False),
    ],
)
def test_a_429_and_many_errors_let_fewer_in_and_a_stray_error_or_other_failures_do_not(
    verdict: Any, times: int, less: bool
) -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    for _ in range(50):
        call(gate, ticks, 0.1, Done(), 20)
    before = gate.width()
    for _ in range(times):
        call(gate, ticks, 0.1, verdict, 20)
    assert (gate.width() < before) is less


def test_an_answer_that_is_no_success_is_an_answer_of_the_provider() -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    for verdict in (Skip("x"), GiveUp("x"), Snooze(5), NotFound("x"), Failed("x", ("ValueError",))):
        call(gate, ticks, 0.1, verdict, 8)
    assert gate.width() > 1
    assert gate.throttled() == 0


def test_a_call_without_an_answer_says_nothing_about_the_provider() -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    for verdict in (Released(), Crashed("killed"), Lost()):
        call(gate, ticks, 0.1, verdict, 8)
    assert gate.width() == 1
    assert gate.lately() is None


def test_calls_begin_apart_and_not_before_the_provider_said() -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    for _ in range(4):
        call(gate, ticks, 1.0, Done(), 3)
    gap = 1.0 / 4  # a level of 4
    assert [gate.turn() for _ in range(4)] == [0, 0, 0, 0], "what it is late is made up for"
    for _ in range(3):
        assert gate.turn() == pytest.approx(gap, rel=0.2)
        ticks.now += gap + 0.01
        assert gate.turn() == 0
    call(gate, ticks, 0.1, Throttled(30, is_guess=True), 3)
    assert gate.turn() == pytest.approx(1.0), "a breather, and no more if it did not say how long"
    call(gate, ticks, 0.1, Throttled(30), 3)
    assert gate.turn() == pytest.approx(30.0)


def test_a_provider_that_is_down_is_probed_and_then_called_as_before_at_once() -> None:
    ticks = Ticks()
    gate = a_gate(ticks)
    for _ in range(40):
        call(gate, ticks, 0.1, Done(), 16)
    before = gate.width()
    for _ in range(8):
        call(gate, ticks, 0.02, Failed("x", ("ConnectionError",)), 16)
    probes = 0
    for _ in range(6_000):  # ten minutes
        ticks.now += 0.1
        if gate.turn() == 0:
            call(gate, ticks, 0.0, Failed("x", ("ConnectionError",)), 1)
            probes += 1
    assert 100 < probes <= 125
    assert gate.claim() == gate.width() <= 4
    ticks.now += 5
    assert gate.turn() == 0
    call(gate, ticks, 0.1, Done(), 1)
    assert gate.width() > 0.6 * before / 2
    ticks.now += 10
    assert gate.turn() == 0


def test_no_more_is_claimed_than_a_slice_of_time_has_use_for_and_less_on_a_busy_machine() -> None:
    calm, busy = Ticks(), Ticks()
    gates = [a_gate(calm), a_gate(busy, Load(cpu=1.0))]
    for gate, ticks in zip(gates, (calm, busy), strict=True):
        assert gate.claim() == 1
        call(gate, ticks, 0.1, Done(), 1)
    # A slice of 5 s, of which 0.7 are used, for a level of 2 calls of 0.1 s each; a tenth of that when it is busy.
    assert [gate.claim() for gate in gates] == [70, 7]


def test_a_pace_that_is_none_is_refused() -> None:
    app = Duly("sqlite://")
    with pytest.raises(InputError, match="pace"):
        app.task(name="x", pace="fast")(lambda: None)  # type: ignore[typeddict-item]
    for wrong in ({"most": 0}, {"keep": 1.0}, {"recovery": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Pace("p", **wrong)


class Provider:
    """A real HTTP service that answers 429 above so many calls in any second."""

    def __init__(self, limit: int, latency: float) -> None:
        self.limit, self.latency = limit, latency
        self.good: list[float] = []
        self.refused: list[float] = []
        taken: deque[float] = deque()
        lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with lock:
                    now = time.monotonic()
                    while taken and taken[0] <= now - 1:
                        taken.popleft()
                    has_room = len(taken) < provider.limit
                    (taken if has_room else provider.refused).append(now)
                if has_room:
                    time.sleep(provider.latency)
                    provider.good.append(time.monotonic())
                self.send_response(200 if has_room else 429)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_worker_finds_out_how_much_a_real_provider_takes(tmp_path: Path, kind: str) -> None:
    """Work flows, and few of the calls are refused; how fast it settles is measured by bench.pace."""
    provider = Provider(limit=20, latency=0.1)
    app = Duly(f"sqlite:///{tmp_path}/gate.db", concurrency=32, sweep_seconds=0.2)

    if kind == "thread":

        @app.task(pace=Pace("shop"), deadline=10)
        def look_up(n: int) -> None:
            request("GET", provider.url, None)

    else:

        @app.task(pace=Pace("shop"), deadline=10)
        async def look_up(n: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", provider.server.server_port)
            writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if b" 429 " in answer:
                raise Throttled(60, is_guess=True)

    app.migrate()
    app.tasks["look_up"].put_many({"n": n} for n in range(2_000))
    with working(app):
        until = time.monotonic() + 60
        while len(provider.good) < 120 and time.monotonic() < until:
            time.sleep(0.05)
        told = app.registry
        assert 1 <= (told.get_sample_value("duly_pace_calls", {"provider": "shop"}) or 0) <= 32
        assert told.get_sample_value("duly_pace_throttle_rate", {"provider": "shop"}) is not None
    provider.close()
    assert len(provider.good) >= 120
    assert len(provider.refused) < len(provider.good) // 2
