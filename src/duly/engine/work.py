"""What a worker has in flight: works, each of which is one call of a handler, and the leases of their items."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duly.core.model import Item, UnusedCall
from duly.tasks.task import Task

if TYPE_CHECKING:
    from duly.engine.rows import WorkRow
    from duly.engine.starts import Permit, Seats

log = logging.getLogger("duly.engine")

Tasks = Mapping[str, Task[..., Any]]  # by name
Wake = Callable[[], None]  # wakes the loop of another part


def nothing(*_: object) -> None:
    """The default of callbacks, for parts that are used alone."""


class Work:
    """One call of a handler: one item, or a batch of them."""

    __slots__ = (
        "deadline", "has_begun", "has_ended", "is_counted", "items", "key", "over", "permit", "row", "seats", "stop",
        "task",
    )  # fmt: skip

    def __init__(self, task: Task[..., Any], items: list[Item], over: Callable[[Work], None] | None = None) -> None:
        self.task = task
        self.items = items
        # With the fence, since an item that was lost and claimed again here is another work.
        self.key = (items[0].id, items[0].fence)
        self.over = over  # called when it is over, if another pool runs it than the one that claimed it
        self.deadline = float("inf")  # on the monotonic clock; set when it starts
        self.permit: Permit | None = None  # under limits: when it may begin; it is released if it cannot
        self.seats: Seats = {}  # what retry windows count for its items, and others of its claim
        self.stop: Callable[[Work], None] | None = None  # set when it starts
        self.row: WorkRow | None = None  # where it waits for a slot
        self.has_begun = False  # its handler was called, as far as limits are concerned
        self.is_counted = False  # for its pace: how it ended, or that it was stopped
        self.has_ended = False  # for works that were stopped: whether their handler has really ended

    @property
    def can_stop(self) -> bool:
        """Whether it can be stopped: if it has not begun, or does not run in a thread of this process."""
        return self.stop is None or self.task.kind != "thread" or self.over is not None


@dataclass(slots=True, eq=False)
class Lease:
    """A lease that this worker holds, with the ids of its items that have not ended."""

    open: set[int]
    ends: float  # on the monotonic clock
    is_ending: bool = False  # it could not be extended in time
    stopped: set[Work] = field(default_factory=set)  # works whose stopped handlers still run, which a limit counts


class InFlight:
    """The works and leases of one worker. Exactly one caller can `take` a work, and that caller reports how it ended.

    `wake_keeper` is called when the first lease is taken, `wake_settler` when a lease is to be closed.
    """

    def __init__(self, *, wake_keeper: Wake = nothing, wake_settler: Wake = nothing) -> None:
        self._works: dict[tuple[int, int], Work] = {}
        self._leases: dict[int, Lease] = {}
        self._disowned: set[int] = set()
        self._left: set[int] = set()
        self._lock = threading.Lock()
        self._wake_keeper = wake_keeper
        self._wake_settler = wake_settler
        self.to_close: deque[int] = deque()  # the fences of leases without items, which the settler closes
        self.unused: deque[UnusedCall] = deque()  # calls that did not begin, which the settler gives back

    def __len__(self) -> int:
        return len(self._works)

    def hold(self, works: Iterable[Work]) -> None:
        for work in works:
            self._works[work.key] = work

    def holds(self, work: Work) -> bool:
        """Whether this work has not been taken yet."""
        return work.key in self._works

    def take(self, work: Work) -> bool:
        """Take the work out; False when another caller was faster and reports how it ended."""
        if self._works.pop(work.key, None) is None:
            return False
        if work.permit is not None and not work.has_begun:
            self.give_back(work.permit.unused(work.items, work.seats))
        return True

    def give_back(self, unused: UnusedCall) -> None:
        """This call was granted and will not begin."""
        self.unused.append(unused)
        self._wake_settler()

    def works(self) -> list[Work]:
        return list(self._works.values())

    def lease(self, items: list[Item], ends: float) -> list[Item]:
        """Hold the leases of these items; returns those that may begin, for some leases may have been disowned."""
        by_fence: dict[int, list[Item]] = {}
        for item in items:
            by_fence.setdefault(item.fence, []).append(item)
        with self._lock:
            was_empty = not self._leases
            for fence in self._disowned.intersection(by_fence):
                del by_fence[fence]
            self._leases.update({fence: Lease({item.id for item in same}, ends) for fence, same in by_fence.items()})
        if was_empty and by_fence:
            self._wake_keeper()
        return [item for item in items if item.fence in by_fence]

    def disown(self, fences: Iterable[int]) -> list[int]:
        """Which of these leases are not held here. They never will be, even if the answer to their claim comes."""
        with self._lock:
            unheld = [fence for fence in fences if fence not in self._leases and fence not in self._left]
            self._disowned.update(unheld)
        return unheld

    def leave(self, fences: Iterable[int]) -> None:
        """Let these leases run out, without giving their items back."""
        with self._lock:
            self._left.update(fences)

    def closing(self, items: Iterable[Item]) -> list[int]:
        """The fences of leases that will have no items left once these have ended."""
        ending: dict[int, set[int]] = {}
        for item in items:
            ending.setdefault(item.fence, set()).add(item.id)
        with self._lock:
            held = {fence: self._leases[fence] for fence in ending if fence in self._leases}
            return [fence for fence, lease in held.items() if lease.open <= ending[fence] and not lease.stopped]

    def let_go(self, items: Iterable[Item]) -> list[int]:
        """These items have ended, and so have leases without others. Returns the fences of those leases."""
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
        """This work was taken while its handler may still run: keep its lease until the handler ends."""
        with self._lock:
            lease = self._leases.get(work.items[0].fence)
            if lease is not None and not work.has_ended:
                lease.stopped.add(work)

    def ended(self, work: Work) -> None:
        """The handler of a work that was stopped has really ended."""
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
        self._close(fence)

    def drop(self, lost: Iterable[tuple[int, int]]) -> None:
        """Forget these items, given by id and fence, which are no longer ours, and stop works that have no others.

        The same item under another fence is another try, which may still be ours.
        """
        lost = set(lost)
        gone = []
        for work in self.works():
            ours = [item for item in work.items if (item.id, item.fence) in lost]
            gone.extend(ours)
            if len(ours) == len(work.items) and self.take(work):
                log.warning("%s %s is no longer ours: stopping it", work.task.label, ", ".join(str(i.id) for i in ours))
                if work.stop is not None:
                    work.stop(work)
        for fence in self.let_go(gone):
            self._close(fence)

    def _close(self, fence: int) -> None:
        self.to_close.append(fence)
        self._wake_settler()

    def is_anyone_stopping(self) -> bool:
        """Whether handlers that were stopped still run."""
        return any(lease.stopped for lease in self.held().values())

    def held(self) -> dict[int, Lease]:
        with self._lock:
            return dict(self._leases)
