"""The contract of a store, which keeps due work in a database. Both databases fulfil it.

Methods take and return lists; each item's change is atomic, and so is each put. A store does not look at clocks: `now`
is an argument, and the method `now` reads the database's clock for the caller's own. It decides nothing: it applies
changes that `decide` made, if the item is still in the state and under the fence that they were made for.

What is the same on every database is inherited; here is what each database does in its own way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from duly.core.model import Item, NewItem, Share
from duly.store.claims import Claims
from duly.store.schedules import Schedules
from duly.store.statements import AWAITED, FRESH, START, WAIT_UNTIL, Home, News, Plan

__all__ = ["AWAITED", "FRESH", "START", "WAIT_UNTIL", "News", "Plan", "Store"]


class Store(Claims[Any], Schedules[Any]):
    url: str
    # What to do if a caller's connection leads to another database.
    remedy = "use a connection to that one, or give the app the other one (DULY_DATABASE_URL)"
    # Whether it stands in for another one, to which the connections of callers lead.
    is_virtual = False
    _home: Home | None = None

    def home(self, anew: bool = False) -> Home:
        """Which database this is. It is looked up once, or `anew`."""
        if self._home is None or anew:
            self._home = self._locate()
        return self._home

    def _locate(self) -> Home:
        raise NotImplementedError

    def twin(self, timeout: float | None = None) -> Store:
        """Another store on the same database with connections of its own.

        With a `timeout` it gives up a connection that does not answer for that many seconds.
        """
        raise NotImplementedError

    def hasten(self, is_hasty: bool = True) -> None:
        """Stop waiting for an unreachable database, because this process is about to end; with False, wait again."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def load(self, new: Iterable[NewItem]) -> int:
        """Insert any number of items as they come, all or none; returns how many are new."""
        raise NotImplementedError

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        """Take due items, at most each share's limit, under one new fence, earliest first.

        If `now` is None, the database's clock decides what is due, at the moment of the claim.
        """
        raise NotImplementedError

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        """Extend the leases of `held` (fence: items); returns the items that are no longer held, each with its fence.

        An expired lease is extended too if it was not taken over: a takeover would have changed its items.
        """
        raise NotImplementedError

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        """Look at `most` items after this id and delete those that finished before that time.

        Returns how many were deleted, and the id to go on after; None if later items cannot be that old.
        """
        raise NotImplementedError

    def query(self, sql: str, parameters: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement of a plug-in on its own tables; parameters are written `:name`."""
        raise NotImplementedError

    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> AbstractContextManager[Any]:
        """A driver connection inside a transaction that commits at the end of the block.

        `is_handlers`: it is for a handler, which may hold it for long, so it is not taken from the connections that
        everything else shares. A connection is waited for until `until`, on the monotonic clock.
        """
        raise NotImplementedError

    def listen(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Call `tell` for new work until `stop` is set. It only saves time: calls may be late, repeated or missing."""
        raise NotImplementedError

    def listen_to_ends(self, tell: Callable[[], None], stop: threading.Event) -> None:
        """Call `tell` when items have ended, and now and then, until `stop` is set. Workers are asked to notify."""
        raise NotImplementedError

    def tell_of_ends(self) -> None:
        """Notify waiting callers that items have ended."""
        raise NotImplementedError

    def migrations(self) -> AbstractContextManager[Any]:
        """A driver connection for migrations; only one migrator has one at a time."""
        raise NotImplementedError
