"""A real PgBouncer in front of the server of the tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from private import Place, free_ports

CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
logfile = {folder}/log
"""


@contextmanager
def pooled(url: str, mode: str = "transaction", size: int = 5) -> Iterator[str]:
    """The same database behind a pooler."""
    parts = urlsplit(url)
    place = Place(Path(tempfile.mkdtemp(prefix="duly-")), mark="duly-bouncer", users=("postgres", "nobody"))
    place.claim()
    (port,) = free_ports()
    place.own(place.path / "users", f'"{parts.username}" ""\n')
    text = CONFIG.format(host=parts.hostname, port=parts.port, own=port, folder=place.path, mode=mode, size=size)
    place.own(place.path / "ini", text)
    command = [os.environ["DULY_TEST_PGBOUNCER"], "-q", str(place.path / "ini")]
    running = subprocess.Popen(command, cwd=place.path, stderr=subprocess.DEVNULL, **place.identity())
    ours = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
    try:
        _await(ours)
        yield ours
    finally:
        running.kill()
        running.wait()
        place.remove()


def _await(url: str) -> None:
    give_up = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        else:
            return
