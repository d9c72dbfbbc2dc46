"""Schedules that another system had until now go on here from where it left them.

What it knew is written with the schedule. Where its last try failed, an item stands for that try: it waits for the
next try by the retry policy of its task, or is in review if the schedule was deactivated by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.core.decide import Rules, decide
from duly.core.model import Failed, Item, NewSchedule, Revision, Schedule
from duly.tasks.task import Task
from duly.verbs.context import VerbGroup
from duly.verbs.schedules import ScheduleRow, planned
from duly.verbs.timetable import PORTION


class Past(Struct, frozen=True, kw_only=True):
    """What another system knew of a schedule."""

    slot: int | None = None  # None: it gets the emptiest one
    fingerprint: str | None = None
    keep: bytes | None = None  # as JSON text
    failures: int = 0  # in a row
    failed: Failed | None = None  # how its last try ended, if that failed
    tried_at: datetime | None = None  # when that was
    last_error: str | None = None  # of any try before
    last_success_at: datetime | None = None
    is_active: bool = True


class TakeOver(VerbGroup):
    def schedules(
        self,
        task: Task[..., Any],
        rule: Any,
        rows: Sequence[tuple[ScheduleRow, Past]],
        for_owner: str | None = None,
        *,
        connection: Any = None,
    ) -> list[tuple[Schedule | None, bool]]:
        """Create these schedules with their past; those that exist stay as they are.

        Returns each schedule as it is now, and whether it is new; None for a known one that was just removed. There is
        no line in the audit log for each, but for those that a failure deactivated: the caller writes one about all.
        """
        now = self._context.now()
        verbs = self._peers.schedules
        with self._context.joining(connection) as joined:
            made: list[tuple[int, bool]] = []
            for first in range(0, len(rows), PORTION):
                news = [
                    replace(_with_past(planned(verbs.of_row(task, rule, row), now), past, now), owner=for_owner)
                    for row, past in rows[first : first + PORTION]
                ]
                made += verbs.enroll(news, joined)
            failed = {
                schedule_id: past
                for (schedule_id, is_new), (_, past) in zip(made, rows, strict=True)
                if is_new and past.failed is not None
            }
            # In the order of their failures: those that failed first are tried first.
            order = sorted(failed, key=lambda schedule_id: _tried_at(failed[schedule_id], now))
            for first in range(0, len(order), PORTION):
                portion = order[first : first + PORTION]
                for act in (_occurred, partial(_failed, task.rules)):
                    plan = partial(_revisions, act, failed, now)
                    self._store.revise(portion, now, len(portion), plan, joined)
            ids = [schedule_id for schedule_id, _ in made]
            found = {
                each.id: each
                for first in range(0, len(ids), PORTION)
                for each in verbs.some(ids[first : first + PORTION], joined)
            }
        return [(found.get(schedule_id), is_new) for schedule_id, is_new in made]


def _with_past(new: NewSchedule, past: Past, now: datetime) -> NewSchedule:
    # A failure counts when its item is settled, which may also deactivate the schedule.
    is_broken = not past.is_active and past.failed is None
    return replace(
        new,
        slot=past.slot,
        fingerprint=past.fingerprint,
        keep=past.keep,
        failures=past.failures if past.failed is None else max(past.failures - 1, 0),
        last_error=past.last_error,
        last_success_at=past.last_success_at,
        broken_at=now if is_broken else None,
        next_at=None if is_broken else new.next_at,
    )


def _tried_at(past: Past, now: datetime) -> datetime:
    return min(past.tried_at or now, now).astimezone(UTC)


def _revisions(
    act: Any, pasts: Mapping[int, Past], now: datetime, schedules: Sequence[Schedule], live: Mapping[int, list[Item]]
) -> list[Revision]:
    return [act(each, live.get(each.id, []), pasts[each.id], now) for each in schedules]


def _occurred(schedule: Schedule, _: Sequence[Item], past: Past, now: datetime) -> Revision:
    """The item of its last try."""
    at = _tried_at(past, now)
    return Revision(replace(schedule, last_at=at), occurrences=(at,))


def _failed(rules: Rules, schedule: Schedule, live: Sequence[Item], past: Past, now: datetime) -> Revision:
    """The failure of that try, by the rules of its task; only its former system says whether it deactivates."""
    assert past.failed is not None
    (item,) = live
    its_rules = replace(rules, breaker=None if past.is_active else 1)
    change = decide(replace(item, state="running", attempt=1), past.failed, now, its_rules)
    assert change.tried is not None
    tried = replace(change.tried, ended_at=_tried_at(past, now))
    return Revision(schedule, changes=(replace(change, was="waiting", tried=tried),))
