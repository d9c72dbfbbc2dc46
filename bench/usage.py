"""What a tree of processes has used, read from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(roots: list[int]) -> float:
    """User and system time of the trees under `roots`, their ended and awaited children included."""
    ticks = 0
    for root in roots:
        for pid in tree(root):
            fields = stat(pid)
            # utime, stime, cutime, cstime: fields 14 to 17 of proc(5).
            ticks += sum(map(int, fields[11:15])) if fields else 0
    return ticks / TICK


def resident_bytes(roots: list[int]) -> int:
    total = 0
    for root in roots:
        for pid in tree(root):
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            except (FileNotFoundError, ProcessLookupError):
                continue
    return total


def tree(root: int) -> list[int]:
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children[pid])
    return found


def stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat from the third on; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The second field is a name in parentheses that may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()
