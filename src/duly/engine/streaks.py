"""The failures of one source since its last success: do they show that the source is down?"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from duly.core.model import Change, Failed, Item
from duly.core.policy.outage import MANIFOLD, MIXED, SEVERAL, Failure, Source, cause_of, common_cause, explains

# How many failures since the last success are remembered, for each try that a source needs to be down.
REMEMBERED = 20


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
            cause = cause_of(verdict)
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
        return common_cause(self.source, [failure for each in self._calls for failure in each], doubt)

    def _forget(self, doubt: int) -> None:
        """Forget the oldest calls, but never so many that the rest would not be enough for any finding."""
        most = max(self.source.tries * max(REMEMBERED, (MANIFOLD + 1) * doubt), SEVERAL * self._largest)
        while self._size > most:
            gone = self._calls.popleft()
            self._size -= len(gone)
            self._new -= Counter(failure.subject for failure in gone if failure.is_new)
        while len(self._blamed) > most:
            del self._blamed[next(iter(self._blamed))]

    def blamed_for(self, outage: str) -> list[BlamedItem]:
        """The items whose failures this outage explains."""
        found = [each for each in self._blamed.values() if explains(outage, each.cause)]
        return [each._replace(item=each.first) for each in found] if outage == MIXED else found


def without_args(item: Item) -> Item:
    """The item without its arguments: many are remembered, and arguments may be large."""
    return replace(item, args=b"")
