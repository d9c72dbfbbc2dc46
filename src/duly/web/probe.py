"""Serves `/metrics`, `/healthz` and `/readyz` of a worker.

It uses the standard library only, in a daemon thread, so that a worker stays small. `/healthz` reports whether
this process works; if not, restart it. `/readyz` reports whether its database answers and is migrated. Both answer in
time however long the database takes, and neither shows a secret.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from duly.core.errors import ConfigError, DulyError, NotMigrated, StoreUnavailable
from duly.core.patience import Patient
from duly.facade.app import Duly

log = logging.getLogger("duly.web")

PATIENCE = 2.0  # seconds; most systems take a probe without an answer by then for a failed one

Answer = tuple[HTTPStatus, str, bytes]


class Probe:
    """The endpoints of one app. `ailing` returns what is wrong with the process, or None."""

    def __init__(self, app: Duly, host: str, port: int, ailing: Callable[[], str | None] = lambda: None) -> None:
        self._app = app
        self._ailing = ailing
        self._is_migrated = False
        self._reach = Patient(self._ask_database, PATIENCE)
        with listening(host, port, ", 0 for none"):
            self._server = _Server((host, port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="duly-probe", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return url_of(str(host), port)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- answers

    def answer(self, path: str) -> Answer:
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._app.registry)
            case "/healthz":
                return _status(self._ailing())
            case "/readyz":
                return _status(self._ailing() or unready(self._reach) or self._app.internals.hindrance())
            case _:
                known = "this port serves /metrics, /healthz and /readyz"
                return HTTPStatus.NOT_FOUND, _JSON, _body({"status": "not found", "reason": known})

    def _ask_database(self) -> None:
        if self._is_migrated:  # it stays migrated, so a cheaper query is enough from then on
            self._app.read.page(most=1)
        else:
            self._app.check()
            self._is_migrated = True


def unready(ask_database: Callable[[], object]) -> str | None:
    """Why the database cannot be used, if it cannot. Its address and its answer are only logged."""
    try:
        ask_database()
    except DulyError as error:
        log.warning("not ready: %s", error)
        if isinstance(error, NotMigrated):
            return "the database is not migrated"
        return "the database does not answer" if isinstance(error, StoreUnavailable) else "the database rejects queries"
    return None


@contextmanager
def listening(host: str, port: int, hint: str = "") -> Iterator[None]:
    """Report that nothing can listen on this address as an error of the settings."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"http_port: cannot listen on {host}:{port} ({reason}); "
            f"choose another with --http-port or DULY_HTTP_PORT{hint}"
        ) from error


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


_JSON = "application/json; charset=utf-8"


def _status(reason: str | None) -> Answer:
    if reason is None:
        return HTTPStatus.OK, _JSON, _body({"status": "ok"})
    return HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _body({"status": "unavailable", "reason": reason})


def _body(fields: dict[str, str]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], probe: Probe) -> None:
        self.probe = probe
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # http.server's would look up our own name, which may take long

    def handle_error(self, *_: Any) -> None:
        log.debug("a probe's connection broke", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a client that sends nothing
    server: _Server

    def version_string(self) -> str:
        return "duly"

    def do_GET(self) -> None:
        self._send(*self.server.probe.answer(self.path.partition("?")[0]))

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def __getattr__(self, name: str) -> Any:
        # http.server looks for a method do_<METHOD>: every method but GET and HEAD is answered with 405.
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self._send(
            HTTPStatus.METHOD_NOT_ALLOWED, _JSON, _body({"status": "not allowed", "reason": "GET and HEAD only"})
        )

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        has_body = self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if has_body:  # an unread body would be taken for the next request
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing, because a probe comes every few seconds."""
