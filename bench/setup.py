"""Installs every peer into a place of its own under a scratch folder, once per set of pins."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bench.contenders import PEERS, REPOSITORY

SCRATCH = REPOSITORY / ".scratch" / "bench"

PYTHON_PEERS = {
    "bare": "bare.py",
    "pgqueuer": "pgqueuer_peer.py",
    "oban": "oban_peer.py",
    "procrastinate": "procrastinate_peer.py",
    "huey": "huey_peer.py",
}
NODE_PEERS = {"pg-boss": "pgboss_peer.mjs", "graphile": "graphile_peer.mjs"}


def ensure_peers(scratch: Path = SCRATCH, wanted: set[str] | None = None) -> dict[str, list[str]]:
    """Install what is missing and return, for each peer, the command prefix that runs its program."""
    scratch.mkdir(parents=True, exist_ok=True)
    commands = {}
    for name, program in PYTHON_PEERS.items():
        if wanted is None or name in wanted:
            python = ensure_venv(name, scratch / name)
            commands[name] = [str(python), str(PEERS / program)]
    node_peers = {name: program for name, program in NODE_PEERS.items() if wanted is None or name in wanted}
    if node_peers:
        home = scratch / "node"
        node = ensure_node_modules(home)
        for name, program in node_peers.items():
            commands[name] = [str(node), str(home / program)]
    return commands


def ensure_venv(name: str, home: Path) -> Path:
    pins = PEERS / "requirements" / f"{name}.txt"
    python = home / "bin" / "python"
    if is_installed(home, pins):
        return python
    say(f"installing {name} into {home}")
    shutil.rmtree(home, ignore_errors=True)
    # oban asks for Python 3.12; see `let_oban_run_on_python_311`.
    too_old = name == "oban" and sys.version_info < (3, 12)
    uv = shutil.which("uv") or shutil.which(REPOSITORY / ".venv/bin/uv")
    if uv:
        call([uv, "venv", "--quiet", "--seed", "--python", sys.executable, home])
    else:
        call([sys.executable, "-m", "venv", home])
    if uv and not too_old:
        call([uv, "pip", "install", "--quiet", "--python", python, "-r", pins])
    else:
        lenient = ["--ignore-requires-python"] if too_old else []
        call([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *lenient, "-r", pins])
    if too_old:
        let_oban_run_on_python_311(home)
    mark_installed(home, pins)
    return python


def let_oban_run_on_python_311(home: Path) -> None:
    """Rewrite the one line of oban that needs 3.12, a type alias that nothing evaluates.

    All Python peers then run on one interpreter, and Debian 12 has no newer one.
    """
    (module,) = home.glob("lib/python*/site-packages/oban/job.py")
    source = module.read_text()
    module.write_text(re.sub(r"^type Result\[T\] = .*$", "Result = dict", source, flags=re.MULTILINE))


def ensure_node_modules(home: Path) -> Path:
    pins = PEERS / "package.json"
    # The peers need Node 22, which the npm package `node` brings along whatever the system has.
    node = home / "node_modules" / ".bin" / "node"
    if not is_installed(home, pins):
        ensure_npm()
        say(f"installing the Node peers into {home}")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(pins, home)
        call(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=home)
        call([node, "--version"], stdout=subprocess.DEVNULL)
        mark_installed(home, pins)
    # Node looks for packages beside the program, so the programs go beside the packages.
    for program in PEERS.glob("*.mjs"):
        shutil.copy(program, home)
    return node


def ensure_npm() -> None:
    if shutil.which("npm"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise RuntimeError(
            "pg-boss and graphile-worker need npm: install the packages `nodejs` and `npm`, "
            "or leave these peers out with --peers"
        )
    say("installing nodejs and npm")
    call(["apt-get", "update", "-qq"])
    call(["apt-get", "install", "-y", "-qq", "nodejs", "npm"], stdout=subprocess.DEVNULL)


def is_installed(home: Path, pins: Path) -> bool:
    stamp = home / "installed"
    return stamp.exists() and stamp.read_text() == fingerprint(pins)


def mark_installed(home: Path, pins: Path) -> None:
    (home / "installed").write_text(fingerprint(pins))


def fingerprint(pins: Path) -> str:
    return hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()


def call(command: list[str | Path], **options: object) -> None:
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    for peer, prefix in ensure_peers().items():
        print(f"{peer}: {' '.join(prefix)}")
