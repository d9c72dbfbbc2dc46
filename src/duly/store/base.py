"""The contract of a store: the durable table of due work, narrow and plural.

Lists go in and lists come out; each item's change is atomic, and so is each put. A store keeps time for nobody: `now`
is an argument, and `now()` only reads the database's clock for whoever does. It decides nothing: it applies changes
that `decide` made, if the item is still in the state and under the fence they were made for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from heapq import heapify, heapreplace
from operator import attrgetter
from typing import Any, Protocol

from msgspec.json import encode
from msgspec.structs import replace

from duly.errors import KeyConflict
from duly.model import (
    LIVE,
    Armed,
    Change,
    Head,
    Item,
    Member,
    Meter,
    NewItem,
    NewSchedule,
    Note,
    Placed,
    Revision,
    Schedule,
    Share,
)
from duly.policy.limits import tokens, worth_keeping

# What a watcher is told: the head that a put made, or None for "something changed, look".
News = Head | None


# What fell due so recently is fresh: it must not wait behind a backlog.
FRESH = timedelta(seconds=60)

# What becomes of schedules: given them and their live items by schedule.
Plan = Callable[[Sequence[Schedule], Mapping[int, list[Item]]], Sequence[Revision]]


# What a row becomes that is armed again: given its old arguments and the newer item with the version it gets.
Merge = Callable[[bytes, NewItem], NewItem]


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

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        """Put items of one task whose key is theirs for good; all or none.

        A higher version of a key arms its row again, whatever became of it, as what `merge` makes of the old arguments
        and the newer item. An equal or lower one changes nothing, unless the row is done: then it has come back, and
        its version is the next one. An item without a version is just put.
        """
        ...

    def survey(self) -> list[Head]:
        """The earliest waiting item of each queue, lane and rank that is not paused."""
        ...

    def claim(
        self, shares: Sequence[Share], tasks: Sequence[str], worker: str, now: datetime, lease_until: datetime
    ) -> list[Item]:
        """Take due items of these tasks, at most each share's limit, under one new fence, earliest first."""
        ...

    def claim_metered(
        self,
        share: Share,
        tasks: Sequence[str],
        worker: str,
        now: datetime,
        lease_until: datetime,
        meters: Sequence[Meter],
        calls: int,
        batch: int,
    ) -> tuple[list[Item], int, datetime | None]:
        """`claim` for at most `calls` calls of `batch` items, if all of these meters have room, which it takes.

        What is limited at the same time comes one call at a time, each under a lease of its own to be counted by.
        Returns the items, how many calls were granted for them, and when to come back if a meter had no room (None:
        when something ends, or a person changes it).
        """
        ...

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[int]:
        """Prolong the leases of `held` (fence: items); returns the items that are no longer held.

        A lease that ran out unnoticed is prolonged too: whoever takes it over changes its items first.
        """
        ...

    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Any = None) -> list[int]:
        """Apply changes and drop closed leases; returns the ids whose change was refused as stale."""
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

    def revise(self, which: Sequence[int] | None, now: datetime, most: int, plan: Plan, connection: Any = None) -> int:
        """Have `plan` say what becomes of these schedules (None: of those that are due), while nobody else may.

        It is given them with their live items: of due ones the last item, else all that wait. Returns how many.
        """
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

    def transaction(self, is_handlers: bool = False) -> AbstractContextManager[Any]:
        """A driver connection inside a transaction that commits at the end of the block.

        A handler may hold its own for long, which keeps none of the others from theirs where there can be several.
        """
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


