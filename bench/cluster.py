"""A private, durable PostgreSQL that lives as long as a `with` block.

Every durability setting is on, as in production: a benchmark that does not wait for the disk measures
nothing that a user gets.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psycopg

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
}


@dataclass(frozen=True)
class Server:
    """A running cluster: where it listens and which process is its postmaster."""

    port: int
    postmaster: int

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://duly@127.0.0.1:{self.port}/{database}"


@contextmanager
def cluster() -> Iterator[Server]:
    """Start a cluster in a scratch folder; stop and remove it however the block ends."""
    binaries = find_binaries()
    owner = unprivileged_user()
    # /var/tmp is on disk everywhere; /tmp may be memory, where fsync costs nothing.
    home = Path(tempfile.mkdtemp(prefix="duly-bench-pg-", dir="/var/tmp"))
    before = signal.signal(signal.SIGTERM, leave)
    postmaster: subprocess.Popen[bytes] | None = None
    try:
        if owner:
            shutil.chown(home, owner)
        data = home / "data"
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "duly", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=owner,
            cwd=home,
        )
        port = free_port()
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (home / "log").open("wb") as log:
            postmaster = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-p", str(port), "-k", home, *settings],
                stdout=log,
                stderr=log,
                user=owner,
                cwd=home,
                # Its own session: a Ctrl-C meant for the driver must not take the store away first.
                start_new_session=True,
            )
        server = Server(port, postmaster.pid)
        wait_until_ready(server, postmaster, home / "log")
        yield server
    finally:
        if postmaster:
            stop(postmaster)
        shutil.rmtree(home, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def fresh_database(server: Server, name: str) -> str:
    """Create an empty database, in place of any older one of that name, and return its DSN."""
    drop_database(server, name)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
        # Every measure starts with clean buffers, not with the leftovers of the one before.
        connection.execute("checkpoint")
    return server.dsn(name)


def drop_database(server: Server, name: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f'drop database if exists "{name}" with (force)')


def find_binaries() -> Path:
    asked = shutil.which("pg_config")
    if asked:
        told = Path(subprocess.check_output([asked, "--bindir"], text=True).strip())
        if (told / "initdb").exists():
            return told
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if not found:
        raise RuntimeError("no PostgreSQL server binaries found: install the package `postgresql`")
    return max(found, key=lambda path: float(path.parent.name))


def unprivileged_user() -> str | None:
    """The user to run as; None when we are not root, because PostgreSQL refuses only root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise RuntimeError("PostgreSQL refuses to run as root: create a user named `postgres`")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(server: Server, postmaster: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and postmaster.poll() is None:
        try:
            psycopg.connect(server.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")


def stop(postmaster: subprocess.Popen[bytes]) -> None:
    postmaster.send_signal(signal.SIGINT)
    try:
        postmaster.wait(60)
    except subprocess.TimeoutExpired:
        postmaster.send_signal(signal.SIGQUIT)
        postmaster.wait()


def leave(signum: int, _frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception, so that `finally` blocks clean up."""
    raise SystemExit(128 + signum)
