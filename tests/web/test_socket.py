"""The service on a real socket: bodies in chunks, and streams that break, go on, and end with it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duly import Duly
from duly.verbs import local
from duly.web.routes import live
from duly.web.server import Service
from tests.web.conftest import LATER

NEW = {"task": "echo", "args": {"text": "hello"}, "at": LATER}


@pytest.fixture
def service(app: Duly) -> Iterator[Service]:
    with Service(app, "127.0.0.1", 0) as service:
        yield service


def connect(service: Service) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=60)


def test_an_answer_does_not_wait_for_its_head_to_be_confirmed(service: Service) -> None:
    """Connections that are kept answered after 40 ms: the body waited for a confirmation, which clients delay."""
    assert service._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


# -- bodies


def test_a_body_may_come_in_chunks(service: Service) -> None:
    connection = connect(service)
    text = json.dumps(NEW).encode()
    for size in (1, 7, len(text)):
        parts = (text[place : place + size] for place in range(0, len(text), size))
        headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        connection.request("POST", "/api/items", parts, headers, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["fresh"]) == (201, True)
    connection.close()


def test_a_body_without_end_is_cut_off_at_the_limit(service: Service) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(
            b"POST /api/items HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        sent, chunk = 0, b"10000\r\n" + b" " * 65_536 + b"\r\n"
        try:
            while sent < 200 * 1024 * 1024:
                peer.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass  # nobody listens any more
        assert sent < 50 * 1024 * 1024
    connection = connect(service)
    connection.request("GET", "/api/items")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_body_just_over_the_limit_is_told_so(service: Service) -> None:
    connection = connect(service)
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    body = iter([b" " * 1_048_576, b" " * 1_048_577])
    connection.request("POST", "/api/items", body, headers, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["title"]) == (413, "Too large")
    connection.close()


# -- streams


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.02)


class Ear:
    """Listens to the stream; `last` is where a browser would go on from."""

    def __init__(self, service: Service, last: str | None = None) -> None:
        self._connection = connect(service)
        self._connection.request("GET", "/api/events", headers={"Last-Event-ID": last} if last else {})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self.last = ""
        self.event()

    def event(self) -> tuple[str, Any] | None:
        """The next event; None at the end of the stream."""
        kind, data = "", None
        while line := self._answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.last = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = json.loads(value)
            elif not name:
                return kind, data
        return None

    def close(self) -> None:
        self._connection.close()


@contextmanager
def busy(app: Duly, lines: int) -> Iterator[list[str]]:
    """People who do things meanwhile, two at a time, each thing in a transaction that takes a while; all were done."""
    done: list[str] = []

    def act(name: str) -> None:
        for number in range(lines):
            with app.internals.store.transaction() as connection:
                app.internals.verbs.audit.note(local("ana"), f"{name}-{number}", "item:1", {}, connection)
                app.read.page(most=1)
            done.append(f"{name}-{number}")

    threads = [threading.Thread(target=act, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    yield done
    for thread in threads:
        thread.join()


def test_a_stream_that_breaks_again_and_again_misses_nothing(app: Duly, service: Service) -> None:
    ear = Ear(service)
    heard: list[str] = []
    with busy(app, 150) as done:
        while len(set(heard)) < 300:
            event = ear.event()
            assert event is not None
            if event[0] == "audit":
                heard.append(event[1]["action"])
            if len(heard) % 40 == 39:
                last = ear.last
                ear.close()
                ear = Ear(service, last)
                heard.append(heard[-1])
    ear.close()
    assert set(heard) == set(done)


def test_a_service_ends_with_streams_open(app: Duly) -> None:
    with Service(app, "127.0.0.1", 0) as service:
        ears = [Ear(service) for _ in range(5)]
        began = time.monotonic()
    assert time.monotonic() - began < 15
    assert not service.is_alive
    for ear in ears:
        while ear.event() is not None:
            pass
        ear.close()
    assert service.api.state.streams == 0


def test_a_listener_that_left_is_not_counted_any_more(service: Service) -> None:
    for _ in range(3):
        Ear(service).close()
    give_up = time.monotonic() + 20
    while service.api.state.streams and time.monotonic() < give_up:
        time.sleep(0.01)
    assert service.api.state.streams == 0
