"""A private PostgreSQL server: a folder, a free port, nobody else's data.

    with Cluster() as cluster:
        connect(cluster.dsn("postgres"))

The server runs as the current user or, because PostgreSQL refuses root, as `postgres` when root starts it. The folder
holds everything: `data`, the log, the socket. Stopping removes it; a folder left by a killed run does no harm and
`Cluster(folder).stop()` clears it from any process.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, MappingProxyType, TracebackType
from typing import Any

from debian import MissingError, alone, install, is_installed

MARK = "duly-cluster"  # only a folder with this file in it is ever removed
PROGRAMS = ("initdb", "pg_ctl", "postgres")
LONGEST_FOLDER = 107 - len("/.s.PGSQL.65535")  # the kernel's limit for the path of a unix socket

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "jit": "off",
}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class ClusterError(Exception):
    """The server could not be made or started; the text carries its log."""


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
        self.folder = Path(folder or _temporary(on_disk=durable)).absolute()
        self.durable = durable
        self.settings = SETTINGS | (DURABLE if durable else FORGETFUL) | dict(settings)
        self.port = 0
        self._as: dict[str, Any] = _unprivileged()
        self._sigterm: Any = None

    def start(self) -> Cluster:
        """Make the cluster and wait until it takes connections."""
        binaries = ensure_binaries()
        self._as = _unprivileged()  # installing the server may just have brought the user
        self._claim_folder()
        try:
            self._initdb(binaries)
            self._serve(binaries)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server at once, without a checkpoint, and remove the folder. Harmless when it is gone already."""
        place = self.folder.resolve()
        if place.exists() and any(place.iterdir()) and not (place / MARK).exists():
            raise ClusterError(f"{self.folder} holds no cluster of ours, so it stays as it is")
        if _is_serving(place / "data"):
            self._run([ensure_binaries() / "pg_ctl", "stop", "-D", place / "data", "-m", "immediate", "-w"], place)
        shutil.rmtree(place, ignore_errors=True)
        if self.folder.is_symlink():
            self.folder.unlink()

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://duly@127.0.0.1:{self.port}/{dbname}"

    def postmaster(self) -> int:
        """The process id of the running server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().partition("\n")[0])

    def __enter__(self) -> Cluster:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._sigterm = signal.signal(signal.SIGTERM, _leave)
        try:
            return self.start()
        except BaseException:
            self._restore_sigterm()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        self._restore_sigterm()

    def _restore_sigterm(self) -> None:
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)
            self._sigterm = None

    def _claim_folder(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise ClusterError(f"{self.folder} is not empty; stop the cluster in it first, or take another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        if "user" in self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self.folder.chmod(0o700)
        if len(os.fsencode(self.folder)) > LONGEST_FOLDER or not self._can_write(self.folder):
            self._move_elsewhere()
        (self.folder / MARK).touch()

    def _move_elsewhere(self) -> None:
        """Leave a link in place of a folder that the server cannot use, so that the folder's name still works."""
        elsewhere = _temporary(on_disk=True)
        if "user" in self._as:
            os.chown(elsewhere, self._as["user"], self._as["group"])
        self.folder.rmdir()
        self.folder.symlink_to(elsewhere)
        print(f"{self.folder} is out of the server's reach; the cluster is in {elsewhere}", file=sys.stderr)

    def _can_write(self, folder: Path) -> bool:
        return self._run(["/bin/sh", "-c", 'cd "$1" && test -w .', "sh", folder], Path("/")).returncode == 0

    def _initdb(self, binaries: Path) -> None:
        place = self.folder.resolve()
        command = [binaries / "initdb", "-D", place / "data", "-A", "trust", "-U", "duly", "-E", "UTF8", "--locale=C"]
        made = self._run([*command, *([] if self.durable else ["--no-sync"])], place)
        if made.returncode != 0:
            raise ClusterError(f"initdb failed in {place}:\n{made.stdout}")
        settings = self.settings | {"unix_socket_directories": str(place)}
        with (place / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _serve(self, binaries: Path) -> None:
        place = self.folder.resolve()
        log = place / "log"
        start = [binaries / "pg_ctl", "start", "-D", place / "data", "-l", log, "-w", "-t", "60"]
        for _ in range(5):  # between finding a free port and taking it, someone else may take it
            self.port = _free_port()
            if self._run([*start, "-o", f"-p {self.port}"], place).returncode == 0:
                return
            if "could not bind" not in log.read_text():
                break
        raise ClusterError(f"PostgreSQL did not start in {place}:\n{log.read_text() if log.exists() else 'no log'}")

    def _run(self, command: list[Any], cwd: Path) -> subprocess.CompletedProcess[str]:
        # a pipe would stay open in the server that pg_ctl leaves behind, and reading it would never end
        with tempfile.TemporaryFile("w+") as said:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, **self._as
            )
            said.seek(0)
            done.stdout = said.read()
        return done


def sweep(parent: Path) -> None:
    """Clear the clusters in `parent` whose folder is named after a process that no longer lives."""
    with alone("sweep"):
        for folder in parent.glob("*"):
            if folder.name.isdigit() and not Path("/proc", folder.name).exists():
                Cluster(folder).stop()


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


def _unprivileged() -> dict[str, Any]:
    """How to start a process that PostgreSQL accepts: as we are, or as `postgres` (else `nobody`) when we are root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ClusterError("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")


def _is_serving(data: Path) -> bool:
    """Whether a server lives in `data`. The number in a stale postmaster.pid may belong to someone else by now."""
    try:
        pid = (data / "postmaster.pid").read_text().partition("\n")[0]
        return Path("/proc", pid, "cwd").readlink() == data
    except OSError:
        return False


def _temporary(*, on_disk: bool) -> Path:
    # /tmp may be memory, where syncing costs nothing and a measurement means nothing
    return Path(tempfile.mkdtemp(prefix="duly-pg-", dir="/var/tmp" if on_disk else None))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
