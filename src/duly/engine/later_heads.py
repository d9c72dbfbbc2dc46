"""Heads that are to be looked at later, because they are due then, or are left alone until then.

Those of each owner wait in a heap of their own. However many of one owner are to be looked at in the same moment, those
of the others come in the same portion.
"""

from __future__ import annotations

from datetime import datetime
from heapq import heappop, heappush

from duly.core.model import Head, Lane, Line

# How many heads of one owner, and of all, one portion has.
OWN = 500
ALL = 2_000


class LaterHeads:
    def __init__(self) -> None:
        self._heaps: dict[str, list[tuple[datetime, int, Head]]] = {}
        # When the first head of each owner is to be looked at, with its number; entries of former first heads remain.
        self._owners: list[tuple[datetime, int, str]] = []
        self._known: set[tuple[datetime, Line, Lane, int]] = set()
        self._count = 0

    def push(self, at: datetime, head: Head) -> None:
        """Look at this line, lane and rank then."""
        known = (at, head.line, head.lane, head.rank)
        if known in self._known:
            return
        self._known.add(known)
        self._count += 1
        owner = head.line.owner
        heap = self._heaps.setdefault(owner, [])
        heappush(heap, (at, self._count, head))
        if heap[0][1] == self._count:
            heappush(self._owners, (at, self._count, owner))

    def next_at(self) -> datetime | None:
        while self._owners and not self._is_first(*self._owners[0]):
            heappop(self._owners)
        return self._owners[0][0] if self._owners else None

    def pop(self, now: datetime) -> list[Head]:
        """A portion of what is to be looked at by now."""
        heads: list[Head] = []
        goes_on: list[tuple[datetime, int, str]] = []
        while len(heads) < ALL and (at := self.next_at()) is not None and at <= now:
            owner = heappop(self._owners)[2]
            heap = self._heaps[owner]
            for _ in range(OWN):
                if not heap or heap[0][0] > now:
                    break
                at, _, head = heappop(heap)
                self._known.discard((at, head.line, head.lane, head.rank))
                heads.append(head)
            if heap:
                goes_on.append((*heap[0][:2], owner))
            else:
                del self._heaps[owner]
        for first in goes_on:
            heappush(self._owners, first)
        return heads

    def _is_first(self, at: datetime, number: int, owner: str) -> bool:
        return owner in self._heaps and self._heaps[owner][0][1] == number
