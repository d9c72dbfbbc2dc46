"""Runs the API in a thread, with a worker or alone. Its streams are closed when it ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from duly import Duly
from duly.web.api import create_api
from duly.web.probe import listening, url_of


class Service:
    """The API on an address, for the length of a `with` block."""

    def __init__(self, app: Duly, host: str, port: int, ailing: Callable[[], str | None] = lambda: None) -> None:
        self.api = create_api(app, host, ailing)
        with listening(host, port):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it. Without it the body of an answer waits 40 ms for the client to confirm the head.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.bind((host, port))
            self._socket.listen(2_048)  # from here on clients wait instead of being rejected
        config = uvicorn.Config(
            self.api,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http="h11",  # fixed, because its limits are the tested ones
            ws="none",
            server_header=False,
            date_header=True,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=10,
            h11_max_incomplete_event_size=65_536,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="duly-web", daemon=True)
        self.url = url_of(host, self._socket.getsockname()[1])

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            # End open streams first, because the server waits for requests that are under way.
            self._loop.call_soon_threadsafe(self.api.state.closing.set)
        self._server.should_exit = True
        self._thread.join(15)

    @property
    def shown_url(self) -> str:
        """The address to open in a browser: where it listens on all addresses, that of this machine."""
        return self.url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._server.serve([self._socket]))
