"""Reads what people look at: pages of items, one item with its tries, depths of queues, alerts, workers and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duly.core import codec, shown
from duly.core.aforms import in_thread, streamed
from duly.core.clock import Clock
from duly.core.errors import DoesNotExist, InputError
from duly.core.filters import LAST_ID, checked_id, checked_ids, checked_most, is_id
from duly.core.model import State, Tried
from duly.store.claims import are_open
from duly.store.contract import Store
from duly.store.records import ColumnType, Record, reader
from duly.tasks.checks import checked_whole, is_number

S = TypeVar("S", bound=Struct)

PAGE_MOST = 1_000
REPORTED = 10_000  # items in a report about late or stuck ones
LOOKED_AT = 100_000  # rows that a look over the newest ones reads at most
NOTES = 100  # lines of the audit log about one item, the newest
ALL = 2**31 - 1  # no bound, for lists that are short


def ids_text(ids: Iterable[int], field: str = "ids") -> str:
    """These ids as JSON, without numbers that no row can have."""
    return codec.text([each for each in checked_ids(ids, field) if is_id(each)])


def utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


# How values of rows are shown: times in UTC, and JSON decoded.
SEEN: dict[ColumnType, Callable[[Any], Any]] = {datetime: utc, object: codec.shown, bool: bool}


@cache
def _reader(struct: type[Struct]) -> Callable[[Iterable[Any]], Any]:
    return reader(Record(struct), SEEN)


def rows_as(struct: type[S], rows: Iterable[Any]) -> list[S]:
    """These rows as this struct, as people see them."""
    read: Callable[[Iterable[Any]], S] = _reader(struct)
    return [read(row) for row in rows]


def _limit(row: tuple[Any, ...]) -> shown.LimitUse:
    name, most, per, hits = row
    return shown.LimitUse(name, most, per, len(hits), utc(hits[-1]) if hits else None)


def _reported(grace: Any, most: Any) -> dict[str, Any]:
    """The grace period and the length of a report, checked."""
    if not is_number(grace):
        raise InputError("grace", f"must be a number of seconds, not negative, got {grace!r:.80}")
    return {"grace": grace, "most": checked_whole("most", most, 1, REPORTED)}


@dataclass(eq=False, repr=False)
class Read:
    _store: Store
    _clock: Clock

    def all(self, struct: type[S], section: str, given: Mapping[str, Any], connection: Any = None) -> list[S]:
        """The rows of a named section of SQL, as this struct."""
        numbers = [given.get(name) for name in ("id", "job_id", "schedule_id")]
        if any(isinstance(each, int) and not is_id(each) for each in numbers):
            return []
        if "most" in given:
            checked_most(given["most"])
        return rows_as(struct, self._store.read(section, given, connection))

    def one(self, struct: type[S], section: str, given: Mapping[str, Any], connection: Any = None) -> S | None:
        """The first of these rows; None when there is none."""
        return next(iter(self.all(struct, section, given, connection)), None)

    def found(self, what: str, struct: type[S], section: str, given: Mapping[str, Any], connection: Any = None) -> S:
        """The first of these rows; when there is none, DoesNotExist names `what` was looked for."""
        row = self.one(struct, section, given, connection)
        if row is None:
            raise DoesNotExist(f"there is no {what}")
        return row

    def page(
        self,
        *,
        owner: str | None = None,
        state: State | None = None,
        task: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        before: int | None = None,
        most: int = 50,
        connection: Any = None,
    ) -> list[shown.Row]:
        """A page of items, newest first; `before` is the last id of the page before. No `owner` means all owners."""
        given = {"owner": owner, "task": task, "queue": queue, "key": key, "before": before or LAST_ID}
        given["most"] = min(checked_most(most), PAGE_MOST)
        if state == "failed":  # review has its own index, which is fast among millions of other items
            return self.all(shown.Row, "failed_page", given, connection)
        return self.all(shown.Row, "page", {**given, "state": state}, connection)

    def pages(self, /, **filters: Any) -> Iterator[shown.Row]:
        """All items that match, newest first, a page at a time."""
        before: int | None = None
        while rows := self.page(**filters, before=before, most=PAGE_MOST):
            yield from rows
            before = rows[-1].id

    def endings(self, ids: Sequence[int]) -> list[shown.Ending]:
        """How those of these items that exist have ended; those that have not, with their state."""
        return self.all(shown.Ending, "endings", {"ids": codec.text(ids)})

    def rows(self, ids: Iterable[int], owner: str | None = None, connection: Any = None) -> list[shown.Row]:
        """The items with these ids, as far as they exist and belong to this owner; None means any owner."""
        return self.all(shown.Row, "rows", {"ids": ids_text(ids), "owner": owner}, connection)

    def row(self, item_id: int, owner: str | None = None, connection: Any = None) -> shown.Row | None:
        """This item, if it exists and belongs to this owner; None means any owner."""
        return next(iter(self.rows([item_id], owner, connection)), None)

    def item(self, item_id: int) -> shown.Row:
        return self.story(item_id).item

    def story(self, item_id: int) -> shown.Story:
        rows = self._store.read("show", {"id": checked_id(item_id, "item_id")})
        if not rows:
            raise DoesNotExist(f"there is no item {item_id}")
        *values, lease_until = rows[0]
        row: shown.Row = _reader(shown.Row)(values)
        tries = self.all(Tried, "attempts", {"id": item_id})
        notes = self.all(shown.AuditLine, "audit", {"subject": f"item:{item_id}", "before": None, "most": NOTES})
        # Nothing if the item is pruned at this moment.
        ((trace, schedule_key),) = self._store.read("origin", {"id": item_id}) or [(None, None)]
        return shown.Story(
            row, None if lease_until is None else utc(lease_until), tries, _timeline(row, tries, notes),
            trace.split("-")[1] if trace else None, schedule_key,
        )  # fmt: skip

    def pending(self) -> dict[str, int]:
        """How many rows have not ended, by the type of their job; by its task, if it has no type."""
        return {row[0]: int(row[1]) for row in self._store.read("pending_rows", {})}

    def depths(self) -> list[shown.Depth]:
        """How many items there are, by queue, lane and state."""
        depths = self.all(shown.Depth, "depth", {"now": self._clock.now()})
        open_ones = are_open({depth.queue for depth in depths}, {depth.queue for depth in depths if depth.paused})
        found = (replace(depth, paused=depth.queue not in open_ones) for depth in depths)
        return sorted(found, key=lambda d: (d.queue, d.lane, d.state))

    def queues(self, depths: Sequence[shown.Depth] | None = None) -> list[dict[str, Any]]:
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
    ) -> list[shown.Row]:
        """A page of a task's items that are planned from `since` to before `until`, newest first.

        `is_again`: those that wait to be tried again, or those that do not.
        """
        filters = {"owner": owner, "task": task, "state": state, "is_again": is_again, "since": since, "until": until}
        given = {**filters, "before": before or LAST_ID, "most": min(checked_most(most), PAGE_MOST)}
        return self.all(shown.Row, "owned_planned", given)

    def drift(self, owner: str | None, task: str, since: datetime, step: int) -> list[shown.Drift]:
        """How late a task's items were done since then, in steps of this many seconds; only its newest rows count."""
        given = {"owner": owner, "task": task, "since": since, "step": step, "rows": LOOKED_AT}
        return [shown.Drift(int(at), mean, most, items) for at, mean, most, items in self._store.read("drift", given)]

    def ids_between(self, task: str, low: str, high: str) -> list[int]:
        """The ids of a task's items with a version whose keys are from `low` to before `high`, newest first."""
        return [item_id for (item_id,) in self._store.read("versioned", {"task": task, "low": low, "high": high})]

    def late(self, grace: float = 300.0, most: int = 100) -> list[shown.LateItem]:
        """Done items that started more than this many seconds after their time, latest first."""
        return self.all(shown.LateItem, "late", _reported(grace, most))

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[shown.StuckItem]:
        """Items that are not done this many seconds after their time, oldest first."""
        return self.all(shown.StuckItem, "stuck", {**_reported(grace, most), "now": self._clock.now()})

    def alerts(self) -> list[shown.Alert]:
        """The alerts that are not over."""
        return self.all(shown.Alert, "alerts", {})

    def limits(self, after: str = "", most: int = ALL) -> list[shown.LimitUse]:
        """A page of limits, by name."""
        return [_limit(row) for row in self._store.read("all_meters", {"after": after, "most": most})]

    def limit(self, name: str) -> shown.LimitUse | None:
        """The limit of this name; None if it was neither used nor set."""
        rows = self._store.read("one_meter", {"name": name})
        return _limit(rows[0]) if rows else None

    def workers(self, after: str = "", most: int = ALL) -> list[shown.WorkerLife]:
        """Workers that reported within a day and did not sign off, by name."""
        return self.all(shown.WorkerLife, "workers", {"after": after, "most": most})

    def seen_at(self) -> datetime | None:
        """The last report of any worker."""
        seen_at = self._store.read("last_seen", {})[0][0]
        return None if seen_at is None else utc(seen_at)

    def silence(self) -> float | None:
        """Seconds since the last report of any worker; None when there never was one."""
        seen_at = self.seen_at()
        return None if seen_at is None else max((self._clock.now() - seen_at).total_seconds(), 0.0)

    aitem = in_thread(item)
    astory = in_thread(story)
    apage = in_thread(page)
    apages = streamed(pages)
    arows = in_thread(rows)
    arow = in_thread(row)
    apending = in_thread(pending)
    adepths = in_thread(depths)
    aqueues = in_thread(queues)
    alate = in_thread(late)
    astuck = in_thread(stuck)
    aalerts = in_thread(alerts)
    alimits = in_thread(limits)
    alimit = in_thread(limit)
    aworkers = in_thread(workers)
    asilence = in_thread(silence)

    def signs(self) -> shown.Signs:
        alerts = [row[0] for row in self._store.read("alerts", {})]
        return shown.Signs(self.seen_at(), alerts, self._store.read("broken", {})[0][0])


