"""News for a worker: notifications of the database, and the parts that wait for them.

`NotificationListener` passes each notification on to the part that it concerns. `ClaimerInbox` is what other threads
report to the claimer: a put makes a new head, the end of a call makes room under a limit, and anything else is a reason
to look around. `Ends` is what follows when ends of items are written: waiting callers are notified, and the rows of a
kickoff are counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

from duly.core.model import Change, Head, Item, Line
from duly.engine.work import Wake, nothing
from duly.store.contract import AWAITED, News, Store

# Seconds for which ends are notified after a caller asked for it.
AWAITED_FOR = 30.0
# Seconds between two looks for schedules that notifications cause.
RECUR_WITHIN = 1.0


@dataclass(eq=False)
class ClaimerInbox:
    """`wake` is called after each report that concerns the tasks of this worker, or its only line if it has one."""

    tasks: Collection[str]
    _: KW_ONLY
    only: Line | None = None
    wake: Wake = nothing
    reports: deque[Head | Line] = field(default_factory=deque, init=False)
    look: bool = field(default=True, init=False)  # something changed, so the claimer has to survey the lines again

    def accepts(self, line: Line) -> bool:
        return line.task in self.tasks and self.only in (None, line)

    def put(self, head: Head) -> None:
        """Report a put that made a new head."""
        if self.accepts(head.line):
            self.reports.append(head)
            self.wake()

    def freed(self, items: Iterable[Item]) -> None:
        """Report that calls of these items have ended, which makes room under limits on concurrent calls."""
        self.reports.extend(line for line in {item.line for item in items} if line.task in self.tasks)
        self.wake()

    def released(self, items: Iterable[Item]) -> None:
        """Report that calls of these items were given back: they are due again, and their limits have room."""
        items = list(items)
        self.freed(items)
        for item in items:
            self.put(Head(item.line, item.lane, item.rank, item.due_at))

    def changed(self) -> None:
        """Report that something else changed, so that the lines are surveyed soon."""
        self.look = True
        self.wake()


class Ends:
    def __init__(self, store: Store, *, counts: bool) -> None:
        self._store = store
        self._counts = counts
        self._awaited_until = 0.0  # on the monotonic clock
        self.by_status: Counter[str] = Counter()  # how rows of jobs ended, for a worker of a single line

    def awaited(self) -> None:
        """Somebody waits for ends of items."""
        self._awaited_until = time.monotonic() + AWAITED_FOR

    def settled(self, changes: Sequence[Change]) -> None:
        """These changes were written."""
        if self._counts:
            self.by_status.update(
                change.status
                for change in changes
                if change.status is not None and (change.finished_at is not None or change.tried is not None)
            )
        if time.monotonic() < self._awaited_until:
            self._store.tell_of_ends()


@dataclass(eq=False)
class NotificationListener:
    store: Store
    inbox: ClaimerInbox
    ends: Ends
    _: KW_ONLY
    check_running: Wake
    wake_recurrer: Wake
    _recurred_at: float = field(default=0.0, init=False)  # on the monotonic clock
    _stop: threading.Event = field(default_factory=threading.Event, init=False)

    def tick(self, now: datetime) -> datetime:
        """Listen until `stop`. An error ends it, and the loop starts it again."""
        self.store.listen(self._hear, self._stop)
        return now

    def stop(self) -> None:
        self._stop.set()

    def _hear(self, news: News) -> None:
        if news == AWAITED:
            self.ends.awaited()
        elif news is not None:
            self.inbox.put(news)
        else:  # a schedule or a running item may have been changed
            self.inbox.changed()
            self.check_running()
            if time.monotonic() - self._recurred_at > RECUR_WITHIN:
                self._recurred_at = time.monotonic()
                self.wake_recurrer()
