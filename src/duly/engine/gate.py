"""The gate that calls of tasks with a `pace` pass: it lets as many begin, and as far apart, as their provider allows.

Each worker finds that out for itself, from how its own calls end. Several workers share a provider as TCP streams share
a line: a worker that meets trouble slows down, and all of them speed up again step by step.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from duly.core.model import Crashed, Failed, Lost, Released, Throttled
from duly.core.policy.adapt import Load, Slice, SliceBounds, Trouble
from duly.core.policy.pace import Call, Pace
from duly.core.policy.pacing import Pacing
from duly.engine.calls import Verdicts

LOOK_EVERY = 1.0  # seconds between two looks at how busy the machine is
# Verdicts that say nothing about the provider: it was not called, or what called it was stopped or died.
SILENT = (Released, Crashed, Lost)
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")  # of a container, whose memory ends before the machine's does


def measure(memory: Path = MEMORY, group: Path = GROUP) -> Load:
    """How busy this machine is: what is in use, each from 0 to 1; 0 where the system does not report it."""
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


class PaceSample(NamedTuple):
    """How a pace went since the last call: how wide it is, how much it claims, and how long calls took."""

    width: int
    batch: int
    calls: int
    seconds: float
    longest: float


@dataclass(eq=False)
class PaceGate:
    pace: Pace
    slices: SliceBounds
    ticks: Callable[[], float] = time.monotonic
    load: Callable[[], Load] = measure

    def __post_init__(self) -> None:
        self._busy, self._looked = Load(), -LOOK_EVERY
        self._pacing = Pacing.first(self.ticks(), self.pace)
        self._slice = Slice()
        self._calls, self._seconds, self._longest = 0, 0.0, 0.0  # since `lately`
        self._lock = threading.Lock()

    def width(self) -> int:
        """How many calls may run at the same time."""
        return self._pacing.concurrency(self.ticks(), self.pace)

    def claim(self) -> int:
        """How many items to hold at most: what one slice of time has use for, and less while the machine is busy."""
        now = self.ticks()
        if now - self._looked >= LOOK_EVERY:
            self._busy, self._looked = self.load(), now
        return self._batch(now)

    def _batch(self, now: float) -> int:
        if self._pacing.shut is not None:  # what is claimed for probes waits long
            return self.width()
        return max(self._slice.claim(self.slices, self._busy, self._pacing.level(now, self.pace)), self.width())

    def turn(self) -> float:
        """0 when a call may begin now, which then counts as begun; else the seconds to wait before the next try."""
        with self._lock:
            wait, self._pacing = self._pacing.turn(self.ticks(), self.pace)
            return wait

    def ended(self, started: float, in_flight: int, verdicts: Verdicts) -> None:
        """A call has ended with these verdicts. It began at `started`, when `in_flight` calls were under way."""
        if all(isinstance(verdict, SILENT) for verdict in verdicts):
            return
        now = self.ticks()
        trouble, retry_after = self._trouble(verdicts)
        call = Call(started=started, ended=now, in_flight=in_flight, trouble=trouble, retry_after=retry_after)
        has_failed = any(isinstance(verdict, Failed) for verdict in verdicts)
        with self._lock:
            self._pacing = self._pacing.after(call, self.pace)
            self._slice = self._slice.after((now - started) / len(verdicts), has_failed)
            self._calls += 1
            self._seconds += now - started
            self._longest = max(self._longest, now - started)

    def lately(self) -> PaceSample | None:
        """How it went since the last call of this; None when no call of a handler has ended."""
        with self._lock:
            calls, seconds, longest = self._calls, self._seconds, self._longest
            self._calls, self._seconds, self._longest = 0, 0.0, 0.0
        return PaceSample(self.width(), self._batch(self.ticks()), calls, seconds, longest) if calls else None

    def throttled(self) -> float:
        """The share of recent calls that met trouble, from 0 to 1."""
        return self._pacing.throttled.get(0.0)

    def _trouble(self, verdicts: Verdicts) -> tuple[Trouble | None, float]:
        for verdict in verdicts:
            match verdict:
                case Throttled():
                    return "throttled", 0.0 if verdict.is_guess else verdict.retry_after
                case Failed(classes=classes) if trouble := self.pace.trouble(classes):
                    return trouble, 0.0
        return None, 0.0
