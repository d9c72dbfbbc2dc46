"""What private servers have in common: a folder to themselves, an ordinary user to run as, free ports, and an end.

A server's folder holds everything that it writes. It carries a mark, and only a marked folder is ever removed. Folders
of a run are named after the process that made them, so that `sweep` can clear what a killed run left behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from debian import alone

LONGEST_PATH = 4096  # the kernel's limit
MEMORY = Path("/dev/shm")


OWNER = "owner"  # the file that names the clone to which a folder in memory belongs
_held: list[TextIO] = []  # such files that this process holds the lock of


class ServerError(Exception):
    """A private server could not be created, started or queried; the text has its output."""


class Place:
    """A folder that a server has to itself and, when root starts it, the user that owns both."""

    def __init__(self, folder: Path, *, mark: str, users: tuple[str, ...], longest: int = LONGEST_PATH) -> None:
        self.folder = folder.absolute()
        self.mark = mark
        self.users = users
        self.longest = longest

    @property
    def path(self) -> Path:
        """Where the folder really is."""
        return self.folder.resolve()

    def is_claimed(self) -> bool:
        return (self.path / self.mark).exists()

    def claim(self) -> None:
        """Make the folder, or take it over when it is empty."""
        if self.folder.exists() and any(self.folder.iterdir()):
            raise ServerError(f"{self.folder} is not empty; stop the server in it first, or take another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._hand_over(self.folder)
        self.folder.chmod(0o700)
        if len(os.fsencode(self.folder)) > self.longest or not self._can_write():
            self._move_elsewhere()
        (self.path / self.mark).touch()

    def check(self) -> None:
        """Refuse a folder with something else in it."""
        if self.path.exists() and any(self.path.iterdir()) and not self.is_claimed():
            raise ServerError(f"{self.folder} holds no server of ours, so it stays as it is")

    def remove(self) -> None:
        self.check()
        shutil.rmtree(self.path, ignore_errors=True)
        if self.folder.is_symlink():
            self.folder.unlink()

    def run(self, command: list[Any], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as the server's user, with everything that it says in `stdout`."""
        # a pipe would stay open in a server that the command leaves behind, and reading it would never end
        with tempfile.TemporaryFile("w+") as said:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command,
                cwd=cwd or self.path,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                **self.identity(),
            )
            said.seek(0)
            done.stdout = said.read()
        return done

    def identity(self) -> dict[str, Any]:
        """How to start a process as an ordinary user: as we are or, when we are root, as the first known of `users`."""
        if os.geteuid() != 0:
            return {}
        for name in self.users:
            try:
                user = pwd.getpwnam(name)
            except KeyError:
                continue
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        raise ServerError(f"a server must not run as root, and there is no user {' or '.join(self.users)} to run it as")

    def own(self, path: Path, text: str, mode: int = 0o600) -> None:
        """Write a file that belongs to the server's user."""
        path.write_text(text)
        self._hand_over(path)
        path.chmod(mode)

    def _hand_over(self, path: Path) -> None:
        who = self.identity()
        if who:
            os.chown(path, who["user"], who["group"])

    def _can_write(self) -> bool:
        return self.run(["/bin/sh", "-c", 'cd "$1" && test -w .', "sh", self.folder], Path("/")).returncode == 0

    def _move_elsewhere(self) -> None:
        """Leave a link in place of a folder that the server cannot use, so that the folder's name still works."""
        elsewhere = temporary(on_disk=True)
        self._hand_over(elsewhere)
        self.folder.rmdir()
        self.folder.symlink_to(elsewhere)
        print(f"{self.folder} is out of the server's reach; the server is in {elsewhere}", file=sys.stderr)


def temporary(*, on_disk: bool) -> Path:
    # /tmp may be memory, where syncing costs nothing and a measurement means nothing
    return Path(tempfile.mkdtemp(prefix="duly-", dir="/var/tmp" if on_disk else None))


def in_memory(owner: Path, gigabytes: int) -> Path:
    """A folder in memory that belongs to `owner`, the root of a clone.

    Raises ServerError, with the reason, when this machine has no tmpfs with that much room.
    """
    needed = gigabytes * 2**30
    mounts = dict(line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines())
    if mounts.get(str(MEMORY)) != "tmpfs":
        raise ServerError(f"{MEMORY} is not a tmpfs")
    if shutil.disk_usage(MEMORY).free < needed:
        raise ServerError(f"{MEMORY} has less than {gigabytes} GiB left")
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    if available is None or int(available[1]) * 1024 < needed:
        raise ServerError(f"less than {gigabytes} GiB of memory is available")
    folder = MEMORY / f"duly-{os.geteuid()}-{hashlib.sha256(os.fsencode(owner)).hexdigest()[:8]}"
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise ServerError(f"{folder} cannot be made: {error}") from error
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ServerError(f"{folder} is not ours")
    note = (folder / OWNER).open("a+", encoding="utf8")
    fcntl.flock(note, fcntl.LOCK_SH)  # held until this process ends
    _held.append(note)
    note.truncate(0)
    note.write(str(owner))
    note.flush()
    _sweep_orphans()
    return folder


def _sweep_orphans() -> None:
    """Free the memory of clones that were removed. Their own next run, which would sweep it, never comes.

    A clone in a container that shares this memory is not seen from here either, but its runs hold their lock.
    """
    for path in MEMORY.glob(f"duly-{os.geteuid()}-*/{OWNER}"):
        with suppress(OSError), path.open(encoding="utf8") as note:
            if not Path(note.read()).exists():
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)


def free_ports(count: int = 1) -> list[int]:
    """Free ports of the loopback interface.

    They lie below the range from which the kernel serves outgoing connections. A port in that range may be lost while
    its server is down: to anyone's connection, even to a client's own attempt to reconnect.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ours = random.sample(range(10_000, lowest), 1000) if lowest > 20_000 else []
    ports: list[int] = []
    with ExitStack() as held:
        for candidate in [*ours, *[0] * count]:  # the kernel's own choice is better than none
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            ports.append(int(probe.getsockname()[1]))
            if len(ports) == count:
                break
    return ports


@contextmanager
def sigterm_leaves() -> Iterator[None]:
    """Make SIGTERM an exception for the length of the block, unless there is a handler for it already."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sweep(parent: Path, stop: Callable[[Path], None]) -> None:
    """Stop the servers in `parent` whose folder is named after a process that no longer lives: `123` or `123-name`."""
    with alone("sweep"):
        for folder in parent.glob("*"):
            maker = folder.name.partition("-")[0]
            if maker.isdigit() and not Path("/proc", maker).exists():
                stop(folder)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
