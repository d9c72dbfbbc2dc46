"""The works that wait for the slots of a pool, and which of them gets the next one.

Works wait in rows, one per queue and owner. Owners take turns, and so do the rows of an owner. A queue, and likewise an
owner, may run at most `SHARE` calls for each slot that it leaves free. So a queue whose handlers hang can take three
quarters of the slots, the next one three quarters of the rest, and so on. The last free slot is for a queue and owner
that run nothing yet; the last but one is also for a new queue of an owner who runs something, or for a new owner in a
queue that runs something. Once there are owners, works without one count as those of one owner.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
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

    known: dict[WorkRow, None] = field(default_factory=dict)  # of an owner: all its rows
    rows: dict[WorkRow, None] = field(default_factory=dict)  # those with works that wait
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

    queue_name: str
    owner_name: str | None
    queue: SlotUsage
    owner: SlotUsage
    works: deque[Work] = field(default_factory=deque)
    has_turn: bool = False
    moved_at: float = 0.0

    def is_in_use(self) -> bool:
        return bool(self.works or (self.queue.running and self.owner.running))


NOTHING = SlotUsage()  # of a queue or owner that has nothing here


class WorkRows:
    def __init__(self, size: int, *, has_one_queue: bool) -> None:
        self.size = size
        self.all = SlotUsage()
        # With one queue and no owners, no slot has to be left free for others.
        self._is_shared = not has_one_queue
        self._has_owners = False
        self._rows: dict[tuple[str, str | None], WorkRow] = {}
        self._queues: dict[str, SlotUsage] = {}
        self._owners: dict[str | None, SlotUsage] = {}
        self._turns: OrderedDict[str | None, deque[WorkRow]] = OrderedDict()  # the rows of each owner
        self._bound = MANY  # of rows
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return self.all.waiting()

    def add(self, works: Iterable[Work]) -> None:
        now = time.monotonic()
        with self._lock:
            for work in works:
                row = work.row = self._row_of(work.items[0])
                if not row.works:
                    row.moved_at = now
                if not row.has_turn:
                    row.has_turn = True
                    self._turns.setdefault(row.owner_name, deque()).append(row)
                    row.queue.rows[row] = row.owner.rows[row] = self.all.rows[row] = None
                row.works.append(work)

    def enter(self, now: float) -> WorkRow | None:
        """Take a slot for the next row that may have one; call `leave` with that row to give the slot back."""
        with self._lock:
            for _ in range(len(self._turns)):
                owner = next(iter(self._turns))
                self._turns.move_to_end(owner)
                if (row := self._next_of(owner)) is not None:
                    row.moved_at = now
                    for usage in (row.queue, row.owner, self.all):
                        usage.running += 1
                    return row
        return None

    def _next_of(self, owner: str | None) -> WorkRow | None:
        """The next row of this owner that may have a slot."""
        rows = self._turns[owner]
        if len(rows) > 1 and self._more(NOTHING, rows[0].owner, owner) <= 0:  # then none of its rows may have one
            return None
        for _ in range(len(rows)):
            row = rows.popleft()
            if not row.works:
                row.has_turn = False
                for usage in (row.queue, row.owner, self.all):
                    del usage.rows[row]
                continue
            rows.append(row)
            if self._more(row.queue, row.owner, owner) > 0:
                return row
        if not rows:
            del self._turns[owner]
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
            return [work for row in self.all.rows for work in _emptied(row)]

    def take_stale(self) -> list[Work]:
        """Take out works that wait too long: another worker may have a slot for them."""
        before = time.monotonic() - PATIENCE
        with self._lock:
            return [work for row in self.all.rows if row.moved_at < before for work in _emptied(row)]

    def wanted(self, queue: str, owner: str | None, batch: int) -> int:
        """How many more items of this queue and owner could start, besides those that wait here already."""
        self._share_with(owner)
        with self._lock:
            return self._wanted(self._queues.get(queue, NOTHING), self._owners.get(owner, NOTHING), owner) * batch

    def wanted_new(self, queue: str | None, owner: str | None, batch: int) -> int:
        """The same for any queue that has nothing here, if none is given, and for any such owner."""
        with self._lock:
            used = NOTHING if queue is None else self._queues.get(queue, NOTHING)
            used_by = NOTHING if owner is None else self._owners.get(owner or None, NOTHING)
            return self._wanted(used, used_by, owner or None) * batch

    def lookahead(self, queue: str, owner: str | None) -> int:
        """How many items of this queue and owner may wait: as many of them as ended in the last tenth of a second.

        If the queue and owner run nothing at this moment, they are assumed to be about as fast as the others.
        """
        row = self._rows.get((queue, owner))
        if not self._is_shared or row is None:
            return self.lookahead_new()
        own = self._ahead(row)
        return own if row.is_in_use() else max(own, self.lookahead_new())

    def lookahead_new(self) -> int:
        """The same for a queue and owner that have nothing here."""
        return self.all.lookahead() // (SHARE + 1 if self._is_shared else 1)

    def stuck(self, batch: int) -> int:
        """How many waiting items may not start even though slots are free. Others may be claimed in spite of them."""
        if not self._is_shared:
            return 0
        with self._lock:
            surplus = [
                (len(row.works) - self._more(row.queue, row.owner, row.owner_name)) * batch - self._ahead(row)
                for row in self.all.rows
            ]
        return sum(more for more in surplus if more > 0)

    def owners_in_use(self) -> list[str | None]:
        with self._lock:
            return list(dict.fromkeys(row.owner_name for row in self._rows.values() if row.is_in_use()))

    def queues_in_use(self, owner: str | None) -> list[str]:
        """The queues in which this owner has works that run or wait."""
        with self._lock:
            usage = self._owners.get(owner)
            return [] if usage is None else [row.queue_name for row in usage.known if row.is_in_use()]

    def _ahead(self, row: WorkRow) -> int:
        ahead = row.queue.lookahead()
        return min(ahead, row.owner.lookahead()) if self._counts(row.owner_name) else ahead

    def _counts(self, owner: str | None) -> bool:
        """Whether the share of an owner is counted. If nobody has a name, each queue is on its own."""
        return owner is not None or self._has_owners

    def _wanted(self, queue: SlotUsage, owner: SlotUsage, name: str | None) -> int:
        waiting = max(queue.waiting(), owner.waiting()) if self._counts(name) else queue.waiting()
        return self._more(queue, owner, name) - waiting

    def _more(self, of_queue: SlotUsage, of_owner: SlotUsage, name: str | None) -> int:
        """How many more slots a row may have now, if no other row takes any."""
        free = self.size - self.all.running
        if not self._is_shared:
            return free
        queue, owner = of_queue.running, of_owner.running
        is_counted = self._counts(name)
        most = SHARE * free - (max(queue, owner) if is_counted else queue)
        if most > SHARE:
            return most // (SHARE + 1)
        if queue and owner:
            return 0
        has_nothing = not queue and not (owner and is_counted)
        return 1 if free >= (1 if has_nothing else 2) else 0

    def _row_of(self, item: Item) -> WorkRow:
        owner = item.owner
        row = self._rows.get((item.queue, owner))
        if row is None:
            if len(self._rows) >= self._bound:
                self._forget()
            self._share_with(owner)
            if len(self._queues) > (item.queue in self._queues):
                self._is_shared = True
            queue_usage = self._queues.setdefault(item.queue, SlotUsage())
            row = WorkRow(item.queue, owner, queue_usage, self._owners.setdefault(owner, SlotUsage()))
            row.owner.known[row] = None
            self._rows[item.queue, owner] = row
        return row

    def _share_with(self, owner: str | None) -> None:
        if owner is not None:
            self._is_shared = self._has_owners = True

    def _forget(self) -> None:
        """Drop the rows of queues and owners that have nothing waiting or running here."""
        for name, row in [each for each in self._rows.items() if not each[1].is_in_use()]:
            del self._rows[name], row.owner.known[row]
        self._queues = {row.queue_name: row.queue for row in self._rows.values()}
        self._owners = {row.owner_name: row.owner for row in self._rows.values()}
        self._bound = max(MANY, 2 * len(self._rows))


def _emptied(row: WorkRow) -> Iterator[Work]:
    with suppress(IndexError):  # slots take from it at the same time
        while True:
            yield row.works.popleft()
