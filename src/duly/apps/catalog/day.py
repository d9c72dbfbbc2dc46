"""The day of a catalog: the progress of its slots and retry windows, and the calls that were used."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from msgspec import Struct

from duly import Duly
from duly.apps.catalog.growth import MINUTES
from duly.apps.catalog.settings import DAY, CatalogTuning
from duly.core.wire import Doc
from duly.tasks.task import Task
from duly.verbs.timetable import StandingCount, TryStarts

LIMIT = "boeing"


class SlotDay(Struct, frozen=True, kw_only=True):
    """A slot today: its active products, and how those stand whose sync of today was begun or is due."""

    slot: int
    hour: str  # when it begins, in UTC
    planned: int
    done: int
    failed: int
    running: int
    waiting: int


class WindowDay(Struct, frozen=True, kw_only=True):
    """A retry window today."""

    at: datetime
    cap: Annotated[int, Doc("How many products it takes.")]
    used: Annotated[int, Doc("Products that were tried in it.")]
    waiting: Annotated[int, Doc("Products that wait for it.")]


class Budget(Struct, frozen=True, kw_only=True):
    """The calls that the API allows, and those that were made today for these products."""

    per_minute: float
    used_today: int
    most_per_day: int
    batch: int


class CauseCount(Struct, frozen=True, kw_only=True):
    """A class of errors, and how many products it deactivated; an empty one where their items are gone."""

    cause: str
    products: int


class StatusCounts(Struct, frozen=True, kw_only=True):
    """How many products stand how; those that were deactivated count there only."""

    pending: int
    syncing: int
    success: int
    failed: int
    deactivated: int


class Day(Struct, frozen=True, kw_only=True):
    zone: str
    day: date
    slots: tuple[SlotDay, ...]
    windows: tuple[WindowDay, ...]
    budget: Budget
    statuses: StatusCounts
    causes: tuple[CauseCount, ...]


def day_of(app: Duly, task: Task[..., Any], settings: CatalogTuning, owner: str | None) -> Day:
    """The day of the products of this owner, or of all; it costs a look at each of them."""
    schedules = app.schedules
    now = app.clock.now().astimezone(UTC)
    today = now.date()
    start = datetime.combine(today, time(), UTC)
    standings = schedules.standings(owner, task.name, start)
    begun = schedules.begun(owner, task.name, start)
    causes = schedules.causes(owner, task.name)
    return Day(
        zone="UTC",
        day=today,
        slots=tuple(_slot(slot, settings.hour_buckets, standings) for slot in range(settings.hour_buckets)),
        windows=_windows(settings, now, start, begun, schedules.retries(owner, task.name)),
        budget=_budget(app, settings, begun),
        statuses=_statuses(standings),
        causes=tuple(CauseCount(cause=each.cause, products=each.members) for each in causes),
    )


def _slot(slot: int, slots: int, standings: list[StandingCount]) -> SlotDay:
    own = [each for each in standings if each.slot == slot]
    today = _members(own, "is_new")
    minutes = slot * MINUTES // slots
    return SlotDay(
        slot=slot,
        hour=f"{minutes // 60:02}:{minutes % 60:02}",
        planned=sum(each.members for each in own if each.is_active),
        done=today["done"],
        failed=today["failing"],
        running=today["running"],
        waiting=today["waiting"],
    )


def _members(standings: list[StandingCount], flag: Literal["is_new", "is_active"]) -> Counter[str]:
    """How many schedules with this flag have each standing."""
    counts: Counter[str] = Counter()
    for each in standings:
        counts[each.standing] += each.members * getattr(each, flag)
    return counts


def _windows(
    settings: CatalogTuning, now: datetime, start: datetime, begun: list[TryStarts], retries: list[tuple[datetime, int]]
) -> tuple[WindowDay, ...]:
    """The windows of the day. What is due already waits for the room that the open one has left, or for the next."""
    opened, cap = settings.windows_of(start), settings.retry_limit
    overdue = sum(items for due_at, items in retries if due_at <= now)
    told = []
    for at, ends in zip(opened, [*opened[1:], start + DAY], strict=True):
        used = sum(each.tries for each in begun if each.is_retry and at <= each.at < ends)
        waiting = sum(items for due_at, items in retries if at <= due_at < ends and due_at > now)
        if ends > now:
            taken = overdue if at > now else min(overdue, max(cap - used, 0))
            overdue -= taken
            waiting += taken
        told.append(WindowDay(at=at, cap=cap, used=used, waiting=waiting))
    return tuple(told)


def _budget(app: Duly, settings: CatalogTuning, begun: list[TryStarts]) -> Budget:
    """A person may have changed the limit. What began at the same moment is taken for as few calls as possible."""
    most, per = settings.calls_per_minute, 60.0
    limit = app.read.limit(LIMIT)
    if limit is not None and limit.most is not None:
        most, per = limit.most, limit.per_seconds or per
    return Budget(
        per_minute=most * 60 / per,
        used_today=sum(-(-each.tries // settings.batch_size) for each in begun),
        most_per_day=int(most * DAY.total_seconds() / per),
        batch=settings.batch_size,
    )


def _statuses(standings: list[StandingCount]) -> StatusCounts:
    active = _members(standings, "is_active")
    return StatusCounts(
        pending=active["waiting"],
        syncing=active["running"],
        success=active["done"],
        failed=active["failing"],
        deactivated=sum(each.members for each in standings if not each.is_active),
    )
