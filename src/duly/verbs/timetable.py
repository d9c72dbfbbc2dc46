"""Reads schedules: pages of them, what they made, what their rules mean, and how evenly slots are filled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import asdict

from duly.core import advance, codec
from duly.core.clock import EPOCH
from duly.core.errors import DoesNotExist, InputError
from duly.core.filters import ScheduleFilter, check_names, checked_id, checked_most
from duly.core.model import Schedule
from duly.core.policy.recur import Rule, Slot, Slots, clock_notes, parse, preview, zone_named
from duly.core.results import RulePreview, ScheduleState, SlotLoad
from duly.core.shown import AuditLine, ClockNote, Occurrence, ScheduleStory, ShownSchedule
from duly.verbs.context import VerbGroup
from duly.verbs.read import ids_text, utc

PORTION = 1_000
DAY = timedelta(days=1)
SCANNED = 20_000  # schedules that are looked at for one page, at most

# How a schedule stands by the last item that it made: that waits or runs, is done, or has failed and waits for a retry
# or in review. A schedule without an item stands by what it remembers.
Standing = Literal["waiting", "running", "done", "failing"]
CAUSES = 100
UNFILTERED: ScheduleFilter = {"task": None, "key": None, "state": None, "ring": None, "slot": None}


class Cause(Struct, frozen=True):
    """How many schedules were deactivated after errors of this class; '' if the class is no longer known."""

    cause: str
    members: int


class StandingCount(Struct, frozen=True):
    """How many schedules of one slot have this standing, active or not, by an item planned since then or before."""

    slot: int | None
    standing: Standing
    is_active: bool
    is_new: bool
    members: int


class TryStarts(Struct, frozen=True):
    """So many tries began at the same moment: the first ones of their items, or later ones."""

    at: datetime
    is_retry: bool
    tries: int


class Move(Struct, frozen=True):
    """A schedule that a rebalance would move to another slot."""

    schedule_id: int
    key: str
    slot: int
    to: int


class Timetable(VerbGroup):
    def owned_one(self, schedule_id: int, owner: str | None, connection: Any = None) -> Schedule | None:
        """This schedule, if it belongs to this owner; None means any owner."""
        return next((each for each in self.some([schedule_id], connection) if owner in (None, each.owner)), None)

    def get(self, schedule_id: int, connection: Any = None) -> Schedule:
        given = {"ids": codec.text([checked_id(schedule_id, "schedule_id")])}
        return self._read.found(f"schedule {schedule_id}", Schedule, "schedules_with_ids", given, connection)

    def find(self, task: str, key: str, connection: Any = None) -> Schedule:
        found = self._read.one(Schedule, "schedule", {"task": task, "key": key}, connection)
        if found is None:
            raise DoesNotExist(f"{task} has no schedule {key!r}")
        return found

    def some(self, ids: Iterable[int], connection: Any = None) -> list[Schedule]:
        """The schedules with these ids, as far as they exist."""
        return self._read.all(Schedule, "schedules_with_ids", {"ids": ids_text(ids)}, connection)

    def page(
        self, *, owner: str | None = None, after: int = 0, most: int = 100, **filters: Unpack[ScheduleFilter]
    ) -> list[Schedule]:
        """A page of schedules, by id; `after` is the last id of the page before. No `owner` means all owners."""
        check_names(filters, ScheduleFilter, "page")
        given = {**UNFILTERED, **filters, "owner": owner, "after": after, "most": min(checked_most(most), PORTION)}
        return self._read.all(Schedule, "schedules", given)

    def pages(self, /, **filters: Any) -> Iterator[Schedule]:
        """All schedules that fit, read page by page."""
        after = 0
        while rows := self.page(**filters, after=after, most=PORTION):
            yield from rows
            after = rows[-1].id

    def declared(self) -> list[tuple[int, str, str]]:
        """The schedules that code declared without a key: the id, task and key of each."""
        return [(schedule_id, task, key) for schedule_id, task, key in self._store.read("declared", {})]

    def occurrences(self, schedule_id: int, most: int = 100) -> list[Occurrence]:
        """The items that it made and that are still kept, newest first."""
        given = {"schedule_id": schedule_id, "most": min(checked_most(most), PORTION)}
        return self._read.all(Occurrence, "occurrences", given)

    def preview(self, rule: Rule | str, zone: str = "UTC", n: int = 5) -> list[datetime]:
        """The next n times of a rule."""
        return preview(checked_rule(rule), self._now(), checked_zone(zone), min(n, PORTION))

    def clock_notes(self, rule: Rule | str, zone: str, times: Sequence[datetime]) -> list[ClockNote]:
        """What the clocks do at these next times of a rule, in plain words."""
        notes = clock_notes(checked_rule(rule), self._now(), times, checked_zone(zone))
        return [ClockNote(at, note) for at, note in notes]

    def search(
        self,
        owner: str | None,
        *,
        contains: str | None = None,
        by_next: bool = False,
        after: Sequence[Any] | None = None,
        most: int = 100,
        **filters: Unpack[ScheduleFilter],
    ) -> tuple[list[Schedule], list[Any] | None]:
        """The next schedules of this owner that fit, and where to go on; None: nothing more fits.

        `contains` is a part of the key, in whatever case. `by_next`: those that come next first, and last those that
        have no next time. At most 20,000 are looked at for one page, which may therefore have none and go on. Of one
        owner, only their own schedules are looked at, so no page reveals others.
        """
        check_names(filters, ScheduleFilter, "search")
        given = {**UNFILTERED, **filters, "owner": owner, "contains": None if contains is None else like(contains)}
        by_next = by_next and filters.get("state") != "broken"  # those have no next time
        place: list[Any] | None = list(after) if after else (["next", None, 0] if by_next else ["id", 0])
        found: list[tuple[Schedule, list[Any]]] = []
        looked = 0
        checked_most(most)
        while place is not None and looked < SCANNED and len(found) <= most:
            met, goes_on = self._met(place, owner, filters.get("state"))
            asked = {**given, "ids": codec.text([schedule_id for schedule_id, _ in met])}
            rows = {row.id: row for row in self._read.all(Schedule, "schedules_fitting", asked)}
            is_rest = by_next and place[0] == "id"  # of those that have a next time, we have come along before
            found += [
                (row, at)
                for schedule_id, at in met
                if (row := rows.get(schedule_id)) is not None and not (is_rest and row.next_at is not None)
            ]
            looked += len(met)
            place = goes_on
        if len(found) > most:
            return [row for row, _ in found[:most]], found[most - 1][1]
        return [row for row, _ in found], place

    def _met(
        self, place: list[Any], owner: str | None, state: ScheduleState | None
    ) -> tuple[list[tuple[int, list[Any]]], list[Any] | None]:
        """The next ids after a place, each with its own place, and where to go on; None at the end."""
        if place[0] == "next":
            at = EPOCH if place[1] is None else datetime.fromisoformat(place[1])
            given = {"owner": owner, "after_at": at, "after_id": place[2], "most": PORTION}
            rows = self._store.read("schedules_by_next" if owner is None else "own_schedules_by_next", given)
            met = [(schedule_id, ["next", utc(next_at).isoformat(), schedule_id]) for schedule_id, next_at in rows]
            return met, met[-1][1] if len(met) == PORTION else ["id", 0]
        if owner is not None:
            section = "own_schedules"
        else:
            section = "broken_schedules" if state == "broken" else "schedules_by_id"
        rows = self._store.read(section, {"owner": owner, "after": place[1], "most": PORTION})
        met = [(schedule_id, ["id", schedule_id]) for (schedule_id,) in rows]
        return met, met[-1][1] if len(met) == PORTION else None

    def describe(self, schedule: Schedule) -> str:
        """Its rule in plain English; as its text when the rule is unknown here."""
        try:
            return advance.rule_of(schedule.rule).describe(zone_named(schedule.zone))
        except ValueError:
            return f"{schedule.rule} ({schedule.zone})"

    def shown(self, schedule: Schedule) -> ShownSchedule:
        """The schedule as people see it: JSON decoded, its state, and its rule in words."""
        state: ScheduleState = "broken" if schedule.broken_at else "paused" if schedule.paused_at else "active"
        args, keep = codec.shown(schedule.args), None if schedule.keep is None else codec.shown(schedule.keep)
        values = {**asdict(schedule), "args": args, "keep": keep}
        return ShownSchedule(**values, state=state, describe=self.describe(schedule))

    def story(self, schedule: Schedule, ahead: int = 5) -> ScheduleStory:
        """The schedule with its next times, its recent items and recent changes to it."""
        times = self.preview(schedule.rule, schedule.zone, ahead) if schedule.is_active else []
        return ScheduleStory(
            **asdict(self.shown(schedule)),
            next=times,
            notes=self.clock_notes(schedule.rule, schedule.zone, times) if times else [],
            items=self.occurrences(schedule.id, 10),
            audit=self.audit(schedule.id, most=20),
        )

    def standing(
        self,
        owner: str | None,
        task: str,
        *,
        standing: Standing | None = None,
        slot: int | None = None,
        is_active: bool | None = None,
        text: str | None = None,
        after: int = 0,
        most: int = 100,
    ) -> list[Schedule]:
        """A page of a task's schedules, by id: those with this standing, and with this text in their key.

        None as owner means those of all owners. Capital and small letters of ASCII are the same.
        """
        filters = {"owner": owner, "task": task, "standing": standing, "slot": slot, "is_active": is_active}
        filters["text"] = None if text is None else like(text)
        given = {**filters, "after": after, "most": min(checked_most(most), PORTION)}
        return self._read.all(Schedule, "schedules_standing", given)

    def standings(self, owner: str | None, task: str, since: datetime) -> list[StandingCount]:
        """How many of a task's schedules have which standing, by slot."""
        return self._read.all(StandingCount, "standings", {"owner": owner, "task": task, "since": since})

    def causes(self, owner: str | None, task: str) -> list[Cause]:
        """The classes of errors that deactivated schedules of this task, those with most schedules first."""
        rows = self._store.read("broken_by", {"owner": owner, "task": task, "most": CAUSES})
        return [Cause(error_class or "", members) for error_class, members in rows]

    def begun(self, owner: str | None, task: str, since: datetime) -> list[TryStarts]:
        """When tries of items that this task's schedules made began since then; items of a day before count too."""
        given = {"owner": owner, "task": task, "since": since, "planned_since": since - DAY}
        return self._read.all(TryStarts, "tries_of_schedules", given)

    def retries(self, owner: str | None, task: str) -> list[tuple[datetime, int]]:
        """When items that this task's schedules made are to be retried, and how many then."""
        rows = self._store.read("retries_due", {"owner": owner, "task": task})
        return [(utc(due_at), items) for due_at, items in rows]

    def slots(self, ring: str | None = None) -> list[SlotLoad]:
        """How many active members each slot has."""
        return self._read.all(SlotLoad, "slots", {"ring": ring})

    def rebalance(self, ring: str) -> list[Move]:
        """Which schedules would have to move so that all slots are even again. It moves nothing."""
        members: dict[int, list[Schedule]] = {}
        n = 0
        for schedule in self.pages(ring=ring, state="active"):
            members.setdefault(schedule.slot or 0, []).append(schedule)
            n = slot_of(schedule.rule).of
        least, extra = divmod(sum(map(len, members.values())), n or 1)
        # If it does not divide evenly, the fullest slots keep one more, so that as few as possible move.
        order = sorted(range(n), key=lambda slot: (-len(members.get(slot, ())), slot))
        target = {slot: least + (place < extra) for place, slot in enumerate(order)}
        leaving = [each for slot in order for each in members.get(slot, [])[target[slot] :]]
        seats = [slot for slot in range(n) for _ in range(target[slot] - len(members.get(slot, ())))]
        return [Move(each.id, each.key, each.slot or 0, to) for each, to in zip(leaving, seats, strict=True)]

    def audit(self, schedule_id: int | None = None, before: int | None = None, most: int = 100) -> list[AuditLine]:
        """What was done to a schedule, or to all, newest first."""
        return self._audit.page(None if schedule_id is None else f"schedule:{schedule_id}", before, most)


