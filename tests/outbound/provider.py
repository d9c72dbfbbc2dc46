"""A provider of phone calls on a free port of this host: real sockets, real HTTP, and every way to misbehave."""

from __future__ import annotations

import json
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    method: str = "POST"
    raw: bytes = b""

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


Answer = Callable[["Desk"], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # socketserver's 5 makes the kernel reset some of many callers at once


class Provider:
    """Records what arrives and answers as it was told to, then well. A key that it saw before makes no second call."""

    def __init__(self, *answers: Answer, certificate: str | None = None) -> None:
        self.requests: list[Request] = []
        self.calls: dict[str, str] = {}
        self.closing = threading.Event()
        self.let_down = threading.Event()  # someone hung up on an answer that was under way
        self._answers = deque(answers)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Desk", (Desk,), {"provider": self}))
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def accept(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            return self._answers.popleft() if self._answers else ok

    def place_call(self, key: str) -> str:
        with self._lock:
            return self.calls.setdefault(key, f"call-{len(self.calls) + 1}")

    def seen(self) -> Counter[str]:
        """How often each execution key arrived."""
        return Counter(request.key for request in self.requests)


class Desk(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k.lower(): v for k, v in self.headers.items()}
        self.request_seen = Request(self.path, headers, json.loads(text) if text else None, self.command, text)
        self.close_connection = True
        try:
            self.provider.accept(self.request_seen)(self)
        except (BrokenPipeError, ConnectionResetError):
            self.provider.let_down.set()

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def ok(desk: Desk) -> None:
    """Place the call, unless its key was seen before, and answer with its id."""
    call_id = desk.provider.place_call(desk.request_seen.headers.get("idempotency-key", ""))
    desk.reply(201, json.dumps({"id": call_id, "status": "queued"}).encode())


def accept_and_hang(desk: Desk) -> None:
    """Place the call and never answer."""
    desk.provider.place_call(desk.request_seen.key)
    desk.provider.closing.wait()


def drip(desk: Desk) -> None:
    """Answer a byte at a time, each soon enough for a timeout that only looks at single reads."""
    desk.send_response(200)
    desk.send_header("Content-Length", "1000000")
    desk.end_headers()
    while not desk.provider.closing.wait(0.01):
        desk.wfile.write(b" ")


def drip_headers(desk: Desk) -> None:
    desk.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not desk.provider.closing.wait(0.01):
        desk.wfile.write(b"z")


def huge(desk: Desk) -> None:
    """Answer without end."""
    desk.send_response(200)
    desk.end_headers()
    while not desk.provider.closing.is_set():
        desk.wfile.write(b"[" * 65_536)


def break_off(desk: Desk) -> None:
    desk.send_response(200)
    desk.send_header("Content-Length", "100")
    desk.end_headers()
    desk.wfile.write(b'{"id":')


def hang_up(desk: Desk) -> None:
    """Close without a word."""


def echo_headers(desk: Desk) -> None:
    """A careless server: its refusal repeats what it was sent."""
    desk.reply(400, json.dumps({"error": "no", "you sent": desk.request_seen.headers}).encode())


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return lambda desk: desk.reply(status, body, **headers)