class Arming:
    """What becomes of items with versions: each key once, by its highest version."""

    def __init__(self, new: Sequence[NewItem], merge: Merge) -> None:
        self._new = new
        self._merge = merge
        self._answers: list[Armed | None] = [None] * len(new)
        self._open: dict[str, int] = {}  # the place of the highest version by key
        self._without = [place for place, item in enumerate(new) if item.version is None]
        for place, item in enumerate(new):
            if item.version is not None:
                assert item.key is not None
                held = self._open.setdefault(item.key, place)
                if item.version > (new[held].version or 0):
                    self._open[item.key] = place
        self._winners = dict(self._open)

    @property
    def keys(self) -> list[str]:
        """Keys that nothing was decided for yet."""
        return list(self._open)

    def again(self, found: Iterable[tuple[int, str, int, bytes, str, bool]]) -> list[tuple[int, NewItem]]:
        """Those of these rows (id, key, version, args, state, is_begun) that are armed again; the others are known."""
        armed = []
        for item_id, key, version, args, state, is_begun in found:
            place = self._open.pop(key)
            item = self._new[place]
            assert item.version is not None
            if item.version > version or state == "done":
                newer = replace(item, version=max(item.version, version + 1))
                armed.append((item_id, self._merge(args, newer)))
                self._answers[place] = Armed(item_id, "again")
            else:
                self._answers[place] = Armed(item_id, "known", bool(is_begun))
        return armed

    def fresh(self) -> list[NewItem]:
        """What is to be inserted: in this order, those without a version first."""
        keyed = (place for _, place in sorted(self._open.items()))  # in one order for all, so that none wait in a ring
        return [self._new[place] for place in (*self._without, *keyed)]

    def inserted(self, rows: Iterable[tuple[int, str | None]]) -> None:
        """What was inserted of them, as id and key; keys that are not there were taken by someone meanwhile."""
        for item_id, key in rows:
            place = self._without.pop(0) if key is None or key not in self._open else self._open.pop(key)
            self._answers[place] = Armed(item_id, "new")

    def answers(self) -> list[Armed]:
        told = []
        for answer, item in zip(self._answers, self._new, strict=True):
            if answer is None:  # a lower version than another in the same breath
                assert item.key is not None
                winner = self._answers[self._winners[item.key]]
                assert winner is not None
                answer = Armed(winner.id, "known")
            told.append(answer)
        return told


def not_ours(task: str, keys: Sequence[str]) -> KeyConflict:
    return KeyConflict(f"{keys[0]!r} of {task} belongs to a live item that was put without a version", 0)


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
        "expires_at": item.expires_at,
        "owner": item.owner,
    }


def key_parameters(item: NewItem) -> dict[str, Any]:
    return {"task": item.task, "key": item.key}


def claimed_items(rows: Iterable[tuple[Any, ...]], worker: str, now: datetime) -> list[Item]:
    """Items from the rows of a claim, in the order in which they should start."""
    items = [
        Item(
            id, task, queue, lane, rank, "running", planned_at, due_at, key, execution_key, args, attempt,
            max_attempts, failures, crashes, losses, fence, worker, now, trace, *origin,
        )
        for id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
        failures, crashes, losses, fence, trace, *origin in rows
    ]  # fmt: skip
    items.sort(key=attrgetter("rank", "due_at", "id"))
    return items


def expired_items(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Item], list[int]]:
    """Items from the rows of `expired`, and the fences that have none left."""
    items: list[Item] = []
    fences: set[int] = set()
    for fence, id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts, \
            failures, crashes, losses, trace, claimed_by, started_at, *origin in rows:  # fmt: skip
        fences.add(fence)
        if id is not None:
            items.append(
                Item(
                    id, task, queue, lane, rank, "running", planned_at, due_at, key, execution_key, args, attempt,
                    max_attempts, failures, crashes, losses, fence, claimed_by, started_at, trace, *origin,
                )
            )  # fmt: skip
    return items, sorted(fences - {item.fence for item in items})


