"""Schedules on every database: creating them, and changing them in one transaction with the items that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heapreplace
from itertools import groupby
from operator import attrgetter, itemgetter

from msgspec.json import encode
from msgspec.structs import replace

from duly.core.clock import EPOCH
from duly.core.model import LIVE, Item, NewSchedule, Revision, Schedule
from duly.store.records import ITEM, NEW_SCHEDULE, SCHEDULE, writer
from duly.store.settling import Settling
from duly.store.statements import FRESH, C, Plan, Seat

_ring = attrgetter("ring")
_written = writer(SCHEDULE, {bytes: bytes.decode})


class Schedules(Settling[C]):
    def enroll(self, new: Sequence[NewSchedule], seat: Seat, connection: C | None = None) -> list[tuple[int, bool]]:
        """Create schedules, all or none. Returns the id of each, and whether it is new or had its key already.

        A schedule with a ring and no slot gets the one with the fewest members. `seat` gives its rule and first time.
        """
        names = [(each.task, each.key) for each in new]
        with self._joining(connection) as joined:
            known = self._taken(names, joined)
            fresh = {name: each for name, each in zip(reversed(names), reversed(new), strict=True) if name not in known}
            # Always in the same order: an insert waits for another of the same key, which could be a deadlock.
            order = [name for name in dict.fromkeys(names) if name in fresh]
            seated = self._seat([fresh[name] for name in (order if self.takes_turns else sorted(order))], seat, joined)
            rows = self._run_many("enroll", joined, NEW_SCHEDULE, seated)
            made = {(task, key): schedule_id for schedule_id, task, key in rows}
            known.update(made)
            if len(made) < len(fresh):  # another transaction took a key between our look and our insert
                known.update(self._taken(names, joined))
        return [(known[name], made.pop(name, None) is not None) for name in names]

    def _taken(self, names: Sequence[tuple[str, str]], connection: C) -> dict[tuple[str, str], int]:
        """The schedules that have these names, which are of a task and a key each."""
        tasks, keys = [task for task, _ in names], [key for _, key in names]
        rows = self._run_many("taken", connection, task=tasks, key=keys)
        return {(task, key): schedule_id for schedule_id, task, key in rows}

    def _seat(self, new: list[NewSchedule], seat: Seat, connection: C) -> list[NewSchedule]:
        """These schedules, those of a ring with a slot. Rings are locked in the order of their names."""
        seated = [each for each in new if each.ring is None]
        rings = sorted((each for each in new if each.ring is not None), key=_ring)
        for ring, group in groupby(rings, key=_ring):
            self._lock_ring(ring, connection)
            members = list(group)
            taken = Counter(dict(self._run("seats", {"ring": ring}, connection)))
            taken.update(each.slot for each in members if each.slot is not None and each.broken_at is None)
            seats = SlotAllocator(members[0].slots or 1, taken)
            for each in members:
                slot = seats.take() if each.slot is None else each.slot
                rule, next_at = seat(each, slot)
                first = next_at if each.broken_at is None else None
                seated.append(replace(each, rule=rule, next_at=first, slot=slot))
        return seated

    def _lock_ring(self, ring: str, connection: C) -> None:
        if not self._lock("lock_ring", {"ring": ring}, connection):
            self._run("open_ring", {"ring": ring}, connection)
            self._lock("lock_ring", {"ring": ring}, connection)

    def hold(self, ids: Sequence[int], rings: Iterable[str], connection: C) -> None:
        """Lock these schedules and then these rings until the end of the transaction: nobody changes or joins them."""
        self._lock("lock_schedules", {"ids": list(ids)}, connection)
        for ring in sorted(rings):
            self._lock_ring(ring, connection)

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: C | None = None,
        without: Sequence[int] = (),
    ) -> int:
        """Lock these schedules (None: those that are due, except `without`) and do what `plan` says becomes of them.

        `plan` is given the schedules with their live items. For due ones, that is the last item that each made;
        otherwise all waiting items, and running ones too if items must not overlap. Returns how many schedules it was.
        """
        if which is None and self.takes_turns:  # look first: a read keeps no writer waiting
            next_at = self._run("next_schedule", {"without": encode(list(without)).decode()})[0][0]
            if next_at is None or next_at > now:
                return 0
        with self._joining(connection) as joined:
            if which is None:
                schedules = self._due(now, most, without, joined)
                items = self._last_items(schedules, joined)
            else:
                schedules, items = self._found(which, joined)
            if not schedules:
                return 0
            revisions = plan(schedules, live_by_schedule(items))
            self._apply_revisions({each.id: each for each in schedules}, revisions, now, joined)
        return len(schedules)

    def _due(self, now: datetime, most: int, without: Sequence[int], connection: C) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        found: list[Schedule] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            seen = [*without, *(each.id for each in found)]
            given = {"since": since, "now": now, "seen": seen, "most": part - len(found)}
            found += self._all(SCHEDULE, "due_schedules", given, connection)
        return found

    def _last_items(self, schedules: Sequence[Schedule], connection: C) -> list[Item]:
        """The item that each of these made last, if it made any."""
        last = {each.last_item: each for each in schedules if each.last_item is not None}
        # Lock items that may be superseded, so that they are not claimed.
        replaced = [item_id for item_id, each in last.items() if each.overlap == "supersede"]
        self._lock("lock_waiting", {"ids": replaced}, connection)
        return self._all(ITEM, "fetch", {"ids": list(last)}, connection)

    def _found(self, which: Sequence[int], connection: C) -> tuple[list[Schedule], list[Item]]:
        """Schedules by their ids, with all items that wait, and those that run where only one may at a time."""
        ids = {"ids": list(which)}
        schedules = self._all(SCHEDULE, "some_schedules", ids, connection)
        waiting = self._all(ITEM, "waiting_of", ids, connection)
        alone = [schedule.id for schedule in schedules if schedule.overlap != "allow"]
        running = self._all(ITEM, "running_of", {"ids": alone}, connection)
        return schedules, [*waiting, *running]

    def _apply_revisions(
        self, before: Mapping[int, Schedule], revisions: Sequence[Revision], now: datetime, connection: C
    ) -> None:
        """Write the changes of schedules that had this state before."""
        removed = [revision.schedule.id for revision in revisions if revision.is_removed]
        kept = [revision for revision in revisions if not revision.is_removed]
        changed = [each.schedule for each in kept if not only_moves_on(before[each.schedule.id], each.schedule)]
        if leaving := [*removed, *(schedule.id for schedule in changed)]:
            self._lock("lock_rings", {"ids": leaving}, connection)
        for schedule in changed:
            self._run("revise", _written(schedule), connection)
        made = [(revision.schedule.id, at) for revision in kept for at in revision.occurrences]
        made.sort(key=itemgetter(1))
        last: dict[int, int] = {}
        if made:
            last = dict(self._run_many("occur", connection, id=[each for each, _ in made], at=[at for _, at in made]))
        if kept:
            self._run_many(
                "move_on",
                connection,
                id=[revision.schedule.id for revision in kept],
                next_at=[revision.schedule.next_at for revision in kept],
                last_at=[revision.schedule.last_at for revision in kept],
                skipped=[revision.schedule.skipped for revision in kept],
                last_item=[last.get(revision.schedule.id) for revision in kept],
            )
        if removed:
            self._run("remove_schedules", {"ids": removed}, connection)
        if changes := [change for revision in revisions for change in revision.changes]:
            self.settle(changes, (), connection)
        self._note([(now, note) for revision in revisions for note in revision.notes], connection)
        if made:
            self._announce(None, connection)


def live_by_schedule(items: Iterable[Item]) -> dict[int, list[Item]]:
    live: dict[int, list[Item]] = {}
    for item in items:
        if item.state in LIVE and item.schedule_id is not None:
            live.setdefault(item.schedule_id, []).append(item)
    return live


def only_moves_on(before: Schedule, after: Schedule) -> bool:
    """Whether the schedule just moved on to its next time: the common case, written by the thousand."""
    return after == replace(before, next_at=after.next_at, last_at=after.last_at, skipped=after.skipped)


class SlotAllocator:
    """Hands out the slots of one ring: always the one with the fewest members, and the first of those."""

    def __init__(self, slots: int, taken: Mapping[int, int]) -> None:
        self._heap = [(taken.get(slot, 0), slot) for slot in range(slots)]
        heapify(self._heap)

    def take(self) -> int:
        members, slot = self._heap[0]
        heapreplace(self._heap, (members + 1, slot))
        return slot