def like(text: str) -> str:
    """What `like` is given to find this text anywhere."""
    return "%" + re.sub("[%_!]", lambda sign: f"!{sign[0]}", text) + "%"


def checked_rule(rule: Any) -> Rule:
    """The rule that was given as text or as a value."""
    if isinstance(rule, str):
        try:
            return parse(rule)
        except ValueError as error:
            raise InputError("rule", str(error).removeprefix("rule: ")) from None
    if not hasattr(rule, "next") or not hasattr(rule, "describe"):
        raise InputError("rule", f'must be a rule such as Daily("09:00"), or its text, got {rule!r:.80}')
    found: Rule = rule
    return found


def rule_preview(text: str, zone_name: str, now: datetime, n: int) -> RulePreview:
    """A rule in words, its next times, and what the clocks do at them."""
    rule, zone = checked_rule(text), checked_zone(zone_name)
    times = preview(rule, now, zone, n)
    notes = [ClockNote(at, note) for at, note in clock_notes(rule, now, times, zone)]
    return RulePreview(str(rule), rule.describe(zone), times, notes)


def rule_or_slots(text: str) -> str | Slots:
    """A rule as people write it: its text, or `slots 24` for a slot in the ring of the task."""
    word, _, number = text.partition(" ")
    if word != "slots" or not number.isdecimal() or len(number) > 6:
        return text
    try:
        return Slots(int(number))
    except ValueError as error:
        raise InputError("rule", str(error)) from None


def checked_zone(name: Any) -> ZoneInfo:
    try:
        return zone_named(name.key if isinstance(name, ZoneInfo) else name)
    except ValueError as error:
        raise InputError("zone", str(error).removeprefix("zone: ")) from None


def slot_of(text: str) -> Slot:
    rule = parse(text)
    assert isinstance(rule, Slot)
    return rule
