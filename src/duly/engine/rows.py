"""The works that wait for the slots of a pool, and which of them gets the next one.

Works wait in rows, one per queue and owner, which take turns. A queue, and likewise an owner, may run at most `SHARE`
calls for each slot that it leaves free. So a queue whose handlers hang can take three quarters of the slots, the next
one three quarters of the rest, and so on. The last free slot is for a queue and owner that run nothing yet; the last
but one is also for a new queue of an owner who runs something, or for a new owner in a queue that runs something.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from duly.core.model import Item
from duly.engine.work import Work

SHARE = 3  # calls that may run for each slot that is left free
AHEAD = 0.1  # how many seconds' worth of work may wait
PATIENCE = 3.0  # seconds after which the works of a row that got no slot are released
MANY = 1_000  # how many rows are kept before those that are no longer used are dropped


@dataclass(slots=True, eq=False)
class SlotUsage:
    """A queue, an owner, or all of them together: what runs, what waits, and how fast items end."""

    rows: list[WorkRow] = field(default_factory=list)
    running: int = 0  # slots in use
    ran: int = 0  # items that have ended
    _seen: tuple[float, int] = field(default_factory=lambda: (time.monotonic(), 0))
    _ahead: int = 0

    def waiting(self) -> int:
        return sum(len(row.works) for row in self.rows)

    def lookahead(self) -> int:
        """How many items ended in the last tenth of a second: as many more may wait here."""
        then, ran = self._seen
        now = time.monotonic()
        if now - then >= AHEAD / 2:
            self._ahead = int((self.ran - ran) / (now - then) * AHEAD)
            self._seen = (now, self.ran)
        return self._ahead


@dataclass(slots=True, eq=False)
class WorkRow:
    """The waiting works of one queue and owner. A slot that runs for this row takes its works from it."""

    queue: SlotUsage
    owner: SlotUsage
    is_owned: bool
    works: deque[Work] = field(default_factory=deque)
    has_turn: bool = False
    moved_at: float = 0.0

    def waiting(self) -> int:
        """How many works of its queue wait, or of its owner if those are more."""
        return max(self.queue.waiting(), self.owner.waiting()) if self.is_owned else self.queue.waiting()

    def lookahead(self) -> int:
        return min(self.queue.lookahead(), self.owner.lookahead()) if self.is_owned else self.queue.lookahead()

    def is_in_use(self) -> bool:
        return bool(self.works or (self.queue.running and self.owner.running))


class WorkRows:
    def __init__(self, size: int, *, has_one_queue: bool) -> None:
        self.size = size
        self.all = SlotUsage()
        # With one queue and no owners, no slot has to be left free for others.
        self._is_shared = not has_one_queue
        self._rows: dict[tuple[str, str | None], WorkRow] = {}
        self._queues: dict[str, SlotUsage] = {}
        self._owners: dict[str | None, SlotUsage] = {}
        self._turns: deque[WorkRow] = deque()
        self._nobody = WorkRow(SlotUsage(), SlotUsage(), is_owned=False)  # for a queue and owner that have nothing here
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(row.works) for row in self._turns)

    def add(self, works: Iterable[Work]) -> None:
        now = time.monotonic()
        with self._lock:
            for work in works:
                row = work.row = self._row_of(work.items[0])
                if not row.works:
                    row.moved_at = now
                if not row.has_turn:
                    row.has_turn = True
                    self._turns.append(row)
                row.works.append(work)

    def enter(self, now: float) -> WorkRow | None:
        """Take a slot for the next row that may have one; call `leave` with that row to give the slot back."""
        turns = self._turns
        with self._lock:
            for _ in range(len(turns)):
                row = turns.popleft()
                if not row.works:
                    row.has_turn = False
                    continue
                turns.append(row)
                if self._more(row) > 0:
                    row.moved_at = now
                    for usage in (row.queue, row.owner, self.all):
                        usage.running += 1
                    return row
        return None

    def leave(self, row: WorkRow, ran: int = 0) -> None:
        """Give a slot back, after `ran` items ended in it."""
        with self._lock:
            for usage in (row.queue, row.owner, self.all):
                usage.running -= 1
                usage.ran += ran

    def take_all(self) -> list[Work]:
        """Take out all waiting works."""
        with self._lock:
            return [work for row in self._turns for work in _emptied(row)]

    def take_stale(self) -> list[Work]:
        """Take out works that wait too long: another worker may have a slot for them."""
        before = time.monotonic() - PATIENCE
        with self._lock:
            return [work for row in self._turns if row.moved_at < before for work in _emptied(row)]

    def wanted(self, queue: str, owner: str | None, batch: int) -> int:
        """How many more items of this queue and owner could start, besides those that wait here already."""
        if owner is not None:
            self._is_shared = True
        with self._lock:
            row = self._rows.get((queue, owner))
            if row is None:
                is_new = queue not in self._queues and (owner is None or owner not in self._owners)
                row = self._nobody if is_new else self._new(queue, owner)
            return (self._more(row) - row.waiting()) * batch

    def lookahead(self, queue: str, owner: str | None) -> int:
        """How many items of this queue and owner may wait: as many of them as ended in the last tenth of a second.

        If the queue and owner run nothing at this moment, they are assumed to be about as fast as the others.
        """
        if not self._is_shared:
            return self.all.lookahead()
        row = self._rows.get((queue, owner))
        own = 0 if row is None else row.lookahead()
        return own if row is not None and row.is_in_use() else max(own, self.all.lookahead() // (SHARE + 1))

    def stuck(self, batch: int) -> int:
        """How many waiting items may not start even though slots are free. Others may be claimed in spite of them."""
        if not self._is_shared:
            return 0
        with self._lock:
            surplus = [(len(row.works) - self._more(row)) * batch - row.lookahead() for row in self._turns]
        return sum(more for more in surplus if more > 0)

    def _more(self, row: WorkRow) -> int:
        """How many more slots this row may have now, if no other row takes any."""
        free = self.size - self.all.running
        if not self._is_shared:
            return free
        queue, owner = row.queue.running, row.owner.running
        most = SHARE * free - (max(queue, owner) if row.is_owned else queue)
        if most > SHARE:
            return most // (SHARE + 1)
        if queue and owner:
            return 0
        has_nothing = not queue and not (owner and row.is_owned)
        return 1 if free >= (1 if has_nothing else 2) else 0

    def _row_of(self, item: Item) -> WorkRow:
        owner = item.owner
        row = self._rows.get((item.queue, owner))
        if row is None:
            if len(self._rows) >= MANY:
                self._forget()
            if owner is not None or len(self._queues) > (item.queue in self._queues):
                self._is_shared = True
            row = self._rows[item.queue, owner] = self._new(item.queue, owner)
            self._know(item.queue, owner, row)
        return row

    def _new(self, queue: str, owner: str | None) -> WorkRow:
        return WorkRow(
            self._queues.get(queue) or SlotUsage(), self._owners.get(owner) or SlotUsage(), owner is not None
        )

    def _know(self, queue: str, owner: str | None, row: WorkRow) -> None:
        self._queues[queue], self._owners[owner] = row.queue, row.owner
        row.queue.rows.append(row)
        row.owner.rows.append(row)

    def _forget(self) -> None:
        """Drop the rows of queues and owners that have nothing waiting or running here."""
        self._queues, self._owners = {}, {}
        self._rows = {key: row for key, row in self._rows.items() if row.is_in_use()}
        for row in self._rows.values():
            row.queue.rows, row.owner.rows = [], []
        for (queue, owner), row in self._rows.items():
            self._know(queue, owner, row)


def _emptied(row: WorkRow) -> Iterator[Work]:
    with suppress(IndexError):  # slots take from it at the same time
        while True:
            yield row.works.popleft()
