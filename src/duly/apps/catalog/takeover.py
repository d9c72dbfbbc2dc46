"""Takes over products of another system: writes them with their state there, and says of each row what it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from duly import Duly
from duly.apps.catalog.imports import Import, Imported, ImportedRow
from duly.core.errors import InputError
from duly.core.model import Schedule
from duly.core.policy.recur import Slots, parse, zone_named
from duly.core.policy.retry import windows_of
from duly.tasks.task import Task
from duly.verbs import Principal
from duly.verbs.schedules import ScheduleRow


def take_over(
    app: Duly,
    task: Task[..., Any],
    slots: int,
    found: Sequence[Import],
    row_of: Callable[[str, str], ScheduleRow],
    *,
    is_owned: bool,
    who: Principal,
    connection: Any,
) -> Imported:
    """Write the products that are new, all or none; those that exist stay as they are.

    With `is_owned`, products belong to their users.
    """
    verbs, now = app.internals.verbs, app.clock.now()
    first: dict[str, int] = {}  # the row that names each product first
    alike: dict[str | None, list[tuple[ScheduleRow, Import]]] = {}
    rows = [row_of(each.user_id, each.sku) for each in found]
    for number, (row, each) in enumerate(zip(rows, found, strict=True), 1):
        if first.setdefault(row["key"], number) == number:
            alike.setdefault(each.user_id if is_owned else None, []).append((row, each))
    made: dict[str, tuple[Schedule | None, bool]] = {}
    with verbs.context.joining(connection) as joined:
        for of, some in alike.items():
            pasts = [(row, each.past()) for row, each in some]
            written = verbs.takeover.schedules(task, Slots(slots), pasts, of, connection=joined)
            made.update(zip((row["key"] for row, _ in some), written, strict=True))
            if fresh := sum(is_new for _, is_new in written):
                verbs.audit.note(who, "schedules.imported", f"task:{task.name}", {"count": fresh}, joined)
    told = []
    for number, (row, each) in enumerate(zip(rows, found, strict=True), 1):
        schedule, is_new = made[row["key"]]
        if first[row["key"]] != number:
            result, text = "repeated", f"repeats row {first[row['key']]}: left out"
        elif not is_new or schedule is None:
            result, text = "known", "is in the catalog: unchanged"
        else:
            result, text = "new", _standing(each, schedule, task, now)
        told.append(ImportedRow(number, each.user_id, each.sku, result, text))  # type: ignore[arg-type]
    return Imported(sum(each.result == "new" for each in told), told)


def _standing(row: Import, schedule: Schedule, task: Task[..., Any], now: datetime) -> str:
    """What a new product came as, and what comes next."""
    failures = f"{schedule.failures} failure{'s' if schedule.failures != 1 else ''} in a row"
    if schedule.broken_at is not None:
        return f"deactivated, {failures}: only a person can reactivate it"
    if row.has_failed:
        windows = windows_of(task.rules.retry)
        following = f"; the next one opens {_time(windows.around(now)[1])}" if windows else ""
        return f"failed, {failures}: waits for a retry window{following}"
    status = "pending (it was syncing)" if row.sync_status == "syncing" else row.sync_status or "pending"
    counted = f", {failures}" if schedule.failures else ""
    return f"{status}{counted}: next sync {_time(_next_sync(row, schedule, now))}{_news(row)}"


def _next_sync(row: Import, schedule: Schedule, now: datetime) -> datetime:
    """The next time of its slot; a product that was synced today already is left alone for the day."""
    rule, zone = parse(schedule.rule), zone_named(schedule.zone)
    at = rule.next(now, zone)
    assert at is not None
    if row.last_successful_sync == at.astimezone(UTC).date():
        at = rule.next(at, zone) or at + timedelta(days=1)
    return at


def _news(row: Import) -> str:
    """Whether its first sync counts as a change although it was synced before."""
    was_synced = row.last_successful_sync is not None or row.last_boeing_hash is not None
    if not was_synced or row.is_known_by_values:
        return ""
    return "; that counts as a change, because last_price or last_quantity is missing"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def in_portions(
    rows: Sequence[Mapping[str, Any]], most: int, send: Callable[[Sequence[Mapping[str, Any]]], Imported]
) -> Iterator[Imported]:
    """The answers to portions of many rows, in which rows have the numbers that they have in all of them."""
    for first in range(0, len(rows), most):
        try:
            answer = send(rows[first : first + most])
        except InputError as error:
            raise InputError(shifted(error.field, first), shifted(error.problem, first)) from None
        yield Imported(answer.products, [replace(each, row=each.row + first) for each in answer.rows])


def shifted(text: str, by: int) -> str:
    """An error about rows of a portion, with the places that these rows have in all of them."""
    return re.sub(r"rows\[(\d+)\]", lambda place: f"rows[{int(place[1]) + by}]", text)
