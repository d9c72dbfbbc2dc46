"""What happened in simulated days: where each planned item ended, how late it was, and how long backlogs took.

planned = done + late + in review + deactivated + skipped + still failing + waiting
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Struct

from duly.core.policy.recur import Slot, between, parse, zone_named
from duly.core.policy.retry import windows_of
from duly.core.results import Interruption
from duly.core.shown import Row
from duly.core.wire import Doc

if TYPE_CHECKING:
    from duly.virtual.simulation import Interval, Simulation

MINUTE = timedelta(minutes=1)
INSTANT = timedelta(microseconds=1)
MOST = 100_000  # how many times of one slot or rule are counted
UTC_ZONE = zone_named("UTC")
OWN = "duly."  # how the names of duly's own tasks begin

End: TypeAlias = Literal["done", "late", "in_review", "deactivated", "skipped", "still_failing", "waiting"]


class Hour(Struct, frozen=True):
    """How many items a slot made in an hour, or all tasks together, and how many members it had."""

    at: datetime
    slot: int | None
    members: int | None
    dispatched: int


class Window(Struct, frozen=True):
    at: datetime
    cap: int
    waiting: int  # when items were first claimed in it
    dispatched: int


class Calls(Struct, frozen=True):
    total: int
    max_per_minute: int  # in any sliding minute


class Lateness(Struct, frozen=True):
    """How long after their planned time items were done: the start of the try that succeeded."""

    p50_s: float
    p99_s: float
    max_s: float


class SimulationResult(Struct, frozen=True, kw_only=True):
    """The result of a simulation."""

    hours: list[Hour]
    windows: list[Window]
    calls: Calls
    attempts: int
    planned: Annotated[int, Doc("The sum of the seven numbers below.")]
    done: Annotated[int, Doc("In time.")]
    late: Annotated[int, Doc("Done later than `late_after_s` after their time.")]
    in_review: int
    deactivated: Annotated[int, Doc("Items whose failure deactivated their schedule.")]
    skipped: Annotated[int, Doc("Not made up for after a downtime, not needed, or replaced by a newer one.")]
    still_failing: Annotated[int, Doc("They wait for a retry at the end.")]
    waiting: Annotated[int, Doc("They wait for their first try at the end, or run.")]
    replaced: Annotated[int, Doc("Of the skipped: failed until the next one was due.")]
    recovered: Annotated[int, Doc("Of the done: after failures.")]
    crashes: int
    late_after_s: float
    lateness: Lateness
    interruptions: list[Interruption]


def tell(world: Simulation, start: datetime, end: datetime, late_after: float) -> SimulationResult:
    """What happened to everything that was planned before `end`."""
    ledger = world.ledger
    rows = [row for row in world.app.read.pages() if row.planned_at < end and not row.task.startswith(OWN)]
    ends: Counter[End] = Counter(_end_of(row, ledger.broke, late_after) for row in rows)
    return SimulationResult(
        hours=_hours(world, rows, start, end),
        windows=_windows(world, start, end),
        calls=Calls(len(ledger.calls), busiest_minute(ledger.calls)),
        attempts=len(ledger.attempts),
        planned=len(rows) + ledger.skipped,
        done=ends["done"],
        late=ends["late"],
        in_review=ends["in_review"],
        deactivated=ends["deactivated"],
        skipped=ends["skipped"] + ledger.skipped,
        still_failing=ends["still_failing"],
        waiting=ends["waiting"],
        replaced=sum(row.state == "cancelled" and row.failures > 0 for row in rows),
        recovered=sum(_is_done(row) and row.failures > 0 for row in rows),
        crashes=ledger.crashes,
        late_after_s=late_after,
        lateness=_lateness([_lateness_of(row) for row in rows if _is_done(row)]),
        interruptions=[
            _interruption(what, each, rows, ledger.failures) for what, each in world.interruptions(start, end)
        ],
    )


def _end_of(row: Row, broke: set[int], late_after: float) -> End:
    match row.state:
        case "done" if _is_done(row):
            return "late" if _lateness_of(row) > late_after else "done"
        case "done" | "cancelled":
            return "skipped"
        case "failed":
            return "deactivated" if row.id in broke else "in_review"
    return "still_failing" if row.failures else "waiting"


def _is_done(row: Row) -> bool:
    return row.state == "done" and row.outcome not in ("skipped", "expired")


def _lateness_of(row: Row) -> float:
    at = row.started_at or row.finished_at or row.planned_at
    return max((at - row.planned_at).total_seconds(), 0.0)


def _lateness(lateness: Sequence[float]) -> Lateness:
    ordered = sorted(lateness) or [0.0]
    return Lateness(*(round(ordered[int((len(ordered) - 1) * share)], 3) for share in (0.5, 0.99, 1.0)))


def _interruption(
    what: Literal["down", "outage"], gone: Interval, rows: Iterable[Row], failures: Mapping[int, Sequence[datetime]]
) -> Interruption:
    """An item that had failed before waits for its own retry, and is not late because of this."""
    in_review = 0
    tried: list[datetime | None] = []
    for row in rows:
        ended, failed = row.finished_at, failures.get(row.id, ())
        is_skipped = row.state == "cancelled" or (row.state == "done" and not _is_done(row))
        if row.planned_at >= gone.end or is_skipped or any(at < gone.start for at in failed):
            continue
        if ended is not None and ended < gone.end:
            in_review += row.state == "failed" and ended in gone
            continue
        tries = [at for at in (*failed, row.started_at) if at is not None and at >= gone.end]
        if tries or ended is None:  # not one that ran when it began, and just ended later
            tried.append(min(tries, default=None))
    last = [at for at in tried if at is not None]
    seconds = (max(last, default=gone.end) - gone.end).total_seconds() if len(last) == len(tried) else None
    return Interruption(what, gone.start, gone.end, len(tried), seconds, in_review)


def _hours(world: Simulation, rows: Iterable[Row], start: datetime, end: datetime) -> list[Hour]:
    made = world.ledger.made
    if slots := _slots(world):
        times = {
            (at, slot.slot) for slot in slots for at in between(slot, start - INSTANT, end - INSTANT, UTC_ZONE, MOST)
        }
        return [Hour(at, slot, world.ledger.members.get((at, slot), 0), made[at, slot]) for at, slot in sorted(times)]
    hours = Counter(row.planned_at.replace(minute=0, second=0, microsecond=0) for row in rows)
    return [Hour(at, None, None, count) for at, count in sorted(hours.items()) if start <= at < end]


def _slots(world: Simulation) -> list[Slot]:
    """Every slot of the rings that there are."""
    schedules = world.app.schedules
    rings = {each.ring for each in schedules.slots()}
    rules = [parse(each.rule) for ring in rings for each in schedules.page(ring=ring, most=1)]
    return [Slot(n, rule.of, rule.period) for rule in rules if isinstance(rule, Slot) for n in range(rule.of)]


def _windows(world: Simulation, start: datetime, end: datetime) -> list[Window]:
    found = {}
    for task in world.app.tasks.values():
        windows = windows_of(task.rules.retry)
        if windows is None:
            continue
        at = start - INSTANT
        while (at := windows.around(at)[1]) < end:
            dispatched = len(world.ledger.retried.get(at, ()))
            found[at] = Window(at, windows.cap, world.ledger.waiting.get(at, 0), dispatched)
    return [found[at] for at in sorted(found)]


def busiest_minute(times: Sequence[datetime]) -> int:
    """The most calls in any sliding minute."""
    recent: deque[datetime] = deque()
    most = 0
    for time in sorted(times):
        recent.append(time)
        while recent[0] <= time - MINUTE:
            recent.popleft()
        most = max(most, len(recent))
    return most
