"""How busy this machine is, for the controllers of sizes and paces."""

from __future__ import annotations

import os
import re
from pathlib import Path

from duly.core.policy.adapt.slices import Load

MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")  # of a container, whose memory ends before the machine's does


def measure(memory: Path = MEMORY, group: Path = GROUP) -> Load:
    """What is in use, each from 0 to 1; 0 where the system does not report it."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return Load(cpu=min(waiting, 1.0), memory=max(_machine(memory), _container(group)))


def _machine(memory: Path) -> float:
    try:
        sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+)", memory.read_text(), re.MULTILINE)}
        return 1.0 - sizes["MemAvailable"] / sizes["MemTotal"]
    except (OSError, KeyError, ZeroDivisionError):
        return 0.0


def _container(group: Path) -> float:
    try:
        limit = (group / "memory.max").read_text().strip()
        cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
        used = int((group / "memory.current").read_text()) - (int(cached[1]) if cached else 0)
        return min(used / int(limit), 1.0) if limit != "max" else 0.0
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0
