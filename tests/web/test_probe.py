"""What a machine may ask a running process, over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from duly import Duly
from duly.core.errors import ConfigError, StoreError, StoreUnavailable
from duly.core.patience import Patient
from duly.web import probe as room
from duly.web.probe import Probe


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)
    yield app
    app.close()


@pytest.fixture
def probe(app: Duly) -> Iterator[Probe]:
    with Probe(app, "127.0.0.1", 0) as probe:
        yield probe


def ask(probe: Probe, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(probe.url.removeprefix("http://"), timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = (answer.status, dict(answer.getheaders()), answer.read())
    connection.close()
    return found


def test_metrics_are_prometheus_text(probe: Probe, app: Duly) -> None:
    @app.task
    def ring() -> None: ...

    ring.put()
    status, headers, body = ask(probe, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert int(headers["Content-Length"]) == len(body)
    assert b'duly_queue_items{lane="main",queue="ring",state="waiting"} 1.0' in body
    assert b"duly_store_up 1.0" in body


def test_a_living_process_is_healthy_and_ready(probe: Probe) -> None:
    for path in ("/healthz", "/readyz", "/readyz?verbose=1", "/readyz"):
        status, headers, body = ask(probe, path)
        assert (status, json.loads(body)) == (200, {"status": "ok"})
        assert headers["Content-Type"] == "application/json; charset=utf-8"


def test_an_ailing_process_says_why(app: Duly) -> None:
    with Probe(app, "127.0.0.1", 0, ailing=lambda: "the claimer is stuck") as probe:
        for path in ("/healthz", "/readyz"):
            status, _, body = ask(probe, path)
            assert (status, json.loads(body)["reason"]) == (503, "the claimer is stuck")


def test_head_has_the_headers_and_no_body(probe: Probe) -> None:
    for path in ("/metrics", "/healthz", "/nowhere"):
        status, headers, body = ask(probe, path, "HEAD")
        assert status == ask(probe, path)[0]
        assert int(headers["Content-Length"]) > 0
        assert body == b""


@pytest.mark.parametrize("line", ["HEAD /healthz HTTP/1.1", "GET /healthz HTTP/1.1", "GET /healthz HTTP/1.0"])
def test_a_bare_client_is_content(probe: Probe, line: str) -> None:
    """As curl asks: with and without a body in the answer, and in the older manner."""
    host, _, port = probe.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as wire:
        wire.sendall(f"{line}\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: wire.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_only_looking_is_allowed(probe: Probe, method: str) -> None:
    status, headers, _ = ask(probe, "/healthz", method, b"x=1")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert headers["Connection"] == "close"


def test_elsewhere_is_nothing(probe: Probe) -> None:
    status, _, body = ask(probe, "/admin")
    assert status == 404
    assert "/metrics" in json.loads(body)["reason"]


def test_one_connection_may_ask_many_times(probe: Probe) -> None:
    connection = http.client.HTTPConnection(probe.url.removeprefix("http://"), timeout=60)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status": "ok"}\n'
    connection.close()


def test_a_silent_peer_keeps_nobody_waiting(probe: Probe) -> None:
    host, _, port = probe.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))):
        assert ask(probe, "/healthz")[0] == 200


def test_it_listens_on_ipv6_too(sqlite_url: str) -> None:
    app = Duly(sqlite_url)
    with Probe(app, "::1", 0) as probe:
        assert probe.url.startswith("http://[::1]:")
        assert ask(probe, "/healthz")[0] == 200
    app.close()


def test_an_unmigrated_database_is_not_ready(blank_postgres_url: str) -> None:
    app = Duly(blank_postgres_url)
    with Probe(app, "127.0.0.1", 0) as probe:
        status, _, body = ask(probe, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the database is not migrated")
        assert ask(probe, "/healthz")[0] == 200
        app.migrate()
        assert ask(probe, "/readyz")[0] == 200
    app.close()


def test_an_absent_database_is_not_ready_and_no_secret_is_told() -> None:
    app = Duly("postgresql://someone:secret@127.0.0.1:1/there", store_timeout_seconds=0.2)
    with Probe(app, "127.0.0.1", 0) as probe:
        status, _, body = ask(probe, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the database does not answer")
        assert b"someone" not in body
        assert b"duly_store_up 0.0" in ask(probe, "/metrics")[2]
    app.close()


def test_a_database_that_is_broken_is_not_ready(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Duly(sqlite_url)

    def broken() -> None:
        raise StoreError("/secret/place.db is damaged")

    monkeypatch.setattr(app, "check", broken)
    with Probe(app, "127.0.0.1", 0) as probe:
        status, _, body = ask(probe, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the database rejects queries")
    app.close()


def test_a_database_that_hangs_is_not_waited_for(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    app, go = Duly(sqlite_url), threading.Event()
    monkeypatch.setattr(app, "check", lambda: go.wait(30))
    with Probe(app, "127.0.0.1", 0) as probe:
        assert ask(probe, "/readyz")[0] == 503
        assert ask(probe, "/healthz")[0] == 200
        go.set()
    app.close()


def test_a_question_that_is_open_is_not_asked_again() -> None:
    asked, go = [], threading.Event()

    def ask_slowly() -> int:
        asked.append(1)
        go.wait(30)
        return 7

    patient = Patient(ask_slowly, 0.05)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"within 0\.05 s"):
            patient()
    assert asked == [1]
    go.set()


def test_a_taken_port_is_a_clear_error(app: Duly, probe: Probe) -> None:
    port = int(probe.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port} .*--http-port"):
        Probe(app, "127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 8086)])
def test_an_impossible_address_is_a_clear_error(app: Duly, host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        Probe(app, host, port)
