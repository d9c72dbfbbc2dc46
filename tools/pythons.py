"""The Python interpreters on this machine that duly supports.

    python3 tools/pythons.py [PATH ...]    run the fast suites, or these paths, with each of them

Each has an environment of its own in .scratch/pythons, made from uv.lock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".scratch" / "pythons"
FAST = ("core", "conformance", "engine", "front", "client", "borrow", "outbound", "telemetry")
OLDEST = (3, 11)
# Where version managers and distributions put interpreters, beside the folders in PATH.
PLACES = (
    "/usr/bin",
    "/usr/local/bin",
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "~/.local/share/mise/installs/python/*/bin",
)
ASK = "import sys; print(*sys.version_info[:3], sys.implementation.name, sys.prefix == sys.base_prefix)"


def interpreters() -> dict[str, Path]:
    """The newest CPython of each minor version from 3.11 on, oldest version first, such as {"3.11": Path(...)}."""
    newest: dict[tuple[int, int], tuple[int, Path]] = {}
    for path in _candidates():
        version = _version(path)
        if version is not None and version[:2] >= OLDEST:
            major, minor, patch = version
            newest[major, minor] = max(newest.get((major, minor), (-1, path)), (patch, path))
    return {f"{major}.{minor}": path for (major, minor), (_, path) in sorted(newest.items())}


def _candidates() -> list[Path]:
    home = Path.home()
    # A shim of pyenv only starts what is in PLACES anyway, slowly.
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name and "/shims" not in name]
    for place in PLACES:
        if place.startswith("~/"):
            folders.extend(sorted(home.glob(place.removeprefix("~/"))))
        else:
            folders.append(Path(place))
    return [path for folder in dict.fromkeys(folders) for path in sorted(folder.glob("python3.[0-9][0-9]"))]


def _version(path: Path) -> tuple[int, int, int] | None:
    """Its version; None if it does not run (a shim of a version that is not active), or is no plain CPython."""
    try:
        answer = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, patch, implementation, is_base = answer.split()
    return (int(major), int(minor), int(patch)) if implementation == "cpython" and is_base == "True" else None


def main() -> None:
    paths = sys.argv[1:] or [f"tests/{name}" for name in FAST]
    failed = [name for name, python in interpreters().items() if not _passes(name, python, paths)]
    sys.exit(f"failed with Python {', '.join(failed)}" if failed else 0)


def _passes(name: str, python: Path, paths: list[str]) -> bool:
    print(f"== Python {name}: {python}", flush=True)
    venv = ENVIRONMENTS / name
    uv = shutil.which("uv") or str(ROOT / ".scratch" / "uv" / "bin" / "uv")
    there = {**os.environ, "UV_PYTHON": str(python), "UV_PROJECT_ENVIRONMENT": str(venv)}
    subprocess.run([uv, "sync", "--frozen", "--all-extras", "--quiet"], cwd=ROOT, env=there, check=True)
    asked = {**os.environ, "DULY_TEST_PYTHON": str(venv / "bin" / "python")}
    return subprocess.run([sys.executable, "tools/test", *paths, "-q"], cwd=ROOT, env=asked).returncode == 0


if __name__ == "__main__":
    main()
