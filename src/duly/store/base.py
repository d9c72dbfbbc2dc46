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
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heapify, heapreplace
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from msgspec.json import encode
from msgspec.structs import replace

from duly.errors import KeyConflict
from duly.model import (
    LIVE,
    Armed,
    Ask,
    Change,
    Grant,
    Head,
    Item,
    Line,
    Member,
    NewItem,
    NewSchedule,
    Note,
    Placed,
    Revision,
    Schedule,
    Share,
)

T = TypeVar("T")

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

    def open_queues(self, names: Iterable[str]) -> set[str]:
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
    if new.due_at is not None and not new.is_relative and new.due_at != planned_at:
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


def claimed_items(rows: Iterable[tuple[Any, ...]], worker: str) -> list[Item]:
    """Items from the rows of a claim, in the order in which they should start."""
    items = [
        Item(
            id, task, queue, lane, rank, "running", planned_at, due_at, key, execution_key, args, attempt,
            max_attempts, failures, crashes, losses, fence, worker, started_at, trace, *origin,
        )
        for id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts,
        failures, crashes, losses, fence, started_at, trace, *origin in rows
    ]  # fmt: skip
    items.sort(key=in_order)
    return items


def waiting_item(row: Sequence[Any]) -> Item:
    """An item from the row of a pick: as it waits."""
    id, task, queue, lane, rank, planned_at, due_at, key, execution_key, args, attempt, max_attempts, failures, \
        crashes, losses, fence, started_at, trace, *origin = row  # fmt: skip
    return Item(
        id, task, queue, lane, rank, "waiting", planned_at, due_at, key, execution_key, args, attempt, max_attempts,
        failures, crashes, losses, fence, None, started_at, trace, *origin,
    )  # fmt: skip


in_order = attrgetter("rank", "due_at", "id")


def families(shares: Iterable[Share]) -> set[str]:
    """The names of queues whose pause holds for these: their own, and those that they are below."""
    return {name for queue in {share.line.queue for share in shares} for name in family(queue)}


@lru_cache(20_000)
def family(queue: str) -> tuple[str, ...]:
    """`a`, `a/b` and `a/b/c` for `a/b/c`: a pause holds for all queues below."""
    parts = queue.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def heads_of(rows: Iterable[tuple[Any, ...]]) -> list[Head]:
    return [Head(Line(queue, task, owner), lane, rank, due_at) for queue, task, owner, lane, rank, due_at in rows]


def place_of(heads: Sequence[Head], most: int) -> Place | None:
    """Where a survey that looked at so many goes on."""
    if len(heads) < most:
        return None
    last = heads[-1]
    return (last.line.queue, last.lane, last.rank, last.line.task, last.line.owner)


def are_open(queues: set[str], paused: set[str]) -> set[str]:
    """Without the paused ones and those below them."""
    return {queue for queue in queues if paused.isdisjoint(family(queue))} if paused else queues


def items_under(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Item], list[int]]:
    """Items from the rows of `under`, and the fences that have none left."""
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


def live_by_schedule(items: Iterable[Item]) -> dict[int, list[Item]]:
    live: dict[int, list[Item]] = {}
    for item in items:
        if item.state in LIVE and item.schedule_id is not None:
            live.setdefault(item.schedule_id, []).append(item)
    return live


def one_at_a_time(schedules: Iterable[Schedule]) -> list[int]:
    """Those of which no item may run beside another."""
    return [schedule.id for schedule in schedules if schedule.overlap != "allow"]


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


def rounds_of(values: Iterable[T], key: Callable[[T], int]) -> list[list[T]]:
    """These values so that no row is in one round twice: each statement changes a row once."""
    rounds: list[list[T]] = []
    seen: Counter[int] = Counter()
    for value in values:
        row = key(value)
        place = seen[row]
        seen[row] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(value)
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
