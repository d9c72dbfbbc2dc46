"""Read a file in a process of its own and tell what came of it and how much memory that took at most.

python -m tests.bulk.read.child FILE      prints {"kind", "rows", "faults", "first_fault", "error", "peak_mb"}
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from duly.bulk.read import open_rows
from duly.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
MOST_MB = 256


def read_apart(path: Path) -> dict[str, Any]:
    """What reading this file in a child process gives; fails when it dies, or takes too much memory."""
    command = [sys.executable, "-m", "tests.bulk.read.child", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["peak_mb"] < MOST_MB, told
    return told


def main() -> None:
    path = Path(sys.argv[1])
    told: dict[str, Any] = {"rows": 0, "faults": 0, "first_fault": None, "error": None}
    with path.open("rb") as file:
        try:
            with open_rows(file, path.name) as reading:
                told["kind"] = reading.shape.kind
                for row in reading:
                    told["rows"] += 1
                    if row.fault:
                        told["faults"] += 1
                        told["first_fault"] = told["first_fault"] or row.fault
        except InputError as error:
            told["error"] = str(error)
    told["peak_mb"] = _peak_mb()
    print(json.dumps(told))


def _peak_mb() -> int:
    """Of this process alone: getrusage would count what its parent had when it was forked."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main()
