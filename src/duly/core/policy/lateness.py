"""What is late: what waits longer than its plan explains.

A plan may hold items back. A limit lets a slot of many be worked off over minutes; a window takes so many retries and
leaves the others for the next; and after a time in which no worker ran, nothing but that explains what waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from duly.core.model import Lane
from duly.core.policy.retry import Windows


class Holds(Struct, frozen=True):
    """What may hold the items of a task back by its own plan."""

    meters: tuple[str, ...] = ()  # the names of its limits
    per: float = 0.0  # seconds: the longest window among them
    windows: Windows | None = None  # what its retries wait for


def lateness(lane: Lane, due_at: datetime, now: datetime, holds: Holds, most: float) -> float:
    """Seconds that an item which waits, or starts now, is late. A limit explains so many seconds at most.

    A retry that a window had no room for is not late before the next one has opened, which is when its time begins.
    """
    if lane == "retry" and holds.windows is not None:
        due_at = max(due_at, holds.windows.around(now)[0])
    waited = max((now - due_at).total_seconds(), 0.0)
    return 0.0 if lane == "main" and holds.meters and waited <= most else waited


def is_held(
    holds: Holds, oldest: datetime, now: datetime, granted_at: datetime | None, back_at: datetime | None
) -> bool:
    """Whether a limit explains why items of the main lane wait since then.

    It does if it lets calls through all the time, the last one at `granted_at`; but not for what fell due before
    workers were back from a time in which none ran.
    """
    if not holds.meters or granted_at is None or (back_at is not None and oldest < back_at):
        return False
    return now - granted_at <= BUSY + timedelta(seconds=holds.per)


# A limit by which nothing was granted for its window and so much longer has no part in what waits.
BUSY = timedelta(seconds=60)