def calls_for(items: Sequence[Item], batch: int) -> int:
    """How many calls of a handler these items are: an item under suspicion is called alone."""
    suspects = sum(item.crashes > 0 for item in items) if batch > 1 else len(items)
    return suspects + -(-(len(items) - suspects) // batch)


def quota(
    meters: Sequence[Meter], hits: Mapping[str, Sequence[datetime]], running: Mapping[str, int], now: datetime,
    calls: int, batch: int,
) -> tuple[int, int, datetime | None]:  # fmt: skip
    """How many calls and items all of these meters allow now; when none, when to ask again."""
    items = calls * batch
    waits: list[datetime | None] = []
    for meter in meters:
        free, until = tokens(meter, hits.get(meter.name, ()), running.get(meter.name, 0), now)
        if meter.since is not None:
            items = min(items, free)
        elif meter.per is not None:
            calls = min(calls, free)
        else:
            calls = min(calls, free, 1)
        if not free:
            waits.append(until)
    items = min(items, calls * batch)
    calls = min(calls, -(-items // batch))
    if items:
        return calls, items, None
    return 0, 0, None if None in waits else max((wait for wait in waits if wait is not None), default=None)


def hits_after(
    meters: Sequence[Meter], hits: Mapping[str, Sequence[datetime]], now: datetime, calls: int, items: int
) -> dict[str, list[datetime]]:
    """What each meter has counted with this claim. Two of one name share a log, as long as the longer needs it."""
    after: dict[str, list[datetime]] = {}
    for meter in meters:
        if meter.per is None and meter.since is None:
            continue
        kept = worth_keeping(meter, hits.get(meter.name, ()), now)
        new = [now] * (items if meter.since is not None else calls)
        after[meter.name] = max(after.get(meter.name, []), kept + new, key=len)
    return after


def as_set(meter: Meter, most: int | None, per: float | None) -> Meter:
    """The meter with what a person set in place of what the code says."""
    if most is None:
        return meter
    return replace(meter, most=most, per=per if per is not None else meter.per)


def live_by_schedule(items: Iterable[Item]) -> dict[int, list[Item]]:
    live: dict[int, list[Item]] = {}
    for item in items:
        if item.state in LIVE and item.schedule_id is not None:
            live.setdefault(item.schedule_id, []).append(item)
    return live


def only_moves_on(before: Schedule, after: Schedule) -> bool:
    """Whether nothing changed but where the schedule stands: the common case, written by the thousand."""
    return after == replace(before, next_at=after.next_at, last_at=after.last_at, skipped=after.skipped)


def schedule_parameters(schedule: Schedule) -> dict[str, Any]:
    return {
        "id": schedule.id,
        "queue": schedule.queue,
        "rank": schedule.rank,
        "args": schedule.args.decode(),
        "rule": schedule.rule,
        "zone": schedule.zone,
        "catch_up": schedule.catch_up,
        "max_lateness": schedule.max_lateness,
        "overlap": schedule.overlap,
        "slot": schedule.slot,
        "is_declared": schedule.is_declared,
        "next_at": schedule.next_at,
        "paused_at": schedule.paused_at,
        "broken_at": schedule.broken_at,
        "failures": schedule.failures,
        "last_at": schedule.last_at,
        "skipped": schedule.skipped,
        "keep": None if schedule.keep is None else schedule.keep.decode(),
        "fingerprint": schedule.fingerprint,
    }


def members_of(changes: Iterable[Change]) -> list[Member]:
    """What these changes mean for schedules, in their order."""
    return [change.member for change in changes if change.member]


def rounds_of(members: Iterable[Member]) -> list[list[Member]]:
    """The same, so that no schedule is in one round twice: each statement changes a row once."""
    rounds: list[list[Member]] = []
    seen: Counter[int] = Counter()
    for member in members:
        place = seen[member.schedule_id]
        seen[member.schedule_id] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(member)
    return rounds


def notes_of(members: Iterable[Member]) -> list[tuple[datetime, Note]]:
    return [
        (
            member.at,
            Note(
                "duly",
                "schedule.deactivated",
                f"schedule:{member.schedule_id}",
                encode({"failures": member.failures, "error": (member.error or "").partition("\n")[0]}),
            ),
        )
        for member in members
        if member.is_broken
    ]


class Seats:
    """Hands out seats of one ring: always the emptiest, the first of those."""

    def __init__(self, slots: int, taken: Mapping[int, int]) -> None:
        self._heap = [(taken.get(slot, 0), slot) for slot in range(slots)]
        heapify(self._heap)

    def take(self) -> int:
        members, slot = self._heap[0]
        heapreplace(self._heap, (members + 1, slot))
        return slot
