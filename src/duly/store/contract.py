"""The contract of a store, which keeps due work in a database. Both databases fulfil it.

Methods take and return lists; each item's change is atomic, and so is each put. A store does not look at clocks: `now`
is an argument, and the method `now` reads the database's clock for the caller's own. It decides nothing: it applies
changes that `decide` made, if the item is still in the state and under the fence that they were made for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

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

# What a listener receives: the head that a put made, or None for "something changed, look at the database".
AWAITED: Final = "awaited"
# A new item, that somebody waits for ends of items, or that something else has changed.
News = Head | Literal["awaited"] | None

# Until when, on the monotonic clock, the current thread or coroutine may wait for a connection.
WAIT_UNTIL: ContextVar[float] = ContextVar("WAIT_UNTIL", default=float("inf"))

# Items that fell due more recently than this are fresh: they must not wait behind a backlog.
FRESH = timedelta(seconds=60)

# A function that is given schedules, and the live items of each by its id, and says what becomes of the schedules.
Plan = Callable[[Sequence[Schedule], Mapping[int, list[Item]]], Sequence[Revision]]

# A place in the order in which a survey visits lines: queue, lane, rank, task, owner.
SurveyPlace = tuple[str, str, int, str, str]
START: SurveyPlace = ("", "", -32_768, "", "")

# A function that says which rule a schedule has in this slot of its ring, and when it is due there first.
Seat = Callable[[NewSchedule, int], tuple[str, datetime]]

# A function that is given the old arguments of a row and the newer item, and says as what the row is armed again.
Merge = Callable[[bytes, NewItem], NewItem]


class Store(Protocol):
    url: str

    def twin(self, timeout: float | None = None) -> Store:
        """Another store on the same database with connections of its own.

        With a `timeout` it gives up a connection that does not answer for that many seconds.
        """

    def hasten(self, is_hasty: bool = True) -> None:
        """Stop waiting for a database that is away, because this process is about to end; with False, wait again."""

    def close(self) -> None: ...

    def now(self) -> datetime:
        """The database's clock."""

    def put(self, new: Sequence[NewItem]) -> list[Placed[Any]]:
        """Insert items, all or none. If a live item has the key and the same content, the answer is that item."""

    def load(self, new: Iterable[NewItem]) -> int:
        """Insert any number of items as they come, all or none; returns how many are new."""

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        """Put items of one task whose rows keep their keys permanently; all or none.

        A higher version of a key starts its row again in whatever state it is, as what `merge` makes of the old
        arguments and the newer item. An equal or lower version changes nothing, unless the row is done: then the row
        starts again with the next version. An item without a version is put as usual.
        """

    def survey(self, after: SurveyPlace = START, most: int = 1_000) -> tuple[list[Head], SurveyPlace | None]:
        """The earliest waiting item of each line, lane and rank after this place, without those of paused queues.

        It looks at `most` of them, and also returns the place to go on from, or None at the end.
        """

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        """The items that fell due last and those due for longest, `most` of each, and when the next one falls due."""

    def open_queues(self, names: Iterable[str], connection: Any = None) -> set[str]:
        """Those of these queues that are neither paused nor below one that is."""

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        """Take due items, at most each share's limit, under one new fence, earliest first.

        If `now` is None, the database's clock decides what is due, at the moment of the claim.
        """

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        """`claim` under limits: for at most `calls` calls of up to `batch` items, as far as the meters have room.

        The first asks are served first. A call under a limit on calls at the same time gets a lease of its own, because
        such limits count leases. There is an answer for each ask, in their order.
        """

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        """Prolong the leases of `held` (fence: items); returns the items that are no longer held, each with its fence.

        A lease that ran out is prolonged too if nobody has taken it over: that would have changed its items.
        """

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Which of these items run, each with the fence that it runs under."""

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        """Apply changes and drop closed leases; returns the ids whose change was refused as stale."""

    def load_rows(self, job_id: int, first: int, rows: Sequence[NewRow]) -> bool:
        """Add rows to a job, all or none, the first of them with this number.

        False when the job has that row already, or waits for one before it, takes no more or is gone: nothing was done
        then.
        """

    def seal_job(self, job_id: int, now: datetime, connection: Any = None) -> Job:
        """Accept no more rows. A job whose rows have all ended is over by this."""

    def enroll(self, new: Sequence[NewSchedule], seat: Seat, connection: Any = None) -> list[tuple[int, bool]]:
        """Create schedules, all or none. Returns the id of each, and whether it is new or had its key already.

        A schedule with a ring gets the slot with the fewest members, and `seat` gives its rule and first time there.
        """

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: Any = None,
        without: Sequence[int] = (),
    ) -> int:
        """Lock these schedules (None: those that are due, except `without`) and do what `plan` says becomes of them.

        `plan` is given the schedules with their live items. For due ones, that is the last item that each made;
        otherwise all waiting items, and running ones too if items must not overlap. Returns how many schedules it was.
        """

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        """Show how far a running item is."""

    def leases(self) -> list[tuple[int, str, datetime]]:
        """Every lease: its fence, its worker, and until when it holds.

        It answers only when a heartbeat could be written too. Reads may succeed while all writers have to wait, and
        then a lease that is not prolonged does not mean that its worker is dead.
        """

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        """Running items under these leases, and the fences among them with nothing left."""

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        """What `under` gives for the `most` oldest leases that ran out by the clock; their workers may still live."""

    def fetch(self, ids: Sequence[int], connection: Any = None) -> list[Item]: ...

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        """Look at `most` items after this id and delete those that finished before that time.

        Returns how many were deleted, and the id to go on after; None if later items cannot be that old.
        """

    def pause(self, queue: str, now: datetime, connection: Any = None) -> None: ...

    def resume(self, queue: str, connection: Any = None) -> None: ...

    def read(self, name: str, parameters: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a named read-only section; times come back as aware datetimes, JSON as its text in bytes.

        On the connection of a `transaction` it sees what that has written.
        """

    def write(self, name: str, parameters: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a named section that writes; JSON and lists go in as JSON text.

        It runs on the connection of a `transaction`; without one, in a transaction of its own.
        """

    def query(self, sql: str, parameters: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement of a plug-in on its own tables; parameters are written `:name`."""

    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> AbstractContextManager[Any]:
        """A driver connection inside a transaction that commits at the end of the block.

        `is_handlers`: it is for a handler, which may hold it for long, so it is not taken from the connections that
        everything else shares. A connection is waited for until `until`, on the monotonic clock.
        """

    def listen(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Call `tell` with new work until `stop` is set. It only saves time: calls may be late, doubled or missing."""

    def listen_to_ends(self, tell: Callable[[], None], stop: threading.Event) -> None:
        """Call `tell` when items have ended, and now and then, until `stop` is set. Workers are asked to notify."""

    def tell_of_ends(self) -> None:
        """Notify those who wait that items have ended."""

    def migrations(self) -> AbstractContextManager[Any]:
        """A driver connection for migrations; only one migrator has one at a time."""
