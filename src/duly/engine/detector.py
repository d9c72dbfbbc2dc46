"""Tells which leases are dead: those that nobody prolonged although everybody could have.

Clocks are not trusted: a database's may be set, and who writes leases may not have noticed yet. What counts is whether
a lease changes while somebody watches. A lease is dead when its time is over, counted on this process's monotonic clock
from when it was first seen, and it has been seen unchanged for a whole lease's time without interruption. The
observation is interrupted by whatever may have kept live workers from their heartbeats: the database was away, writers
waited, this process stood still. It then begins anew, and leaves time to reconnect where leases are shorter than that.

The time is this worker's own `lease_seconds`; workers with others are judged well as long as their heartbeats come more
often than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

# In leases: how often to look at least, and the gap between two looks after which the observation begins anew.
LOOK_WITHIN = 0.4
LONGEST_GAP = 0.6
# After an outage every live worker is back within this time (seconds).
RECONNECT = 5.0
# A lease seems to have more than so many leases' time left only where a clock was set back: nobody waits for that.
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
        """A look failed: others may have failed to write as well."""
        self._looked = -float("inf")

    def look(self, leases: Iterable[tuple[int, datetime]], now: datetime, asked: float, answered: float) -> list[int]:
        """The dead among all leases (fence, until) that there are.

        `now` is the database's clock; `asked` and `answered` say on the monotonic one when they were read.
        """
        gap = answered - self._looked if self._looked is not None else 0.0
        if gap > LONGEST_GAP * self._lease:
            self._steady_since = answered + max(min(gap, RECONNECT) - self._lease, 0.0)
        self._looked = answered
        self._seen = {fence: self._follow(fence, until, now, answered) for fence, until in leases}
        return [fence for fence, seen in self._seen.items() if self._dead_from(seen) <= asked]

    def next_after(self, at: float) -> float:
        """When the next lease will be dead if it stays as it is."""
        return min((end for seen in self._seen.values() if (end := self._dead_from(seen)) > at), default=float("inf"))

    def _follow(self, fence: int, until: datetime, now: datetime, at: float) -> _Seen:
        seen = self._seen.get(fence)
        if seen is not None and seen.until == until:
            return seen
        left = min((until - now).total_seconds(), MOST_LEFT * self._lease)
        return _Seen(until, at, at + left)

    def _dead_from(self, seen: _Seen) -> float:
        return max(seen.ends, max(seen.since, self._steady_since) + self._lease)
