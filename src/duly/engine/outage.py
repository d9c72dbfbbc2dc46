"""One source, as this process knows it: its failures since the last success, and the outage that they show.

`Streak` collects failures until they show that the source is down. `Outage` knows why it is down, which items were
excused, and how long each has to wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from duly.core.decide import excuse
from duly.core.model import Change, Failed, Item, Outcome
from duly.core.policy import outage as policy
from duly.core.policy.outage import Failure, Source

# How many failures since the last success are remembered, for each try that a source needs to be down.
REMEMBERED = 20
# How many items that were excused are remembered, for each source that is down.
EXCUSED = 2_000


class BlamedItem(NamedTuple):
    """An item whose failures may be the source's, and what its last failure makes of it."""

    item: Item  # as it was in its first try that failed for this cause since the last success
    change: Change
    cause: str
    first: Item  # as it was in its first failed try since the last success


class Streak:
    """The failures of one source since its last success."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._calls: deque[list[Failure]] = deque()
        self._number = 0  # of the last call
        self._size = 0  # how many failures are remembered
        self._largest = 0  # how many of them there were in one call
        self._new: Counter[int] = Counter()  # how many of each subject that is not known for failures of its own
        self._blamed: dict[int, BlamedItem] = {}

    def add(
        self, failed: Sequence[tuple[Item, Failed, Change]], doubt: int = 1, *, is_young: bool = False
    ) -> str | None:
        """Take note of the failures of one call; returns the cause for which nearly everything fails, if there is.

        If this process is so young that it has not seen the source answer, it cannot know whether it was well when an
        item failed before.
        """
        self._number += 1
        call = []
        for item, verdict, change in failed:
            subject = item.id if item.schedule_id is None else -item.schedule_id
            cause = policy.cause_of(verdict)
            is_new = is_young or not item.failures_in_a_row or subject in self._new
            call.append(Failure(subject, self._number, cause, is_new=is_new, is_last=change.state == "failed"))
            self._new.update([subject] if is_new else [])
            before, bare = self._blamed.pop(item.id, None), without_args(item)
            since = bare if before is None or before.cause != cause else before.item
            self._blamed[item.id] = BlamedItem(since, change, cause, bare if before is None else before.first)
        self._calls.append(call)
        self._size += len(call)
        self._largest = max(self._largest, len(call))
        self._forget(doubt)
        return policy.common_cause(self.source, [failure for each in self._calls for failure in each], doubt)

    def _forget(self, doubt: int) -> None:
        """Forget the oldest calls, but keep enough of them for any finding."""
        most = max(self.source.tries * max(REMEMBERED, (policy.MANIFOLD + 1) * doubt), policy.SEVERAL * self._largest)
        while self._size > most:
            gone = self._calls.popleft()
            self._size -= len(gone)
            self._new -= Counter(failure.subject for failure in gone if failure.is_new)
        while len(self._blamed) > most:
            del self._blamed[next(iter(self._blamed))]

    def blamed_for(self, outage: str) -> list[BlamedItem]:
        """The items whose failures this outage explains."""
        found = [each for each in self._blamed.values() if policy.explains(outage, each.cause)]
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
        is_excused = source.is_blamed(verdict) and policy.explains(self.cause, policy.cause_of(verdict))
        if not is_excused or (self.cause != policy.AWAY and times >= policy.MERCY):
            if times:  # nothing from before is taken back any more
                self._note(ExcusedItem(times), item.id)
            return change
        seconds = policy.pause(source, times, len(self._excused.keys() | {item.id}))
        given = excuse(before, change, now + timedelta(seconds=seconds), is_written=False)
        self._note(ExcusedItem(times + 1, without_args(before), given), item.id)
        return given

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


def without_args(item: Item) -> Item:
    """The item without its arguments: many are remembered, and arguments may be large."""
    return replace(item, args=b"")
