"""What a worker has in hand: works (one call of a handler each) and the leases they stand under."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from duly.model import Item
from duly.task import Task


class Work:
    """One call of a handler: one item, or a batch of them."""

    __slots__ = ("deadline", "items", "key", "over", "start_by", "stop", "task")

    def __init__(self, task: Task[..., Any], items: list[Item], over: Callable[[Work], None] | None = None) -> None:
        self.task = task
        self.items = items
        # An item that was lost and claimed again here is another work: the fence tells them apart.
        self.key = (items[0].id, items[0].fence)
        self.over = over  # tells the pool that claimed it, when another runs it
        self.deadline = float("inf")  # on the monotonic clock; set when it starts
        self.start_by = float("inf")  # on the monotonic clock: what it was granted does not wait longer
        self.stop: Callable[[Work], None] | None = None  # set when it starts

    @property
    def can_stop(self) -> bool:
        """Whether it has not begun, or runs where it can be stopped; what runs in a thread of this process cannot."""
        return self.stop is None or self.task.kind != "thread" or self.over is not None


class Lease:
    __slots__ = ("ends", "is_ending", "open")

    def __init__(self, items: Iterable[Item], ends: float) -> None:
        self.open = {item.id for item in items}
        self.ends = ends  # on the monotonic clock, which no one can set
        self.is_ending = False  # it could not be prolonged in time


class Hands:
    """The works and leases of one worker. Whoever takes a work out of here speaks for its items: exactly one does."""

    def __init__(self) -> None:
        self._works: dict[tuple[int, int], Work] = {}
        self._leases: dict[int, Lease] = {}
        self._disowned: set[int] = set()
        self._left: set[int] = set()
        self._lock = threading.Lock()
        self.filled: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._works)

    def hold(self, works: Iterable[Work]) -> None:
        for work in works:
            self._works[work.key] = work

    def holds(self, work: Work) -> bool:
        """Whether this work is still to be done here."""
        return work.key in self._works

    def take(self, work: Work) -> bool:
        """Whether the caller is the one to speak for this work."""
        return self._works.pop(work.key, None) is not None

    def works(self) -> list[Work]:
        return list(self._works.values())

    def lease(self, items: list[Item], ends: float) -> list[Item]:
        """Hold the leases of these items; returns those that may begin, for one may have been given back already."""
        by_fence: dict[int, list[Item]] = {}
        for item in items:
            by_fence.setdefault(item.fence, []).append(item)
        with self._lock:
            was_empty = not self._leases
            for fence in self._disowned.intersection(by_fence):
                del by_fence[fence]
            self._leases.update({fence: Lease(same, ends) for fence, same in by_fence.items()})
        if was_empty and by_fence:
            self.filled()
        return [item for item in items if item.fence in by_fence]

    def disown(self, fences: Iterable[int]) -> list[int]:
        """Which of these leases nobody here holds; from now on nobody will, however late the answer to a claim is."""
        with self._lock:
            unheld = [fence for fence in fences if fence not in self._leases and fence not in self._left]
            self._disowned.update(unheld)
        return unheld

    def leave(self, fences: Iterable[int]) -> None:
        """These leases are let go of without giving back what runs under them: they are to run out."""
        with self._lock:
            self._left.update(fences)

    def closing(self, items: Iterable[Item]) -> list[int]:
        """The fences that will have nothing left under them once these items are over."""
        ending: dict[int, set[int]] = {}
        for item in items:
            ending.setdefault(item.fence, set()).add(item.id)
        with self._lock:
            return [fence for fence, ids in ending.items() if fence in self._leases and self._leases[fence].open <= ids]

    def let_go(self, items: Iterable[Item]) -> None:
        """These items are over: their leases end with the last of them."""
        with self._lock:
            for item in items:
                lease = self._leases.get(item.fence)
                if lease is not None:
                    lease.open.discard(item.id)
                    if not lease.open:
                        del self._leases[item.fence]

    def held(self) -> dict[int, Lease]:
        with self._lock:
            return dict(self._leases)
