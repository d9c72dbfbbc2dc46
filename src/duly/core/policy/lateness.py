"""An item is late if it waits longer than its limits, windows and downtime explain.

Items may wait as planned. A limit spreads the items of a slot over minutes or days. A window takes a certain number of
retries and leaves the others for the next one. After a time without workers, items wait for that reason. Each of these
explains a certain delay and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import inf

from msgspec import Struct

from duly.core.model import Lane, Meter
from duly.core.policy.limits import slack
from duly.core.policy.recur import Rule, zone_named
from duly.core.policy.retry import Windows


class Holds(Struct, frozen=True):
    """What may hold the items of a task back by its own plan."""

    meters: tuple[Meter, ...] = ()  # those of its limits
    windows: Windows | None = None  # what its retries wait for
    until: datetime | None = None  # when its source was back from the last outage

    @property
    def window(self) -> float:
        """Seconds after which a call that used up one of its limits makes room again, at most."""
        return max((_window(meter.per) for meter in self.meters), default=0.0)


class Use(Struct, frozen=True):
    """How far a limit is used, by the numbers that hold now, which a person may have set."""

    most: int
    per: float | None
    nearly: int  # this many calls nearly use it up
    since: datetime | None  # when the first of its last `nearly` calls was granted; None: there were fewer
    at: datetime | None  # when the last call was granted
    under_way: int  # calls that hold it now, if it is about calls at the same time


def lateness(lane: Lane, due_at: datetime, now: datetime, holds: Holds, most: float) -> float:
    """Seconds that an item which starts now is late. A limit explains at most `most` seconds, or its own window.

    A retry that a window had no room for is not late before the next one has opened, which is when its time begins.
    What was due before its source was back had to wait, and is made up as fast as its limits allow.
    """
    if holds.until is not None and due_at < holds.until:
        return 0.0
    if lane == "retry" and holds.windows is not None:
        due_at = max(due_at, holds.windows.around(now)[0])
    waited = max((now - due_at).total_seconds(), 0.0)
    return 0.0 if lane == "main" and holds.meters and waited <= max(most, holds.window) else waited


def is_used_up(use: Use, now: datetime) -> bool:
    """Whether this limit is nearly used up, so that what waits under it waits for it.

    Under a limit on calls in a window of time, one that ended a window ago at most was full of calls.
    """
    if use.per is None or not use.most:
        return use.under_way >= use.nearly
    if use.since is None or use.at is None:
        return False
    per = timedelta(seconds=use.per)
    return use.at - use.since <= per + slack(use.per) and now - use.at <= per + BUSY


def explained(used_up: Iterable[tuple[Use, int]], least: float) -> float:
    """How many seconds items may wait for these limits, each used up and with its number of waiting items.

    That is a window of the limit, though not less than `least`, and what all these items need at its pace. Without
    limits it is nothing. A limit of 0 is a pause, and explains everything.
    """
    return max((_needed(use, items, least) for use, items in used_up), default=0.0)


def _needed(use: Use, items: int, least: float) -> float:
    return max(least, _window(use.per)) + items * (use.per or 0.0) / use.most if use.most else inf


def _window(per: float | None) -> float:
    """How long a call counts for a limit, in seconds, and the moment until another takes its place."""
    return 0.0 if per is None else per + (slack(per) + BUSY).total_seconds()


def has_missed_windows(windows: Windows, oldest: datetime, items: int, now: datetime) -> bool:
    """Whether this number of retries has missed more windows than it may: two, and those that they fill themselves."""
    assert isinstance(windows.rule, Rule)
    place, opened = zone_named(windows.zone), oldest
    for _ in range(MISSED + 1 + items // windows.cap):
        opened = windows.rule.next(opened, place) or NEVER
        if opened > now:
            return False
    return True


# A limit on calls in a window of time under which nothing was granted for its window and so much longer, holds nothing
# back. One on calls at the same time may have a free place for a moment: it counts as used up for so long.
BUSY = timedelta(seconds=60)
# So many windows a retry may miss.
MISSED = 2
NEVER = datetime.max.replace(tzinfo=UTC)
