"""The only read model: pages, one item with its attempts, depths of queues. Feeds the CLI, the metrics and the apps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly import codec
from duly.clock import Clock
from duly.depths import Depth
from duly.errors import ItemNotFound
from duly.model import Lane, State
from duly.store.base import Store, are_open

PAGE_MOST = 1_000
ALL = 2**31 - 1  # of what there are few


class Row(Struct, frozen=True):
    """An item as people see it."""

    id: int
    task: str
    queue: str
    lane: Lane
    rank: int
    state: State
    outcome: str | None
    planned_at: datetime
    due_at: datetime
    key: str | None
    execution_key: str
    args: Any
    result: Any
    progress: Any
    attempt: int
    max_attempts: int | None
    failures: int
    crashes: int
    losses: int
    fence: int
    claimed_by: str | None
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None
    created_at: datetime

    @property
    def attempt_key(self) -> str:
        return f"{self.id}-{self.attempt}-{self.fence:08x}"


class Try(Struct, frozen=True):
    """A try that did not succeed."""

    number: int
    attempt_key: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    error_class: str | None


class Story(Struct, frozen=True):
    """All there is to tell about one item."""

    item: Row
    lease_until: datetime | None
    tries: list[Try]


class Signs(Struct, frozen=True):
    """Whether all is well, in a few numbers."""

    seen_at: datetime | None  # the last sign of life of any worker
    alerts: list[str]
    broken: int  # schedules


class LateItem(Struct, frozen=True):
    id: int
    task: str
    queue: str
    planned_at: datetime
    started_at: datetime
    finished_at: datetime
    state: State
    lateness_seconds: float


class StuckItem(Struct, frozen=True):
    id: int
    task: str
    queue: str
    lane: Lane
    state: State
    planned_at: datetime
    due_at: datetime
    attempts: int
    last_error: str | None
    age_seconds: float


class Alert(Struct, frozen=True):
    name: str
    since: datetime
    message: str
    details: Any
    told_at: datetime | None


class LimitUse(Struct, frozen=True):
    """What a limit has counted lately, and what a person set in place of the code's values."""

    name: str
    most: int | None
    per_seconds: float | None
    granted: int
    last: datetime | None


class WorkerLife(Struct, frozen=True):
    name: str
    tasks: list[str]
    started_at: datetime
    seen_at: datetime


class OwnedRow(Row, frozen=True):
    """An item with whose it is, and with which others it failed."""

    owner: str | None = None
    error_group: str | None = None
    schedule_id: int | None = None


class Group(Struct, frozen=True):
    """Failures in review that look alike."""

    id: str
    task: str
    error_class: str | None
    items: int
    first_at: datetime | None
    last_at: datetime | None
    sample: int


class ReviewNote(Struct, frozen=True):
    id: int
    author: str
    text: str
    at: datetime


