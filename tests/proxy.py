"""A proxy in front of a server that can go silent.

Then it goes on taking what is sent, so that the sender's system is content, and passes nothing on. What connects
afterwards is served as ever.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._server = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._server.getsockname()[1]}"))
        self._silent = threading.Event()  # of the connections that are open now
        self._open: list[socket.socket] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Pass on nothing more of the connections that there are."""
        self._silent.set()
        self._silent = threading.Event()

    def close(self) -> None:
        """As a server that went away: whoever is there is cut off, whoever comes is refused."""
        for each in (self._server, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                self.connections += 1
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=(source, sink, self._silent), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while some := source.recv(65_536):
            if not silent.is_set():
                sink.sendall(some)
        if not silent.is_set():
            sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
