"""Schedules in a SQLite file: creating them, and changing them in one transaction with the items that they make."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from duly.core.model import Item, NewSchedule, Revision, Schedule
from duly.store.members import SlotAllocator, one_at_a_time, only_moves_on
from duly.store.revising import Revising
from duly.store.sqlite.settling import SqliteSettling
from duly.store.sqlite.values import (
    item_of,
    maybe_int,
    new_schedule_parameters,
    schedule_of,
    schedule_parameters,
    to_int,
    to_json,
)


class SqliteSchedules(SqliteSettling, Revising[sqlite3.Connection]):
    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: sqlite3.Connection | None = None,
    ) -> list[tuple[int, bool]]:
        rings: dict[str, SlotAllocator] = {}
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
                        rings[each.ring] = SlotAllocator(each.slots or 1, dict(taken))
                    slot = rings[each.ring].take()
                    rule, next_at = seat(each, slot)
                    each = replace(each, rule=rule, next_at=next_at, slot=slot)
                row = writer.execute(self._sql["enroll"], new_schedule_parameters(each)).fetchone()
                answers.append((row[0], True))
        return answers

    def _found(self, which: Sequence[int], writer: sqlite3.Connection) -> tuple[list[Schedule], Iterator[Item]]:
        ids = {"ids": to_json(list(which))}
        schedules = [*map(schedule_of, writer.execute(self._sql["some_schedules"], ids))]
        rows = writer.execute(self._sql["waiting_of"], ids).fetchall()
        single = {"ids": to_json(one_at_a_time(schedules))}
        rows += writer.execute(self._sql["running_of"], single).fetchall()
        return schedules, map(item_of, rows)

    def _last_items(self, schedules: Sequence[Schedule], writer: sqlite3.Connection) -> Iterator[Item]:
        last = [each.last_item for each in schedules if each.last_item is not None]
        return map(item_of, writer.execute(self._sql["fetch"], {"ids": to_json(last)}).fetchall())

    def _is_any_due(self, now: datetime, without: Sequence[int]) -> bool:
        """Whether any schedule is due: a read, which keeps no writer waiting."""
        next_at = self._read("next_schedule", {"without": to_json(list(without))})[0][0]
        return next_at is not None and next_at <= to_int(now)

    def _due_since(
        self, since: datetime, now: datetime, seen: Sequence[int], most: int, writer: sqlite3.Connection
    ) -> list[Schedule]:
        parameters = {"since": to_int(since), "now": to_int(now), "seen": to_json(list(seen)), "most": most}
        return [*map(schedule_of, writer.execute(self._sql["due_schedules"], parameters).fetchall())]

    def _apply_revisions(
        self, before: Mapping[int, Schedule], revisions: Sequence[Revision], now: datetime, writer: sqlite3.Connection
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
