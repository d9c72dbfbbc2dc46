"""The server that the demo calls, on this machine only: `POST /call`, /greetings, /products and /catalog/batch.

It accepts every call and message, except those that it was set up to refuse with `expect`.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from duly.apps.demo.catalog import offers
from duly.apps.demo.products import ProductLookUps

REFUSALS = {
    400: "not a phone number",
    429: "too many calls",
    503: "line busy",
}


class Provider:
    def __init__(self) -> None:
        self._plans: dict[str, list[int]] = {}
        self._calls: dict[str, str] = {}
        self.look_ups = ProductLookUps()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, name="duly-provider", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def expect(self, number: str, refusals: list[int]) -> None:
        """Answer the next calls to this number, or messages to this person, with these statuses; then accept them."""
        self._plans[number] = list(refusals)

    def call(self, number: str, key: str) -> tuple[int, dict[str, Any]]:
        """The response. Requests with the same key are the same call."""
        if refusals := self._plans.get(number):
            status = refusals.pop(0)
            return status, {"statusCode": status, "message": REFUSALS[status]}
        return 201, {"id": self._calls.setdefault(key, f"call_{uuid4().hex[:8]}"), "status": "queued"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: Provider


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        provider = self.server.provider
        if self.path == "/call":
            status, answer = provider.call(request["customer"]["number"], self.headers["Idempotency-Key"])
        elif self.path == "/greetings":
            status, answer = provider.call(request["userId"], self.headers["Idempotency-Key"])
        elif self.path == "/products":
            status, answer = provider.look_ups.answer(request)
        elif self.path == "/catalog/batch":
            status, answer = 200, {"products": offers(request["skus"], datetime.now(UTC))}
        else:
            status, answer = 404, {"statusCode": 404, "message": "not found"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "3")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: the demo shows what happens."""