def _timeline(item: shown.Row, tries: Sequence[Tried], notes: Sequence[shown.AuditLine]) -> list[shown.Event]:
    """What happened to this item, oldest first. `notes` are the lines of the audit log about it."""
    puts = [note for note in notes if note.action in ("item.put", "item.again")]
    acts = [note for note in notes if note.action not in ("item.put", "item.again")]
    events = [shown.Event(item.created_at, "put", f"put by {puts[0].actor}" if puts else "put")]
    for each in tries:
        events += _tried(each.number, each.worker, each.started_at, each.ended_at, each.outcome, each.error)
    events += map(_noted, acts)
    is_ended_by_hand = bool({note.action for note in acts} & {"item.cancelled", "item.discarded"})
    if item.state == "running":
        events += _tried(item.attempt, item.claimed_by, item.started_at)
    elif item.state == "waiting":
        if item.cause is not None and item.started_at is not None:
            events.append(_given_back(item, item.started_at, item.cause))
        events.append(shown.Event(item.due_at, "due", "due again" if tries else "due"))
    elif item.state == "failed" and item.finished_at is not None:
        events.append(shown.Event(item.finished_at, "given_up", "given up: in review"))
    elif item.state == "cancelled" and item.finished_at is not None and not is_ended_by_hand:
        text = f"cancelled {item.last_error or ''}".rstrip()
        events.append(shown.Event(item.finished_at, "cancelled", text))
    elif item.state == "done" and item.finished_at is not None:
        outcome = item.outcome or "done"
        error = item.last_error if outcome != "done" else None
        events += _tried(item.attempt, item.claimed_by, item.started_at, item.finished_at, outcome, error)
    return sorted(events, key=lambda event: event.at)


