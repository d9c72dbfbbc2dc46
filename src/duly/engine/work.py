"""What a worker has in hand: works (one call of a handler each) and the leases they stand under."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from duly.core.model import Item
from duly.tasks.task import Task

if TYPE_CHECKING:
    from duly.engine.rows import WorkRow


class Work:
    """One call of a handler: one item, or a batch of them."""

    __slots__ = ("deadline", "has_ended", "items", "key", "over", "row", "start_by", "stop", "task")

    def __init__(self, task: Task[..., Any], items: list[Item], over: Callable[[Work], None] | None = None) -> None:
        self.task = task
        self.items = items
        # An item that was lost and claimed again here is another work: the fence tells them apart.
        self.key = (items[0].id, items[0].fence)
        self.over = over  # tells the pool that claimed it, when another runs it
        self.deadline = float("inf")  # on the monotonic clock; set when it starts
        self.start_by = float("inf")  # on the monotonic clock: what it was granted does not wait longer
        self.stop: Callable[[Work], None] | None = None  # set when it starts
        self.row: WorkRow | None = None  # where it waits for a slot
        self.has_ended = False  # said of those that were stopped: now their handler is over too

    @property
    def can_stop(self) -> bool:
        """Whether it has not begun, or runs where it can be stopped; what runs in a thread of this process cannot."""
        return self.stop is None or self.task.kind != "thread" or self.over is not None


class Lease:
    __slots__ = ("ends", "is_ending", "open", "stopped")

    def __init__(self, items: Iterable[Item], ends: float) -> None:
        self.open = {item.id for item in items}
        self.ends = ends  # on the monotonic clock, which no one can set
        self.is_ending = False  # it could not be prolonged in time
        self.stopped: set[Work] = set()  # whose handlers still run, and so hold what a limit counts


class Hands:
    """The works and leases of one worker. Whoever takes a work out of here speaks for its items: exactly one does."""

    def __init__(self) -> None:
        self._works: dict[tuple[int, int], Work] = {}
        self._leases: dict[int, Lease] = {}
        self._disowned: set[int] = set()
        self._left: set[int] = set()
        self._lock = threading.Lock()
        self.filled: Callable[[], None] = lambda: None
        self.emptied: Callable[[int], None] = lambda _: None  # a lease has nothing left under it, and is to be closed

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
            held = {fence: self._leases[fence] for fence in ending if fence in self._leases}
            return [fence for fence, lease in held.items() if lease.open <= ending[fence] and not lease.stopped]

    def let_go(self, items: Iterable[Item]) -> list[int]:
        """These items are over: their leases end with the last of them. Returns the fences of those that did."""
        ended = []
        with self._lock:
            for item in items:
                lease = self._leases.get(item.fence)
                if lease is not None:
                    lease.open.discard(item.id)
                    if not lease.open and not lease.stopped:
                        del self._leases[item.fence]
                        ended.append(item.fence)
        return ended

    def stopped(self, work: Work) -> None:
        """Someone spoke for this work, but its handler may run on: until it ends, the lease stays."""
        with self._lock:
            lease = self._leases.get(work.items[0].fence)
            if lease is not None and not work.has_ended:
                lease.stopped.add(work)

    def ended(self, work: Work) -> None:
        """The handler of a work that someone else spoke for is over."""
        fence = work.items[0].fence
        with self._lock:
            work.has_ended = True
            lease = self._leases.get(fence)
            if lease is None or work not in lease.stopped:
                return
            lease.stopped.discard(work)
            if lease.open or lease.stopped:
                return
            del self._leases[fence]
        self.emptied(fence)

    def is_anyone_stopping(self) -> bool:
        """Whether handlers that were stopped still run."""
        return any(lease.stopped for lease in self.held().values())

    def held(self) -> dict[int, Lease]:
        with self._lock:
            return dict(self._leases)
