"""Schedules in PostgreSQL: creating them, and changing them in one transaction with the items that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter

from msgspec.structs import replace

from duly.core.model import Item, NewSchedule, Revision, Schedule
from duly.store.members import SlotAllocator, one_at_a_time, only_moves_on
from duly.store.postgres.arrays import arrays, ints, maybe_ints
from duly.store.postgres.connections import Connection
from duly.store.postgres.settling import PostgresSettling
from duly.store.records import SCHEDULE, writer
from duly.store.revising import Revising

_ring = attrgetter("ring")
_schedule = writer(SCHEDULE, {bytes: bytes.decode})
_new_schedules = arrays("new_schedule")


class PostgresSchedules(PostgresSettling, Revising[Connection]):
    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: Connection | None = None,
    ) -> list[tuple[int, bool]]:
        with self._joining(connection) as connection:
            keys = {"tasks": [each.task for each in new], "keys": [each.key for each in new]}
            known = {(task, key): id for id, task, key in self._run("taken", keys, connection)}
            fresh = {(each.task, each.key): each for each in reversed(new) if (each.task, each.key) not in known}
            # In the same order for everybody: an insert waits for another of the same key, which could be a deadlock.
            seated = self._seat([fresh[name] for name in sorted(fresh)], seat, connection)
            rows = self._run("enroll", _new_schedules(seated), connection)
            made = {(task, key): id for id, task, key in rows}
            known.update(made)
            if len(made) < len(fresh):  # someone else took a key between our look and our insert
                known.update({(task, key): id for id, task, key in self._run("taken", keys, connection)})
        answers = []
        for each in new:
            name = (each.task, each.key)
            answers.append((known[name], made.pop(name, None) is not None))
        return answers

    def _seat(
        self,
        new: list[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: Connection,
    ) -> list[NewSchedule]:
        """These schedules, those of a ring with a slot. Rings are locked in the order of their names."""
        seated = [each for each in new if each.ring is None]
        rings = sorted((each for each in new if each.ring is not None), key=_ring)
        for ring, group in groupby(rings, key=_ring):
            if not self._run("lock_ring", {"ring": ring}, connection):
                self._run("open_ring", {"ring": ring}, connection)
                self._run("lock_ring", {"ring": ring}, connection)
            members = list(group)
            seats = SlotAllocator(members[0].slots or 1, dict(self._run("seats", {"ring": ring}, connection)))
            for each in members:
                slot = seats.take()
                rule, next_at = seat(each, slot)
                seated.append(replace(each, rule=rule, next_at=next_at, slot=slot))
        return seated

    def _found(self, which: Sequence[int], connection: Connection) -> tuple[list[Schedule], list[Item]]:
        schedules = [Schedule(*row) for row in self._run("some_schedules", {"ids": ints(which)}, connection)]
        items = [Item(*row) for row in self._run("waiting_of", {"ids": ints(which)}, connection)]
        single = {"ids": ints(one_at_a_time(schedules))}
        items += [Item(*row) for row in self._run("running_of", single, connection)]
        return schedules, items

    def _last_items(self, schedules: Sequence[Schedule], connection: Connection) -> list[Item]:
        last = [each for each in schedules if each.last_item is not None]
        # Lock items that may be superseded, so that nobody claims them.
        replaced = ints([each.last_item or 0 for each in last if each.overlap == "supersede"])
        self._run("lock_waiting", {"ids": replaced}, connection)
        return [Item(*row) for row in self._run("fetch", {"ids": ints([e.last_item or 0 for e in last])}, connection)]

    def _due_since(
        self, since: datetime, now: datetime, seen: Sequence[int], most: int, connection: Connection
    ) -> list[Schedule]:
        parameters = {"since": since, "now": now, "seen": ints(seen), "most": most}
        return [Schedule(*row) for row in self._run("due_schedules", parameters, connection)]

    def _apply_revisions(
        self, before: Mapping[int, Schedule], revisions: Sequence[Revision], now: datetime, connection: Connection
    ) -> None:
        removed = [revision.schedule.id for revision in revisions if revision.is_removed]
        kept = [revision for revision in revisions if not revision.is_removed]
        changed = [each.schedule for each in kept if not only_moves_on(before[each.schedule.id], each.schedule)]
        if leaving := [*removed, *(schedule.id for schedule in changed)]:
            self._run("lock_rings", {"ids": ints(leaving)}, connection)
        for schedule in changed:
            self._run("revise", _schedule(schedule), connection)
        made = [(revision.schedule.id, at) for revision in kept for at in revision.occurrences]
        made.sort(key=itemgetter(1))
        last: dict[int, int] = {}
        if made:
            parameters = {"made_ids": ints([each for each, _ in made]), "ats": [at for _, at in made]}
            last = dict(self._run("occur", parameters, connection))
        if kept:
            self._run(
                "move_on",
                {
                    "ids": ints([revision.schedule.id for revision in kept]),
                    "next_ats": [revision.schedule.next_at for revision in kept],
                    "last_ats": [revision.schedule.last_at for revision in kept],
                    "skipped": ints([revision.schedule.skipped for revision in kept]),
                    "last_items": maybe_ints([last.get(revision.schedule.id) for revision in kept]),
                },
                connection,
            )
        if removed:
            self._run("remove_schedules", {"ids": ints(removed)}, connection)
        if changes := [change for revision in revisions for change in revision.changes]:
            self.settle(changes, (), connection)
        self._note([(now, note) for revision in revisions for note in revision.notes], connection)
        if made:
            self._run("tell", {"news": [""]}, connection)
