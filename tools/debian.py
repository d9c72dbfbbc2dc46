"""What the project needs from the machine itself.

Everything else comes from uv.lock; this room is for the few things that only the system's packages bring. As root they
are installed, otherwise the error carries the exact command for root. Nothing is installed that is already there, and
standard output stays clean: callers print results on it.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLICY = Path("/usr/sbin/policy-rc.d")  # what packages ask before they start a service
NO_SERVICES = """#!/bin/sh
# of duly's tools, while they install; remove this if you find it
exit 101
"""


class MissingError(Exception):
    """Something is not on this machine and this user may not install it; the text says what to run as root."""


def ensure_debian(package: str, probe: str, unwanted: tuple[str, ...] = ()) -> Path:
    """The newest path that matches the pattern `probe`; if there is none, after installing `package`."""
    found = glob.glob(probe)
    if not found:
        install(package, unwanted=unwanted)
        found = glob.glob(probe)
    if not found:
        raise MissingError(f"the package {package} is installed, but it brought nothing like {probe}")
    return Path(max(found))


def install(*packages: str, unwanted: tuple[str, ...] = ()) -> None:
    """Install Debian packages, or raise `MissingError` with the command that does.

    With `unwanted`, no service is started on the way, and the units named there do not start with the machine either.
    """
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise MissingError(f"{names} is missing and there is no apt-get here: install it with this system's own tools")
    if os.geteuid() != 0:
        raise MissingError(
            f"{names} is missing and only root may install it. Run this as root, then try again:\n\n"
            f"    apt-get update && apt-get install -y {names}\n"
        )
    print(f"installing {names} from Debian", file=sys.stderr, flush=True)
    with alone("apt"), _no_services() if unwanted else nullcontext():
        _apt("update", "-qq")
        _apt("install", "-y", "-qq", "--no-install-recommends", *packages)
    for unit in unwanted:
        _disable(unit)


def is_installed(package: str) -> bool:
    query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True)
    return query.stdout == "installed"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold a lock of this checkout, so that two runs at once do not install the same thing twice."""
    scratch = ROOT / ".scratch"
    scratch.mkdir(exist_ok=True)
    with (scratch / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep packages from starting their services. A machine with a policy of its own has decided already."""
    if POLICY.exists() and POLICY.read_text() != NO_SERVICES:
        yield
        return
    POLICY.write_text(NO_SERVICES)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _disable(unit: str) -> None:
    for link in Path("/etc/systemd/system").glob(f"*.wants/{unit}"):
        link.unlink()
    script = Path("/etc/init.d", unit.removesuffix(".service"))
    if script.exists():
        _run("update-rc.d", script.name, "disable")


def _apt(*arguments: str) -> None:
    _run("apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments)


def _run(*command: str) -> None:
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    done = subprocess.run(
        command, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise MissingError(f"this failed with exit code {done.returncode}: {' '.join(command)}")
