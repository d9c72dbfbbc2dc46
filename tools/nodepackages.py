"""Packages of Node for tests: what a lock file says, in a folder of .scratch that is named after its contents.

Node and npm come from the machine; where they are missing, from Debian.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from debian import ROOT, MissingError, alone, install

FOLDERS = ROOT / ".scratch" / "node"
PINS = ("package.json", "package-lock.json")
OLDEST_NODE = 18


def ensure_packages(pins: Path) -> Path:
    """The folder with the `node_modules` that the lock file in `pins` asks for; filled when it is first wanted."""
    _ensure_programs()
    made_of = b"\0".join((pins / name).read_bytes() for name in PINS)
    folder = FOLDERS / hashlib.sha256(made_of).hexdigest()[:16]
    with alone("node"):
        if not folder.exists():
            half = folder.with_suffix(".half")  # what a killed run left
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            for name in PINS:
                shutil.copy(pins / name, half)
            _fill(half)
            half.rename(folder)
    return folder


def _ensure_programs() -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        install("nodejs", "npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        raise MissingError(f"node on PATH is {version}; the tests need {OLDEST_NODE} or newer")


def _fill(folder: Path) -> None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise MissingError(f"this failed with exit code {done.returncode}: {' '.join(command)}\n{done.stdout}")
