"""Deletes old rows: finished items, lines of the audit log, and meters that no longer limit anything.

It walks the items by id, a portion at a time, and starts over when it reaches those that are too young. So it needs no
index of its own, and never looks at a history of millions in one go. It deletes lines of the audit log from the oldest
on, and meters by name. While there is more to delete, the next portion follows after a short pause.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.json import encode

from duly.core.clock import EPOCH
from duly.core.policy.recur import latest, parse, zone_named
from duly.core.policy.retry import LOOK_BACK
from duly.store.contract import Store

PORTION = 2_000
EVERY = timedelta(seconds=60)
STEP = timedelta(seconds=1)
BREATH = timedelta(milliseconds=100)
METERS_EVERY = timedelta(hours=1)
# A meter is unused when nothing was granted under it for this long, which is more than any limit looks back.
UNUSED = timedelta(days=32)
# The time of a window differs between time zones by less than this.
ZONES = timedelta(days=2)


class Pruner:
    def __init__(self, store: Store, keep: float, audit_keep: float = 0.0) -> None:
        self._store = store
        self._keep = timedelta(seconds=keep)
        self._audit_keep = timedelta(seconds=audit_keep)
        self._after = 0
        self._audit_at = EPOCH
        self._meters_at = EPOCH
        self._after_meter = ""

    def tick(self, now: datetime) -> datetime:
        if now >= self._audit_at:
            self._audit_at = self._forget_notes(now)
        if now >= self._meters_at:
            self._meters_at = self._forget_meters(now)
        return min(self._forget_items(now), self._audit_at, self._meters_at)

    def _forget_items(self, now: datetime) -> datetime:
        if not self._keep:
            return now + timedelta(days=1)
        gone, go_on = self._store.prune(now - self._keep, self._after, PORTION)
        self._after = go_on or 0
        if gone:
            return now + BREATH
        return now + (EVERY if go_on is None else STEP)

    def _forget_notes(self, now: datetime) -> datetime:
        if not self._audit_keep:
            return now + timedelta(days=1)
        before = now - self._audit_keep
        oldest = self._store.read("oldest_note", {"most": PORTION})[0][0]
        if oldest is None or oldest >= before:
            return now + EVERY
        self._store.write("forget_notes", {"before": before, "most": PORTION})
        return now + BREATH

    def _forget_meters(self, now: datetime) -> datetime:
        before = now - ZONES
        given = {"after": self._after_meter, "before": before, "most": PORTION}
        looked = self._store.read("idle_meters", given)
        spent = [name for name, at in looked if at is None or at < _counts_since(name, now)]
        if spent:
            self._store.write("forget_meters", {"names": encode(sorted(spent)).decode(), "before": before})
        self._after_meter = looked[-1][0] if len(looked) == PORTION else ""
        return now + (BREATH if self._after_meter else METERS_EVERY)


def _counts_since(name: str, now: datetime) -> datetime:
    """Since when grants under this meter may still count."""
    if not name.startswith("window:"):
        return now - UNUSED
    # The name ends with the rule; before it is the name of a queue, which may have spaces too.
    words = name.split(" ")
    ends = (_opened(" ".join(words[place:]), now - ZONES) for place in range(1, len(words)))
    return next((opened for opened in ends if opened is not None), now - LOOK_BACK) - ZONES


@lru_cache(100)
def _opened(rule: str, until: datetime) -> datetime | None:
    """When the last window of this rule before then opened; None when the text is not a rule."""
    try:
        return latest(parse(rule), until - LOOK_BACK, until, zone_named("UTC")) or until - LOOK_BACK
    except ValueError:
        return None
