"""One source that is down, as this process knows it: why, which items were excused, and how long each has to wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from duly.core.decide import excuse
from duly.core.model import Change, Item
from duly.core.policy.outage import AWAY, MERCY, Source, pause
from duly.engine.streaks import BlamedItem, without_args

# How many items that were excused are remembered, for each source that is down.
EXCUSED = 2_000


class ExcusedItem(NamedTuple):
    """How often an item was excused in this outage; and if it waits since, as what it was, and what it became."""

    times: int = 0
    item: Item | None = None
    change: Change | None = None


class Correction(NamedTuple):
    """A change that is to be made to an item: it waits for this many seconds from when that is written."""

    item: Item
    change: Change  # what is, or is about to be, written of it
    seconds: float


class Outage:
    """What this process knows of a source that is down."""

    def __init__(self, cause: str, *, is_ours: bool) -> None:
        self.cause = cause
        self.is_ours = is_ours  # it was found out here
        self.logged_at: datetime | None = None  # when it was last logged that a probe failed
        # Items whose failures were taken back, as they were before: some may have been running again by then.
        self.innocent: dict[int, Item] = {}
        self._excused: dict[int, ExcusedItem] = {}

    def give_back(self, source: Source, item: Item, change: Change, now: datetime) -> Change:
        """The change that gives this item back; or the one that blames it, if it was excused too often."""
        times = self._excused.get(item.id, ExcusedItem()).times
        if self.cause != AWAY and times >= MERCY:
            return self.keep(item, change)
        item = self.innocent.pop(item.id, item)
        seconds = pause(source, times, len(self._excused.keys() | {item.id}))
        given = excuse(item, change, now + timedelta(seconds=seconds), is_written=False)
        self._note(ExcusedItem(times + 1, without_args(item), given), item.id)
        return given

    def keep(self, item: Item, change: Change) -> Change:
        """The item is blamed for this failure, so nothing from before is taken back any more."""
        self.innocent.pop(item.id, None)
        if item.id in self._excused:
            self._note(ExcusedItem(self._excused[item.id].times), item.id)
        return change

    def take_back(self, blamed: Sequence[BlamedItem]) -> None:
        for each in blamed:
            self.innocent[each.item.id] = each.item
            self._note(ExcusedItem(1), each.item.id)

    def _note(self, excused: ExcusedItem, item_id: int) -> None:
        self._excused.pop(item_id, None)
        self._excused[item_id] = excused
        if len(self._excused) > EXCUSED:
            del self._excused[next(iter(self._excused))]

    def waiting(self) -> list[Correction]:
        """Those that wait for a probe; now they need not wait any longer."""
        return [
            Correction(each.item, each.change, 0.0)
            for each in self._excused.values()
            if each.item is not None and each.change is not None
        ]
