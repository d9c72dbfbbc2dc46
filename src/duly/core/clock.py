"""Where `now` comes from. Everything below the engine takes it as an argument.

Production time is the database's: its offset to this host's monotonic clock is measured, so a host whose wall clock is
wrong, or is set while we run, neither starts items early nor takes over other workers' items. Tests and simulations
move a `ManualClock` by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from duly.core.forks import renew_in_children

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A step of more seconds than this means that the clock was set; less is drift.
JUMP = 1.0


def begin_of(time: datetime, step: int) -> datetime:
    """The start of the step of `step` seconds that contains this time; steps are counted from 1970."""
    return time - (time - EPOCH) % timedelta(seconds=step)


def ticks() -> float:
    """Seconds on the clock of this host that nobody sets."""
    # If the system has one, use the clock that continues while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock(Protocol):
    def now(self) -> datetime: ...

    def stamp(self) -> datetime | None:
        """The time to write on a new row; None lets the database stamp its own."""
        ...

    def measure(self) -> float:
        """Compare with the source of time and follow it; returns by how many seconds it was off."""
        ...


class DatabaseClock:
    """The database's time, worked out from a measured offset; call `measure` now and then to follow its drift."""

    def __init__(self, read: Callable[[], datetime]) -> None:
        self._read = read
        self._offset: float | None = None
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def now(self) -> datetime:
        offset = self._offset
        if offset is None:
            with self._lock:
                offset = self._measure() if self._offset is None else self._offset
        return EPOCH + timedelta(seconds=offset + ticks())

    def stamp(self) -> datetime | None:
        return None

    def measure(self) -> float:
        """Measure again; returns how many seconds the database's clock moved against ours."""
        with self._lock:
            before = self._offset
            after = self._measure()
            return 0.0 if before is None else after - before

    def _measure(self) -> float:
        # The database read its clock at some moment of the round trip, so the shortest of three is the most exact.
        best = min((self._probe() for _ in range(3)), key=lambda probe: probe[0])
        self._offset = best[1]
        return best[1]

    def _probe(self) -> tuple[float, float]:
        sent = ticks()
        theirs = self._read()
        got = ticks()
        return got - sent, (theirs - EPOCH).total_seconds() - (sent + got) / 2


class ManualClock:
    """A clock that moves only by hand: for tests and simulations."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def stamp(self) -> datetime | None:
        return self._now

    def measure(self) -> float:
        return 0.0

    def move(self, by: float | timedelta) -> datetime:
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self._now

    def set(self, to: datetime) -> datetime:
        self._now = to.astimezone(UTC)
        return self._now
