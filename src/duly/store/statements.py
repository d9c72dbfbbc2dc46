"""What the verbs of a store need of a database: named sections of SQL are run, on one connection or another.

The verbs are the same on every database. They pass times, lists and records as they are, and rows come back with the
types of their columns; how a database takes and keeps these is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import starmap
from typing import Any, Generic, TypeVar

from duly.store.records import Record, S

C = TypeVar("C")  # a connection
T = TypeVar("T")


class Statements(Generic[C]):
    """Runs named sections. Each database says how."""

    # Whether only one transaction writes at a time, so that no rows have to be locked.
    takes_turns = False

    def now(self, connection: C | None = None) -> datetime:
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
        """Lock rows with this section, in the same order for everybody; False when there are none."""
        return self.takes_turns or bool(self._run(name, given, connection))

    def _whole(self, act: Callable[[C], T]) -> T:
        """Do this in a transaction."""
        with self._writing() as connection:
            return act(connection)

    @contextmanager
    def _joining(self, connection: C | None) -> Iterator[C]:
        """The caller's transaction; without one, a new one."""
        if connection is not None:
            yield connection
        else:
            with self._writing() as own:
                yield own

    def read(self, name: str, parameters: Mapping[str, Any], connection: C | None = None) -> list[tuple[Any, ...]]:
        return self._run(name, parameters, connection)

    write = read
