"""How schedules are revised on every database: they are found, planned and written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Generic, TypeVar

from duly.core.clock import EPOCH
from duly.core.model import Item, Revision, Schedule
from duly.store.contract import FRESH, Plan
from duly.store.members import live_by_schedule

C = TypeVar("C")  # a connection


class Revising(Generic[C]):
    """What all stores do for `revise`. Each says how it finds schedules, and how it writes what becomes of them."""

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: C | None = None,
        without: Sequence[int] = (),
    ) -> int:
        if which is None and not self._is_any_due(now, without):
            return 0
        with self._joining(connection) as joined:
            if which is None:
                schedules = self._due(now, most, without, joined)
                items = self._last_items(schedules, joined)
            else:
                schedules, items = self._found(which, joined)
            if not schedules:
                return 0
            revisions = plan(schedules, live_by_schedule(items))
            self._apply_revisions({each.id: each for each in schedules}, revisions, now, joined)
        return len(schedules)

    def _due(self, now: datetime, most: int, without: Sequence[int], connection: C) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        found: list[Schedule] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            seen = [*without, *(each.id for each in found)]
            found += self._due_since(since, now, seen, part - len(found), connection)
        return found

    def _is_any_due(self, now: datetime, without: Sequence[int]) -> bool:
        """Whether it is worth a transaction to look for due schedules; True where looking costs no more than this."""
        return True

    def _joining(self, connection: C | None) -> AbstractContextManager[C]:
        raise NotImplementedError

    def _due_since(
        self, since: datetime, now: datetime, seen: Sequence[int], most: int, connection: C
    ) -> list[Schedule]:
        """Those that became due between these times, the oldest first, without those that are seen already."""
        raise NotImplementedError

    def _last_items(self, schedules: Sequence[Schedule], connection: C) -> Iterable[Item]:
        """The item that each of these made last, if it made any."""
        raise NotImplementedError

    def _found(self, which: Sequence[int], connection: C) -> tuple[list[Schedule], Iterable[Item]]:
        """Schedules by their ids, with all items that wait, and those that run where only one may at a time."""
        raise NotImplementedError

    def _apply_revisions(
        self, before: Mapping[int, Schedule], revisions: Sequence[Revision], now: datetime, connection: C
    ) -> None:
        """Write what becomes of schedules that were like this before."""
        raise NotImplementedError
