"""Finds dead leases: those that were not prolonged although their workers could have done so.

Clocks are not trusted: the database's may be set, and workers that write leases may not have noticed yet. What counts
is whether a lease changes while it is observed. A lease is dead when its time is over, counted on this process's
monotonic clock from when it was first seen, and it has been seen unchanged for a whole lease's time without
interruption. An interruption is whatever may have kept live workers from their heartbeats: the database was away,
writers had to wait, this process stood still. Then the observation begins anew, with time for workers to reconnect.

A lease's time is this worker's own `lease_seconds`. Workers with another value are judged rightly as long as they send
heartbeats more often than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

# In parts of a lease: how often to look at least, and after which gap between two looks the observation begins anew.
LOOK_WITHIN = 0.4
LONGEST_GAP = 0.6
# After an outage every live worker is back within this time (seconds).
RECONNECT = 5.0
# If a lease seems to last for more than this many leases' time, a clock was set back, and its end does not count.
MOST_LEFT = 10


class _Seen(NamedTuple):
    until: datetime
    since: float
    ends: float


class Detector:
    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: dict[int, _Seen] = {}
        self._looked: float | None = None
        self._steady_since = -float("inf")

    def interrupt(self) -> None:
        """A look failed, so other workers may have failed to write their heartbeats as well."""
        self._looked = -float("inf")

    def look(self, leases: Iterable[tuple[int, datetime]], now: datetime, asked: float, answered: float) -> list[int]:
        """Given all leases that there are, each as fence and end, return the dead ones.

        `now` is the database's time. `asked` and `answered` are when the leases were read, on the monotonic clock.
        """
        gap = answered - self._looked if self._looked is not None else 0.0
        if gap > LONGEST_GAP * self._lease:
            self._steady_since = answered + max(min(gap, RECONNECT) - self._lease, 0.0)
        self._looked = answered
        self._seen = {fence: self._follow(fence, until, now, answered) for fence, until in leases}
        return [fence for fence, seen in self._seen.items() if self._dead_from(seen) <= asked]

    def next_after(self, at: float) -> float:
        """When the next lease will be dead, if it does not change."""
        return min((end for seen in self._seen.values() if (end := self._dead_from(seen)) > at), default=float("inf"))

    def _follow(self, fence: int, until: datetime, now: datetime, at: float) -> _Seen:
        seen = self._seen.get(fence)
        if seen is not None and seen.until == until:
            return seen
        left = min((until - now).total_seconds(), MOST_LEFT * self._lease)
        return _Seen(until, at, at + left)

    def _dead_from(self, seen: _Seen) -> float:
        return max(seen.ends, max(seen.since, self._steady_since) + self._lease)