class Read:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def page(
        self,
        *,
        state: State | None = None,
        task: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        before: int | None = None,
        most: int = 50,
    ) -> list[Row]:
        """Newest first; `before` is the last id of the page before."""
        filters = {"state": state, "task": task, "queue": queue, "key": key, "before": before}
        rows = self._store.read("page", {**filters, "most": max(1, min(most, PAGE_MOST))})
        return [_row(row) for row in rows]

    def pages(self, **filters: Any) -> Iterator[Row]:
        """All items that fit, newest first, a page at a time."""
        before: int | None = None
        while rows := self.page(**filters, before=before, most=PAGE_MOST):
            yield from rows
            before = rows[-1].id

    def item(self, item_id: int) -> Row:
        return self.story(item_id).item

    def story(self, item_id: int) -> Story:
        rows = self._store.read("show", {"id": item_id})
        if not rows:
            raise ItemNotFound(f"there is no item {item_id}")
        tries = [Try(*map(_utc, row)) for row in self._store.read("attempts", {"id": item_id})]
        return Story(_row(rows[0][:-1]), _utc(rows[0][-1]), tries)

    def depths(self) -> list[Depth]:
        """How much there is, by queue, lane and state."""
        depths = [_depth(*row) for row in self._store.read("depth", {"now": self._clock.now()})]
        open_ones = are_open({depth.queue for depth in depths}, {depth.queue for depth in depths if depth.paused})
        told = (replace(depth, paused=depth.queue not in open_ones) for depth in depths)
        return sorted(told, key=lambda d: (d.queue, d.lane, d.state))

    def queues(self, depths: Sequence[Depth] | None = None) -> list[dict[str, Any]]:
        """One row per queue, by name: what waits, is due, runs and is in review; now, or by depths that are known."""
        now = self._clock.now()
        found: dict[str, dict[str, Any]] = {}
        for depth in self.depths() if depths is None else depths:
            empty = {"waiting": 0, "retrying": 0, "due": 0, "oldest": None, "running": 0, "failed": 0, "paused": False}
            queue = found.setdefault(depth.queue, {"queue": depth.queue, **empty})
            queue[depth.state] += depth.items
            queue["paused"] = queue["paused"] or depth.paused
            if depth.state == "waiting":
                queue["due"] += depth.due
                queue["retrying"] += depth.items if depth.lane == "retry" else 0
                queue["oldest"] = min(filter(None, (queue["oldest"], depth.oldest)), default=None)
        for queue in found.values():
            age = (now - queue["oldest"]).total_seconds() if queue["due"] else None
            queue["oldest_due_seconds"] = None if age is None else max(age, 0.0)
        return list(found.values())

    def owned(
        self, owner: str | None, *, state: str | None = None, before: int | None = None, most: int = 50, **filters: Any
    ) -> list[OwnedRow]:
        """A page of what someone owns, newest first; None: of all."""
        given = {"task": None, "queue": None, "key": None, "error_group": None, "schedule_id": None, **filters}
        given.update(owner=owner, before=2**63 - 1 if before is None else before, most=most)
        if state == "failed":  # review has an index of its own, so that a page is as quick among millions of others
            return [OwnedRow(*_values(row)) for row in self._store.read("owned_failed", given)]
        return [OwnedRow(*_values(row)) for row in self._store.read("owned_items", {**given, "state": state})]

    def owned_item(self, item_id: int, owner: str | None) -> OwnedRow | None:
        """This item, if it is theirs."""
        rows = self._store.read("owned_item", {"id": item_id, "owner": owner})
        return OwnedRow(*_values(rows[0])) if rows else None

    def groups(self, owner: str | None, most: int = 100, after: tuple[int, str] | None = None) -> list[Group]:
        """Failures in review by their look, the largest groups first; after a group of this size and id."""
        size, last = after or (None, None)
        rows = self._store.read("groups", {"owner": owner, "most": most, "size": size, "after": last})
        return [Group(*map(_utc, row)) for row in rows]

    def group(self, group_id: str, owner: str | None) -> Group | None:
        rows = self._store.read("group", {"error_group": group_id, "owner": owner})
        return Group(*map(_utc, rows[0])) if rows else None

    def review_notes(self, group_id: str, owner: str | None, most: int = 100) -> list[ReviewNote]:
        rows = self._store.read("review_notes", {"error_group": group_id, "owner": owner, "most": most})
        return [ReviewNote(*map(_utc, row)) for row in rows]

    def late(self, grace: float = 300.0, most: int = 100) -> list[LateItem]:
        """Done items that were started later than this after their time, latest first."""
        rows = self._store.read("late", {"grace": grace, "most": most})
        return [LateItem(*map(_utc, row)) for row in rows]

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[StuckItem]:
        """Items that are not done this long after their time, oldest first."""
        rows = self._store.read("stuck", {"grace": grace, "most": most, "now": self._clock.now()})
        return [StuckItem(*map(_utc, row)) for row in rows]

    def alerts(self) -> list[Alert]:
        """Alerts that stand."""
        rows = self._store.read("alerts", {})
        return [
            Alert(name, _utc(since), text, codec.decode(said), _utc(told)) for name, since, text, said, told in rows
        ]

    def limits(self, after: str = "", most: int = ALL) -> list[LimitUse]:
        """By name."""
        rows = self._store.read("all_meters", {"after": after, "most": most})
        return [
            LimitUse(name, most, per, len(hits), _utc(hits[-1]) if hits else None) for name, most, per, hits in rows
        ]

    def workers(self, after: str = "", most: int = ALL) -> list[WorkerLife]:
        """Workers that gave a sign of life within a day and did not sign off, by name."""
        rows = self._store.read("workers", {"after": after, "most": most})
        return [WorkerLife(name, codec.decode(tasks), *map(_utc, times)) for name, tasks, *times in rows]

    def seen_at(self) -> datetime | None:
        """The last sign of life of any worker."""
        seen_at: datetime | None = _utc(self._store.read("last_seen", {})[0][0])
        return seen_at

    def signs(self) -> Signs:
        alerts = [row[0] for row in self._store.read("alerts", {})]
        return Signs(self.seen_at(), alerts, self._store.read("broken", {})[0][0])


def _row(row: tuple[Any, ...]) -> Row:
    return Row(*_values(row))


def _values(row: tuple[Any, ...]) -> list[Any]:
    values = [_utc(value) for value in row]
    for place in (11, 12, 13):
        values[place] = None if values[place] is None else codec.shown(values[place])
    return values


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _depth(queue: str, lane: Lane, state: State, items: int, due: int, oldest: Any, paused: object) -> Depth:
    return Depth(queue, lane, state, items, due, _utc(oldest), bool(paused))
