"""One source, as this process knows it: its failures since the last answer, and the outage that they show.

`Streak` collects failures until they show that the source is down. `Outage` knows why it is down, which items were
excused, and how long each has to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from duly.core.decide import excuse
from duly.core.model import Change, Failed, Item, Outcome
from duly.core.policy import outage as policy
from duly.core.policy.evidence import FADED, Evidence, Failure
from duly.core.policy.outage import Source

# How many items that were excused are remembered, for each source that is down.
EXCUSED = 2_000


class BlamedItem(NamedTuple):
    """An item whose failures may be the source's, and what its last failure makes of it."""

    item: Item  # as it was in its first try that failed for this cause since the last answer
    change: Change
    cause: str
    first: Item  # as it was in its first failed try since the last answer
    at: datetime


class Streak:
    """The failures of one source since its last answer."""

    def __init__(self, source: Source, doubt: int = 1) -> None:
        self.source = source
        self.evidence = Evidence(source, doubt)
        self._blamed: dict[int, BlamedItem] = {}

    def add(
        self, failed: Sequence[tuple[Item, Failed, Change]], now: datetime, *, is_young: bool = False
    ) -> str | None:
        """Take note of the failures of one call; returns the cause for which nearly everything fails, if there is.

        If this process is so young that it has not seen the source answer, it cannot know whether it was well when an
        item failed before.
        """
        call = []
        for item, verdict, change in failed:
            subject = item.id if item.schedule_id is None else -item.schedule_id
            cause = policy.cause_of(verdict)
            is_new = is_young or not item.failures_in_a_row or subject in self.evidence
            call.append(Failure(subject, cause, is_new=is_new, is_last=change.state == "failed"))
            before, bare = self._blamed.pop(item.id, None), without_args(item)
            since = bare if before is None or before.cause != cause else before.item
            self._blamed[item.id] = BlamedItem(since, change, cause, bare if before is None else before.first, now)
        self.evidence.add(now, call)
        self._forget(now)
        return self.evidence.cause()

    def _forget(self, now: datetime) -> None:
        while self._blamed:
            oldest, each = next(iter(self._blamed.items()))
            if len(self._blamed) <= self.evidence.most and each.at > now - FADED:
                break
            del self._blamed[oldest]

    def blamed_for(self, outage: str) -> list[BlamedItem]:
        """The items whose failures this outage explains, unless they were excused too often."""
        found = [
            each
            for each in self._blamed.values()
            if policy.explains(outage, each.cause) and each.change.excuses < policy.MERCY
        ]
        return [each._replace(item=each.first) for each in found] if outage == policy.MIXED else found


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
    excuses: int = 0  # how many more of its failures are not counted by this
    cause: str = ""  # why


class Outage:
    """What this process knows of a source that is down."""

    def __init__(self, cause: str, *, is_ours: bool) -> None:
        self.cause = cause
        self.is_ours = is_ours  # it was found out here
        self.logged_at: datetime | None = None  # when it was last logged that a probe failed
        # Items whose failures were taken back, as they were before: some may have been running again by then.
        self.innocent: dict[int, Item] = {}
        self._excused: dict[int, ExcusedItem] = {}

    def judge(self, source: Source, item: Item, verdict: Outcome, change: Change, now: datetime) -> Change:
        """The change that gives a failed item back; or the one that blames it, if it was excused too often."""
        if not isinstance(verdict, Failed):
            return change
        times = self._excused.get(item.id, ExcusedItem()).times
        before = self.innocent.pop(item.id, item)
        cause = policy.cause_of(verdict)
        is_bounded = policy.is_bounded(self.cause, cause)
        is_excused = policy.meaning(source, verdict) == "failure" and policy.explains(self.cause, cause)
        if not is_excused or (is_bounded and item.excuses >= policy.MERCY):
            if times:  # nothing from before is taken back any more
                self._note(ExcusedItem(times), item.id)
            return change
        seconds = policy.pause(source, times, len(self._excused.keys() | {item.id}), cause)
        given = excuse(
            before, change, now + timedelta(seconds=seconds),
            is_written=False, excuses=int(is_bounded), cause=reason(source, change),
        )  # fmt: skip
        self._note(ExcusedItem(times + 1, without_args(before), given), item.id)
        return given

    def take_back(self, source: Source, blamed: Sequence[BlamedItem]) -> list[Correction]:
        """The corrections that take these failures back."""
        corrections = []
        for each in blamed:
            self.innocent[each.item.id] = each.item
            self._note(ExcusedItem(1), each.item.id)
            seconds = policy.pause(source, 0, len(blamed), each.cause)
            corrections.append(Correction(each.item, each.change, seconds, 1, reason(source, each.change)))
        return corrections

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


def reason(source: Source, change: Change) -> str:
    """Why an item waits whose failure is not counted."""
    return f"{source.name} is down: {line_of(change.error or '')}"


def line_of(error: str) -> str:
    """The first line of an error, as messages show it."""
    return error.partition("\n")[0][:200]


def without_args(item: Item) -> Item:
    """The item without its arguments: many are remembered, and arguments may be large."""
    return replace(item, args=b"")
