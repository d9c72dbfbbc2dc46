"""Finds out why items wait: gathers what their limits and windows are, and how far the limits are used.

One query is about all that is overdue, since there may be a queue for each of ten thousand customers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.json import encode

from duly.core.model import Lane, Meter
from duly.core.policy.lateness import BUSY, Holds, Use, explained, has_missed_windows, is_used_up
from duly.store.contract import Store


class OverdueItems(Struct, frozen=True):
    """How many items of a queue and lane are due for long, and since when the oldest is."""

    queue: str
    lane: Lane
    items: int
    oldest: datetime


class Reasons:
    def __init__(self, store: Store, holds: Callable[[str], Holds], least: float) -> None:
        self._store = store
        self._holds_of = holds
        self._least = least  # seconds that a limit explains at least while it is used up
        self._holds: dict[str, Holds] = {}
        self._uses: dict[Meter, Use] = {}
        self._waiting: Counter[Meter] = Counter()  # items that wait under each meter
        self._full_at: dict[Meter, datetime] = {}  # when it was last seen that a meter is used up

    def begin(self, now: datetime) -> None:
        """Forget what was found in the last tick, except which meters were used up a moment ago."""
        self._holds, self._uses, self._waiting = {}, {}, Counter()
        self._full_at = {meter: at for meter, at in self._full_at.items() if now - at <= BUSY}

    def look(self, overdue: Sequence[OverdueItems], now: datetime) -> None:
        """Take note of what holds these back, with one query for all meters that are not known yet."""
        for queue in {each.queue for each in overdue} - self._holds.keys():
            self._holds[queue] = self._holds_of(queue)
        limited = [each for each in overdue if each.lane == "main"]
        for each in limited:
            self._waiting.update(dict.fromkeys(self._holds[each.queue].meters, each.items))
        held = dict.fromkeys(meter for each in limited for meter in self._holds[each.queue].meters)
        if not (new := [meter for meter in held if meter not in self._uses]):
            return
        asked = [
            {"place": place, "name": meter.name, "most": meter.most, "per": meter.per}
            for place, meter in enumerate(new)
        ]
        for place, *use in self._store.read("meter_use", {"meters": encode(asked).decode()}):
            self._uses[new[place]] = Use(*use)
            if is_used_up(Use(*use), now):
                self._full_at[new[place]] = now

    def explain(self, each: OverdueItems, now: datetime) -> bool:
        """Whether a limit that is used up, or a window without room, explains that these wait."""
        holds = self._holds[each.queue]
        if each.lane == "retry":
            return holds.windows is not None and not has_missed_windows(holds.windows, each.oldest, each.items, now)
        return (now - each.oldest).total_seconds() <= explained(self._used_up(holds), self._least)

    def is_held(self, queue: str) -> bool:
        """Whether a limit that is used up holds this queue back."""
        return bool(self._used_up(self._holds[queue]))

    def _used_up(self, holds: Holds) -> list[tuple[Use, int]]:
        return [(self._uses[meter], self._waiting[meter]) for meter in holds.meters if meter in self._full_at]
