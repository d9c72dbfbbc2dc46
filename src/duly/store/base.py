"""The contract of a store: the durable table of due work, narrow and plural.

Lists go in and lists come out; each item's change is atomic, and so is each put. A store keeps time for nobody: `now`
is an argument, and `now()` only reads the database's clock for whoever does. It decides nothing: it applies changes
that `decide` made, if the item is still in the state and under the fence they were made for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Protocol

from duly.errors import KeyConflict
from duly.model import Change, Head, Item, NewItem, Placed, Share

# What a watcher is told: the head that a put made, or None for "something changed, look".
News = Head | None


class Store(Protocol):
    url: str

    def twin(self) -> Store:
        """Another store on the same database with connections of its own."""
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

    def survey(self) -> list[Head]:
        """The earliest waiting item of each queue, lane and rank that is not paused."""
        ...

    def claim(
        self, shares: Sequence[Share], tasks: Sequence[str], worker: str, now: datetime, lease_until: datetime
    ) -> list[Item]:
        """Take due items of these tasks, at most each share's limit, under one new fence, earliest first."""
        ...

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[int]:
        """Prolong the leases of `held` (fence: items); returns the items that are no longer held.

        A lease that ran out unnoticed is prolonged too: whoever takes it over changes its items first.
        """
        ...

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        """Apply changes and drop closed leases; returns the ids whose change was refused as stale."""
        ...

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        """Show how far a running item is."""
        ...

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        """Running items of the `most` oldest leases that ran out, and the fences among them with nothing left."""
        ...

    def fetch(self, ids: Sequence[int]) -> list[Item]: ...

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        """Look at `most` items beyond this id and forget those that finished before then.

        Returns how many are gone, and the id after which to go on; None at the end of what can be that old.
        """
        ...

    def pause(self, queue: str, now: datetime) -> None: ...

    def resume(self, queue: str) -> None: ...

    def read(self, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a named read-only section; times come back as aware datetimes, JSON as its text in bytes."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A driver connection inside a transaction that commits at the end of the block."""
        ...

    def watch(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Block until `stop`, telling of new work. It only hurries: news may be late, doubled or missing."""
        ...

    def migrations(self) -> AbstractContextManager[Any]:
        """A driver connection for migrations, alone against other migrators."""
        ...


def conflict(new: NewItem, item_id: int, args: bytes, planned_at: datetime) -> KeyConflict | None:
    """Why a put with a live key is refused; None when it has the same content."""
    if args != new.args:
        return KeyConflict(
            f"{new.key!r} belongs to item {item_id} of {new.task} with other arguments; "
            "cancel that item, wait until it ends, or choose another key",
            item_id,
        )
    # In UTC, for in a repeated hour Python holds times of different zones for unequal.
    planned_at = planned_at.astimezone(UTC)
    if new.due_at is not None and new.due_at != planned_at:
        return KeyConflict(
            f"{new.key!r} belongs to item {item_id} of {new.task}, planned for {planned_at.isoformat()}, "
            f"not {new.due_at.isoformat()}; cancel that item or choose another key",
            item_id,
        )
    return None


def chunks(rows: Iterable[NewItem], size: int) -> Iterator[list[NewItem]]:
    chunk: list[NewItem] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def item_parameters(item: NewItem) -> dict[str, Any]:
    return {
        "task": item.task,
        "queue": item.queue,
        "args": item.args.decode(),
        "due_at": item.due_at,
        "key": item.key,
        "rank": item.rank,
        "max_attempts": item.max_attempts,
        "trace": item.trace,
    }


def key_parameters(item: NewItem) -> dict[str, Any]:
    return {"task": item.task, "key": item.key}


def claimed_items(rows: Iterable[tuple[Any, ...]], worker: str, now: datetime) -> list[Item]:
    """Items from the rows of a claim, in the order in which they should start."""
    items = [
        Item(
            id, task, queue, lane, rank, "running", planned_at, due_at, key, execution_key, args, attempt,
            max_attempts, failures, crashes, losses, fence, worker, now, trace,
        )
        for id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
        failures, crashes, losses, fence, trace in rows
    ]  # fmt: skip
    items.sort(key=attrgetter("rank", "due_at", "id"))
    return items


def expired_items(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Item], list[int]]:
    """Items from the rows of `expired`, and the fences that have none left."""
    items: list[Item] = []
    fences: set[int] = set()
    for fence, id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts, \
            failures, crashes, losses, trace, claimed_by, started_at in rows:  # fmt: skip
        fences.add(fence)
        if id is not None:
            items.append(
                Item(
                    id, task, queue, lane, rank, "running", planned_at, due_at, key, execution_key, args, attempt,
                    max_attempts, failures, crashes, losses, fence, claimed_by, started_at, trace,
                )
            )  # fmt: skip
    return items, sorted(fences - {item.fence for item in items})
