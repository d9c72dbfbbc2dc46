"""What the verbs of a store need of a database: named sections of SQL are run, on one connection or another.

The verbs are the same on every database. They pass times, lists and records as they are, and rows come back with the
types of their columns; how a database takes and keeps these is its own affair.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from duly.core.forks import renew_in_children
from duly.core.model import Head, Item, NewItem, NewSchedule, Revision, Schedule
from duly.store.records import Record, S

# What a listener receives: the head that a put made, or None for "something changed, look at the database".
AWAITED: Final = "awaited"
# A new item, a caller that waits for ends of items, or any other change.
News = Head | Literal["awaited"] | None

# Until when, on the monotonic clock, the current thread or coroutine may wait for a connection.
WAIT_UNTIL: ContextVar[float] = ContextVar("WAIT_UNTIL", default=float("inf"))

# Items that fell due more recently than this are fresh: they must not wait behind a backlog.
FRESH = timedelta(seconds=60)

# A function that takes schedules, and the live items of each by its id, and returns how the schedules change.
Plan = Callable[[Sequence[Schedule], Mapping[int, list[Item]]], Sequence[Revision]]

# A place in the order in which a survey visits lines: queue, lane, rank, task, owner.
SurveyPlace = tuple[str, str, int, str, str]
START: SurveyPlace = ("", "", -32_768, "", "")

# A function that returns the rule of a schedule in this slot of its ring, and when it is first due there.
Seat = Callable[[NewSchedule, int], tuple[str, datetime]]

# A function that is given the old arguments of a row and the newer item, and says as what the row is armed again.
Merge = Callable[[bytes, NewItem], NewItem]

C = TypeVar("C")  # a connection
T = TypeVar("T")


class Home(Struct, frozen=True):
    """Which database a connection leads to."""

    place: str  # where it finds the table of items, unlike any place of another kind of database; empty: nowhere
    title: str  # for people; without secrets
    id: str = ""  # from the database itself; empty: it has none, or the connection may not read it

    def is_same(self, other: Home) -> bool:
        is_near = self.place == other.place != ""
        return is_near and (self.id == other.id or not self.id or not other.id)


class ConnectionWaits:
    """How long this process has waited for connections: for metrics, and to choose the size of writes."""

    def __init__(self) -> None:
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._own = threading.local()
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self._own.seconds = self.own + seconds
        with self._lock:
            self.count += 1
            self.seconds += seconds

    @property
    def own(self) -> float:
        """The seconds of the current thread."""
        seconds: float = getattr(self._own, "seconds", 0.0)
        return seconds


WAITS = ConnectionWaits()


class Statements(Generic[C]):
    """Runs named sections. Each database implements how."""

    # Whether only one transaction writes at a time, so that no rows have to be locked.
    takes_turns = False

    def now(self, connection: C | None = None) -> datetime:
        """The database's clock."""
        raise NotImplementedError

    def _run(self, name: str, given: Mapping[str, Any], connection: C | None = None) -> list[Any]:
        """The rows of one section; without a connection, in a transaction of its own."""
        raise NotImplementedError

    def _run_many(
        self,
        name: str,
        connection: C,
        record: Record[Any] | None = None,
        values: Sequence[Any] = (),
        **columns: Sequence[Any],
    ) -> list[Any]:
        """The rows of a section that is given many rows: these records, with these columns, or just the columns."""
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[C]:
        """A connection inside a transaction that commits at the end of the block."""
        raise NotImplementedError

    def _all(self, record: Record[S], name: str, given: Mapping[str, Any], connection: C | None = None) -> list[S]:
        """The rows of a section that selects a record."""
        return [*starmap(record.struct, self._run(name, given, connection))]

    def _lock(self, name: str, given: Mapping[str, Any], connection: C) -> bool:
        """Lock rows with this section, always in the same order; False when there are none."""
        return self.takes_turns or bool(self._run(name, given, connection))

    def _whole(self, act: Callable[[C], T]) -> T:
        """Do this in a transaction."""
        with self._writing() as connection:
            return act(connection)

    def lent(self, connection: Any) -> AbstractContextManager[C]:
        """A driver's connection that a caller owns, as sections run on it, whatever rows the caller has set for it.

        What is done in the block is done as a whole or not at all, and commits with the caller's transaction. Without
        a transaction, on a connection in autocommit, it is a transaction of its own.
        """
        raise NotImplementedError

    @contextmanager
    def _joining(self, connection: C | None) -> Iterator[C]:
        """The caller's transaction; without one, a new one."""
        if connection is not None:
            yield connection
        else:
            with self._writing() as own:
                yield own

    def read(self, name: str, parameters: Mapping[str, Any], connection: C | None = None) -> list[tuple[Any, ...]]:
        """Run a named section: `read` is for those that only read, `write` for those that write.

        Times come back as aware datetimes, JSON as its text in bytes; JSON and lists go in as JSON text. On the
        connection of a `transaction` it is a part of that; without one, it is a transaction of its own.
        """
        return self._run(name, parameters, connection)

    write = read
