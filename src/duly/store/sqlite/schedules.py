"""Schedules in a SQLite file: creating them, and changing them in one transaction with the items that they make."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from duly.core.clock import EPOCH
from duly.core.model import NewSchedule, Revision, Schedule
from duly.store.contract import FRESH, Plan
from duly.store.members import Seats, live_by_schedule, one_at_a_time, only_moves_on
from duly.store.sqlite.settling import Settling
from duly.store.sqlite.values import (
    item_of,
    maybe_int,
    new_schedule_parameters,
    schedule_of,
    schedule_parameters,
    to_int,
    to_json,
)


class Schedules(Settling):
    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: sqlite3.Connection | None = None,
    ) -> list[tuple[int, bool]]:
        rings: dict[str, Seats] = {}
        answers: list[tuple[int, bool]] = []
        with self._joining(connection) as writer:
            for each in new:
                known = writer.execute(self._sql["taken"], {"task": each.task, "key": each.key}).fetchone()
                if known:
                    answers.append((known[0], False))
                    continue
                if each.ring is not None:
                    if each.ring not in rings:
                        taken = writer.execute(self._sql["seats"], {"ring": each.ring}).fetchall()
                        rings[each.ring] = Seats(each.slots or 1, dict(taken))
                    slot = rings[each.ring].take()
                    rule, next_at = seat(each, slot)
                    each = replace(each, rule=rule, next_at=next_at, slot=slot)
                row = writer.execute(self._sql["enroll"], new_schedule_parameters(each)).fetchone()
                answers.append((row[0], True))
        return answers

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: sqlite3.Connection | None = None,
        without: Sequence[int] = (),
    ) -> int:
        if which is None and not self._is_any_due(now, without):
            return 0
        with self._joining(connection) as writer:
            if which is None:
                schedules = self._due_schedules(writer, now, most, without)
                last = [each.last_item for each in schedules if each.last_item is not None]
                rows = writer.execute(self._sql["fetch"], {"ids": to_json(last)}).fetchall()
            else:
                ids = {"ids": to_json(list(which))}
                schedules = [*map(schedule_of, writer.execute(self._sql["some_schedules"], ids))]
                rows = writer.execute(self._sql["waiting_of"], ids).fetchall()
                single = {"ids": to_json(one_at_a_time(schedules))}
                rows += writer.execute(self._sql["running_of"], single).fetchall()
            if not schedules:
                return 0
            revisions = plan(schedules, live_by_schedule(map(item_of, rows)))
            self._apply_revisions(writer, {each.id: each for each in schedules}, revisions, now)
        return len(schedules)

    def _is_any_due(self, now: datetime, without: Sequence[int]) -> bool:
        """Whether any schedule is due: a read, which keeps no writer waiting."""
        next_at = self._read("next_schedule", {"without": to_json(list(without))})[0][0]
        return next_at is not None and next_at <= to_int(now)

    def _due_schedules(
        self, writer: sqlite3.Connection, now: datetime, most: int, without: Sequence[int]
    ) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        found: list[Schedule] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            parameters = {
                "since": to_int(since), "now": to_int(now), "seen": to_json([*without, *(each.id for each in found)]),
                "most": part - len(found),
            }  # fmt: skip
            found += map(schedule_of, writer.execute(self._sql["due_schedules"], parameters).fetchall())
        return found

    def _apply_revisions(
        self, writer: sqlite3.Connection, before: dict[int, Schedule], revisions: Sequence[Revision], now: datetime
    ) -> None:
        for revision in revisions:
            schedule = revision.schedule
            if revision.is_removed:
                writer.execute(self._sql["remove_schedules"], {"ids": to_json([schedule.id])})
                continue
            if not only_moves_on(before[schedule.id], schedule):
                writer.execute(self._sql["revise"], schedule_parameters(schedule))
        made: dict[int, int] = {}
        occurrences = [(at, revision.schedule.id) for revision in revisions for at in revision.occurrences]
        for at, schedule_id in sorted(occurrences):
            for (item_id,) in writer.execute(self._sql["occur"], {"id": schedule_id, "at": to_int(at)}).fetchall():
                made[schedule_id] = item_id
        for revision in revisions:
            schedule = revision.schedule
            parameters = {
                "id": schedule.id, "next_at": maybe_int(schedule.next_at), "last_at": maybe_int(schedule.last_at),
                "skipped": schedule.skipped, "last_item": made.get(schedule.id),
            }  # fmt: skip
            writer.execute(self._sql["move_on"], parameters)
        if changes := [change for revision in revisions for change in revision.changes]:
            self._settle(writer, changes, ())
        self._note(writer, [(now, note) for revision in revisions for note in revision.notes])
