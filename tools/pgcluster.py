"""A private PostgreSQL server: its own folder, port and data.

    with Cluster() as cluster:
        connect(cluster.dsn("postgres"))

The server runs as the current user or, because PostgreSQL refuses root, as `postgres` when root starts it. The folder
holds everything: `data`, the log, the socket. Stopping removes it; a folder left by a killed run does no harm and
`Cluster(folder).stop()` clears it from any process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType

import private
from debian import MissingError, install, is_installed
from private import Place, ServerError, free_ports, sigterm_leaves, temporary

MARK = "duly-cluster"  # only a folder with this file in it is ever removed
PROGRAMS = ("initdb", "pg_ctl", "postgres")
LONGEST_FOLDER = 107 - len("/.s.PGSQL.65535")  # the kernel's limit for the path of a unix socket

SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "200", "shared_buffers": "256MB", "jit": "off"}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",  # the folder may be in memory
}


def find_binaries() -> Path | None:
    """The folder with the server's programs: pg_config's, else Debian's newest, else the one on PATH."""
    return next((folder for folder in _candidates() if all((folder / name).exists() for name in PROGRAMS)), None)


def ensure_binaries() -> Path:
    """Like `find_binaries`, but installs Debian's server when there is none."""
    found = find_binaries()
    if found is None:
        _install_server()
        found = find_binaries()
    if found is None:
        raise MissingError("the package postgresql is installed, but initdb, pg_ctl and postgres are nowhere")
    return found


class Cluster:
    """One server in one folder; without a folder, in a fresh temporary one. `settings` win over the built-in ones."""

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        durable: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = Path(folder or temporary(on_disk=durable)).absolute()
        self.durable = durable
        self.settings = SETTINGS | (DURABLE if durable else FORGETFUL) | dict(settings)
        self.port = 0
        self._place = Place(self.folder, mark=MARK, users=("postgres", "nobody"), longest=LONGEST_FOLDER)
        self._leaving = ExitStack()

    def start(self) -> Cluster:
        """Make the cluster and wait until it takes connections."""
        binaries = ensure_binaries()
        self._place.claim()
        try:
            self._initdb(binaries)
            self._serve(binaries)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server at once, without a checkpoint, and remove the folder. Harmless when it is gone already."""
        self._place.check()
        data = self._place.path / "data"
        if _is_serving(data):
            self._place.run([ensure_binaries() / "pg_ctl", "stop", "-D", data, "-m", "immediate", "-w"])
        self._place.remove()

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://duly@127.0.0.1:{self.port}/{dbname}"

    def postmaster(self) -> int:
        """The process id of the running server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().partition("\n")[0])

    def __enter__(self) -> Cluster:
        with ExitStack() as leaving:
            leaving.enter_context(sigterm_leaves())
            self.start()
            leaving.callback(self.stop)
            self._leaving = leaving.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leaving.close()

    def _initdb(self, binaries: Path) -> None:
        place = self._place.path
        command = [binaries / "initdb", "-D", place / "data", "-A", "trust", "-U", "duly", "-E", "UTF8", "--locale=C"]
        made = self._place.run([*command, *([] if self.durable else ["--no-sync"])])
        if made.returncode != 0:
            raise ServerError(f"initdb failed in {place}:\n{made.stdout}")
        settings = self.settings | {"unix_socket_directories": str(place)}
        with (place / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _serve(self, binaries: Path) -> None:
        place = self._place.path
        log = place / "log"
        start = [binaries / "pg_ctl", "start", "-D", place / "data", "-l", log, "-w", "-t", "60"]
        for _ in range(5):  # between finding a free port and taking it, someone else may take it
            (self.port,) = free_ports()
            if self._place.run([*start, "-o", f"-p {self.port}"]).returncode == 0:
                return
            if "could not bind" not in log.read_text():
                break
        raise ServerError(f"PostgreSQL did not start in {place}:\n{log.read_text() if log.exists() else 'no log'}")


def sweep(parent: Path) -> None:
    """Clear the clusters in `parent` that killed runs left behind."""
    private.sweep(parent, lambda folder: Cluster(folder).stop())


def _candidates() -> list[Path]:
    pg_config = shutil.which("pg_config")
    said = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout if pg_config else ""
    debian = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=lambda folder: -int(folder.parent.name))
    on_path = [Path(folder) for folder in os.get_exec_path() if folder]
    return [*([Path(said.strip())] if said.strip() else []), *debian, *on_path]


def _install_server() -> None:
    """Install Debian's server without the cluster that the package would otherwise create and start."""
    if is_installed("postgresql-common") or os.geteuid() != 0:
        install("postgresql")
        return
    install("postgresql-common")
    conf = Path("/etc/postgresql-common/createcluster.conf")
    before = conf.read_text()
    conf.write_text(before + "create_main_cluster = false\n")
    try:
        install("postgresql")
    finally:
        conf.write_text(before)


def _is_serving(data: Path) -> bool:
    """Whether a server lives in `data`. The number in a stale postmaster.pid may belong to someone else by now."""
    try:
        pid = (data / "postmaster.pid").read_text().partition("\n")[0]
        return Path("/proc", pid, "cwd").readlink() == data
    except OSError:
        return False
