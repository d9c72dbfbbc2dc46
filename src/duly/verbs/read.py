"""Reads what people look at: pages of items, one item with its tries, depths of queues, alerts, workers and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from duly.core import codec
from duly.core.clock import Clock
from duly.core.errors import ItemNotFound
from duly.core.model import State
from duly.core.shown import (
    Alert,
    AuditLine,
    Depth,
    Drift,
    Ending,
    Group,
    LateItem,
    LimitUse,
    OwnedRow,
    ReviewNote,
    Row,
    Signs,
    Story,
    StuckItem,
    WorkerLife,
)
from duly.core.timeline import timeline
from duly.store.contract import Store
from duly.store.lines import are_open
from duly.store.records import TRIED, Kind, Record, reader

PAGE_MOST = 1_000
LOOKED_AT = 100_000  # rows that a look over the newest ones reads at most
NOTES = 100  # lines of the audit log about one item, the newest
ALL = 2**31 - 1  # no bound, for lists that are short


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


# How values of rows are shown: times in UTC, and JSON decoded.
SEEN: dict[Kind, Callable[[Any], Any]] = {datetime: _utc, object: codec.shown, bool: bool}

_row = reader(Record(Row), SEEN)
_ending = reader(Record(Ending), SEEN)
_owned_row = reader(Record(OwnedRow), SEEN)
_try = reader(TRIED, SEEN)
_depth = reader(Record(Depth), SEEN)
_group = reader(Record(Group), SEEN)
_review_note = reader(Record(ReviewNote), SEEN)
_late = reader(Record(LateItem), SEEN)
_stuck = reader(Record(StuckItem), SEEN)
_alert = reader(Record(Alert), SEEN)
_worker = reader(Record(WorkerLife), SEEN)
_note = reader(Record(AuditLine), {datetime: _utc})


def _limit(row: tuple[Any, ...]) -> LimitUse:
    name, most, per, hits = row
    return LimitUse(name, most, per, len(hits), _utc(hits[-1]) if hits else None)


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
        connection: Any = None,
    ) -> list[Row]:
        """A page of items, newest first; `before` is the last id of the page before."""
        filters = {"state": state, "task": task, "queue": queue, "key": key, "before": before}
        rows = self._store.read("page", {**filters, "most": max(1, min(most, PAGE_MOST))}, connection)
        return [_row(row) for row in rows]

    def pages(self, **filters: Any) -> Iterator[Row]:
        """All items that fit, newest first, a page at a time."""
        before: int | None = None
        while rows := self.page(**filters, before=before, most=PAGE_MOST):
            yield from rows
            before = rows[-1].id

    def endings(self, ids: Sequence[int]) -> list[Ending]:
        """How those of these items ended that have."""
        return [_ending(row) for row in self._store.read("endings", {"ids": codec.encode(list(ids)).decode()})]

    def rows(self, ids: Sequence[int], connection: Any = None) -> list[Row]:
        """The items with these ids, as far as they exist."""
        return [_row(row) for row in self._store.read("rows", {"ids": codec.encode(list(ids)).decode()}, connection)]

    def item(self, item_id: int) -> Row:
        return self.story(item_id).item

    def story(self, item_id: int) -> Story:
        rows = self._store.read("show", {"id": item_id})
        if not rows:
            raise ItemNotFound(f"there is no item {item_id}")
        tries = [_try(row) for row in self._store.read("attempts", {"id": item_id})]
        *values, lease_until = rows[0]
        row = _row(values)
        noted = {"subject": f"item:{item_id}", "before": None, "most": NOTES}
        notes = [_note(line) for line in self._store.read("audit", noted)]
        # None of them if it is forgotten at this very moment.
        ((trace, schedule_key),) = self._store.read("origin", {"id": item_id}) or [(None, None)]
        return Story(
            row, None if lease_until is None else _utc(lease_until), tries, timeline(row, tries, notes),
            trace.split("-")[1] if trace else None, schedule_key,
        )  # fmt: skip

    def pending(self) -> dict[str, int]:
        """How many rows have not ended, by the type of their job; by its task, if it has no type."""
        return {row[0]: int(row[1]) for row in self._store.read("pending_rows", {})}

    def depths(self) -> list[Depth]:
        """How many items there are, by queue, lane and state."""
        depths = [_depth(row) for row in self._store.read("depth", {"now": self._clock.now()})]
        open_ones = are_open({depth.queue for depth in depths}, {depth.queue for depth in depths if depth.paused})
        told = (replace(depth, paused=depth.queue not in open_ones) for depth in depths)
        return sorted(told, key=lambda d: (d.queue, d.lane, d.state))

    def queues(self, depths: Sequence[Depth] | None = None) -> list[dict[str, Any]]:
        """One row per queue, by name: what waits, is due, runs and is in review. Without `depths`, all is counted."""
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
        """A page of the items of this owner, newest first; None means those of all owners."""
        given = {"task": None, "queue": None, "key": None, "error_group": None, "schedule_id": None, **filters}
        given.update(owner=owner, before=2**63 - 1 if before is None else before, most=most)
        if state == "failed":  # review has an index of its own, which is fast among millions of other items
            return [_owned_row(row) for row in self._store.read("owned_failed", given)]
        return [_owned_row(row) for row in self._store.read("owned_items", {**given, "state": state})]

    def owned_planned(
        self,
        owner: str | None,
        task: str,
        *,
        state: str | None = None,
        is_again: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        most: int = 50,
    ) -> list[OwnedRow]:
        """A page of a task's items that are planned from `since` to before `until`, newest first.

        `is_again`: those that wait to be tried again, or those that do not.
        """
        filters = {"owner": owner, "task": task, "state": state, "is_again": is_again, "since": since, "until": until}
        given = {**filters, "before": 2**63 - 1 if before is None else before, "most": max(1, min(most, PAGE_MOST))}
        return [_owned_row(row) for row in self._store.read("owned_planned", given)]

    def drift(self, owner: str | None, task: str, since: datetime, step: int) -> list[Drift]:
        """How late a task's items were done since then, in steps of so many seconds; of its newest rows only."""
        given = {"owner": owner, "task": task, "since": since, "step": step, "rows": LOOKED_AT}
        return [Drift(int(at), mean, most, items) for at, mean, most, items in self._store.read("drift", given)]

    def owned_item(self, item_id: int, owner: str | None, connection: Any = None) -> OwnedRow | None:
        """This item, if it belongs to this owner; None means any owner."""
        rows = self._store.read("owned_item", {"id": item_id, "owner": owner}, connection)
        return _owned_row(rows[0]) if rows else None

    def owned_rows(self, ids: Sequence[int], owner: str | None) -> list[OwnedRow]:
        """Those of these items that belong to this owner, in no order; None means any owner."""
        given = {"ids": codec.encode(list(ids)).decode(), "owner": owner}
        return [_owned_row(row) for row in self._store.read("owned_rows", given)]

    def ids_between(self, task: str, low: str, high: str) -> list[int]:
        """The ids of a task's items with a version whose keys are from `low` to before `high`, newest first."""
        return [item_id for (item_id,) in self._store.read("versioned", {"task": task, "low": low, "high": high})]

    def groups(self, owner: str | None, most: int = 100, after: tuple[int, str] | None = None) -> list[Group]:
        """Groups of failures in review, the largest first; `after` is the size and id of the last one before."""
        size, last = after or (None, None)
        rows = self._store.read("groups", {"owner": owner, "most": most, "size": size, "after": last})
        return [_group(row) for row in rows]

    def group(self, group_id: str, owner: str | None) -> Group | None:
        rows = self._store.read("group", {"error_group": group_id, "owner": owner})
        return _group(rows[0]) if rows else None

    def review_notes(self, group_id: str, owner: str | None, most: int = 100) -> list[ReviewNote]:
        rows = self._store.read("review_notes", {"error_group": group_id, "owner": owner, "most": most})
        return [_review_note(row) for row in rows]

    def late(self, grace: float = 300.0, most: int = 100) -> list[LateItem]:
        """Done items that were started later than this after their time, latest first."""
        rows = self._store.read("late", {"grace": grace, "most": most})
        return [_late(row) for row in rows]

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[StuckItem]:
        """Items that are not done this long after their time, oldest first."""
        rows = self._store.read("stuck", {"grace": grace, "most": most, "now": self._clock.now()})
        return [_stuck(row) for row in rows]

    def alerts(self) -> list[Alert]:
        """The alerts that are not over."""
        return [_alert(row) for row in self._store.read("alerts", {})]

    def limits(self, after: str = "", most: int = ALL) -> list[LimitUse]:
        """A page of limits, by name."""
        return [_limit(row) for row in self._store.read("all_meters", {"after": after, "most": most})]

    def limit(self, name: str) -> LimitUse | None:
        """The limit of this name; None when nothing has been counted under it, nor has a person set it."""
        rows = self._store.read("one_meter", {"name": name})
        return _limit(rows[0]) if rows else None

    def workers(self, after: str = "", most: int = ALL) -> list[WorkerLife]:
        """Workers that gave a sign of life within a day and did not sign off, by name."""
        rows = self._store.read("workers", {"after": after, "most": most})
        return [_worker(row) for row in rows]

    def seen_at(self) -> datetime | None:
        """The last sign of life of any worker."""
        seen_at = self._store.read("last_seen", {})[0][0]
        return None if seen_at is None else _utc(seen_at)

    def silence(self) -> float | None:
        """Seconds since the last sign of life of any worker; None when there never was one."""
        seen_at = self.seen_at()
        return None if seen_at is None else max((self._clock.now() - seen_at).total_seconds(), 0.0)

    def signs(self) -> Signs:
        alerts = [row[0] for row in self._store.read("alerts", {})]
        return Signs(self.seen_at(), alerts, self._store.read("broken", {})[0][0])