def _tried(
    number: int,
    worker: str | None,
    started_at: datetime | None,
    ended_at: datetime | None = None,
    outcome: str = "",
    error: str | None = None,
) -> Iterator[shown.Event]:
    """The start of a try, and its end if it has ended."""
    on = f" on {worker}" if worker else ""
    if started_at is not None:
        yield shown.Event(started_at, "claimed", f"try {number} started{on}", number, worker)
    if ended_at is not None:
        first, _, rest = (error or "").partition("\n")
        text = f"try {number} {outcome}{on}"
        yield shown.Event(ended_at, outcome, text, number, worker, first or None, rest or None)


def _given_back(item: shown.Row, at: datetime, cause: str) -> shown.Event:
    """The last try, which was given back without being counted."""
    on = f" on {item.claimed_by}" if item.claimed_by else ""
    excused = f", with {item.excuses} of {item.excuses + item.failures} failures not counted" if item.excuses else ""
    return shown.Event(
        at, item.outcome or "released", f"try given back{on}{excused}", worker=item.claimed_by, error=cause
    )


def _noted(note: shown.AuditLine) -> shown.Event:
    kind = note.action.partition(".")[2]
    reason = note.details.get("reason") if isinstance(note.details, dict) else None
    return shown.Event(note.at, kind, f"{kind} {reason} (by {note.actor})" if reason else f"{kind} by {note.actor}")
