"""The contract of a store: the durable table of due work, narrow and plural.

Lists go in and lists come out; each item's change is atomic, and so is each put. A store keeps time for nobody: `now`
is an argument, and `now()` only reads the database's clock for whoever does. It decides nothing: it applies changes
that `decide` made, if the item is still in the state and under the fence they were made for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol

from duly.core.model import (
    Armed,
    Ask,
    Change,
    Grant,
    Head,
    Item,
    Job,
    NewItem,
    NewRow,
    NewSchedule,
    Placed,
    Revision,
    Schedule,
    Share,
)

# What a watcher is told: the head that a put made, or None for "something changed, look".
News = Head | None

# Whoever has to answer by a time waits for a connection no longer than this, on the monotonic clock.
WAIT_UNTIL: ContextVar[float] = ContextVar("WAIT_UNTIL", default=float("inf"))

# What fell due so recently is fresh: it must not wait behind a backlog.
FRESH = timedelta(seconds=60)

# What becomes of schedules: given them and their live items by schedule.
Plan = Callable[[Sequence[Schedule], Mapping[int, list[Item]]], Sequence[Revision]]

# A place in the order of lines: queue, lane, rank, task, owner.
Place = tuple[str, str, int, str, str]
START: Place = ("", "", -32_768, "", "")

# What a row becomes that is armed again: given its old arguments and the newer item with the version it gets.
Merge = Callable[[bytes, NewItem], NewItem]


class Store(Protocol):
    url: str

    def twin(self, timeout: float | None = None) -> Store:
        """Another store on the same database with connections of its own.

        With a `timeout` it gives a silent connection up after so many seconds, where there is such a thing.
        """
        ...

    def hasten(self, is_hasty: bool = True) -> None:
        """Wait no longer for a database that is away, for something is about to end; with False, as ever."""
        ...

    def close(self) -> None: ...

    def now(self) -> datetime:
        """The database's clock."""
        ...

    def put(self, new: Sequence[NewItem]) -> list[Placed]:
        """Insert items; all or none. A live key with the same content answers the item that has it."""
        ...

    def load(self, new: Iterable[NewItem]) -> int:
        """Stream any number of items in, all or none; returns how many are new."""
        ...

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        """Put items of one task whose key is theirs for good; all or none.

        A higher version of a key arms its row again, whatever became of it, as what `merge` makes of the old arguments
        and the newer item. An equal or lower one changes nothing, unless the row is done: then it has come back, and
        its version is the next one. An item without a version is just put.
        """
        ...

    def survey(self, after: Place = START, most: int = 1_000) -> tuple[list[Head], Place | None]:
        """The earliest waiting item of each line, lane and rank beyond this place, paused queues left out.

        Looks at `most` of them; returns from where to go on, None at the end.
        """
        ...

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        """What fell due last and what has been due for longest, `most` items each, and when the next one falls due."""
        ...

    def open_queues(self, names: Iterable[str], connection: Any = None) -> set[str]:
        """Those of these queues that are neither paused nor below one that is."""
        ...

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        """Take due items, at most each share's limit, under one new fence, earliest first.

        `now` None: the database's clock decides what is due, at the moment of the claim.
        """
        ...

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        """`claim` for at most `calls` calls of `batch` items in all, as far as each ask's meters have room.

        The first asks are served first. Each call that is limited at the same time has a lease of its own to be counted
        by. Answers each ask, in their order.
        """
        ...

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        """Prolong the leases of `held` (fence: items); returns the items that are no longer held, each with its fence.

        A lease that ran out unnoticed is prolonged too: whoever takes it over changes its items first.
        """
        ...

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Which of these items run, each with the fence that it runs under."""
        ...

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        """Apply changes and drop closed leases; returns the ids whose change was refused as stale."""
        ...

    def load_rows(self, job_id: int, first: int, rows: Sequence[NewRow]) -> bool:
        """Add rows to a job, all or none, the first of them with this number.

        False when the job has that row already, or waits for one before it, takes no more or is gone: nothing was done
        then.
        """
        ...

    def seal_job(self, job_id: int, now: datetime, connection: Any = None) -> Job:
        """No more rows come; a job of which all have ended is over by this."""
        ...

    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: Any = None,
    ) -> list[tuple[int, bool]]:
        """Create schedules, all or none: the id of each, and whether it is new or its key was taken already.

        One with a ring gets the emptiest of its slots for good, and from `seat` its rule and first time there.
        """
        ...

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: Any = None,
        without: Sequence[int] = (),
    ) -> int:
        """Have `plan` say what becomes of these schedules (None: of those that are due), while nobody else may.

        It is given them with their live items: of due ones the last item, else all that wait, and all that run of
        those that have one at a time. Returns how many. Due ones among `without` are not looked at.
        """
        ...

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        """Show how far a running item is."""
        ...

    def leases(self) -> list[tuple[int, str, datetime]]:
        """Every lease: its fence, its worker, and until when it holds.

        It answers only when a heartbeat could be written too: elsewhere reads may go on while every writer waits, and a
        lease that nobody is able to prolong says nothing about its worker.
        """
        ...

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        """Running items under these leases, and the fences among them with nothing left."""
        ...

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        """What is `under` the `most` oldest leases that ran out by the clock: a look, not a judgement."""
        ...

    def fetch(self, ids: Sequence[int]) -> list[Item]: ...

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        """Look at `most` items beyond this id and forget those that finished before then.

        Returns how many are gone, and the id after which to go on; None at the end of what can be that old.
        """
        ...

    def pause(self, queue: str, now: datetime, connection: Any = None) -> None: ...

    def resume(self, queue: str, connection: Any = None) -> None: ...

    def read(self, name: str, parameters: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a named read-only section; times come back as aware datetimes, JSON as its text in bytes.

        On the connection of a `transaction` it sees what was written there.
        """
        ...

    def write(self, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a named section that writes; JSON and lists go in as JSON text."""
        ...

    def run(self, connection: Any, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The same on the connection of a `transaction`; None: by itself."""
        ...

    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> AbstractContextManager[Any]:
        """A driver connection inside a transaction that commits at the end of the block.

        A handler may hold its own for long, which keeps none of the others from theirs where there can be several;
        nobody waits for one after `until`, on the monotonic clock.
        """
        ...

    def watch(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Block until `stop`, telling of new work. It only hurries: news may be late, doubled or missing."""
        ...

    def migrations(self) -> AbstractContextManager[Any]:
        """A driver connection for migrations, alone against other migrators."""
        ...
