"""Schedules: create, change, pause, resume, run now, reactivate, remove, and move to another slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Required, Unpack, get_args

from msgspec.structs import replace

from duly.core import advance
from duly.core.errors import DoesNotExist, InputError, KeyConflict, WrongState
from duly.core.filters import checked_ids
from duly.core.model import CatchUp, Item, NewSchedule, Overlap, Revision, Schedule
from duly.core.policy.recur import Rule, Slot, Slots, parse, zone_named
from duly.core.results import ScheduleAction
from duly.tasks.checks import checked_key, checked_lateness, checked_rank
from duly.tasks.puttable import ScheduleOptions
from duly.tasks.task import Task
from duly.verbs.context import Principal, refusal, selected
from duly.verbs.read import ids_text
from duly.verbs.timetable import PORTION, Move, Timetable, checked_rule, checked_zone, slot_of


def _one_of(field: str, choices: Any) -> Callable[[Any], Any]:
    """A check that a value is one of these."""

    def checked(value: Any) -> Any:
        if value not in get_args(choices):
            raise InputError(field, f"must be one of {', '.join(get_args(choices))}, got {value!r:.80}")
        return value

    return checked


# The options of a schedule, each with the check that turns a given value into the stored one.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "zone": lambda zone: checked_zone(zone).key,
    "catch_up": _one_of("catch_up", CatchUp),
    "max_lateness": lambda given: None if given is None else checked_lateness(given).total_seconds(),
    "overlap": _one_of("overlap", Overlap),
    "rank": checked_rank,
}
OPTIONS = tuple(CHECKS)
ACTS: dict[ScheduleAction, Callable[..., Revision]] = {
    "pause": advance.paused, "resume": advance.resumed, "run": advance.run_now,
    "reactivate": advance.reactivated, "remove": advance.removed,
}  # fmt: skip


class ScheduleRow(ScheduleOptions, total=False):
    """One of many schedules."""

    key: Required[str]
    rule: Rule | Slots | str  # if it is another one than that of all
    args: Mapping[str, Any]


class ScheduleVerbs(Timetable):
    # -- in

    def create(
        self,
        who: Principal,
        /,
        task: str | Task[..., Any],
        rule: Rule | Slots | str,
        args: Mapping[str, Any] | None = None,
        *,
        key: str,
        connection: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create a schedule with this key that belongs to the principal; if there is one already, change it to this.

        `args` are the arguments of the task. Options are zone, catch_up, max_lateness, overlap and rank.
        """
        if unknown := sorted(options.keys() - ScheduleOptions.__annotations__.keys()):
            raise InputError(unknown[0], f"is not an option of a schedule; known: {', '.join(OPTIONS)}")
        new = self.new(self._task(task), rule, who.scoped(checked_key(key)), args or {}, options)
        return self.write(who, replace(new, owner=who.owner), connection)

    def create_many(
        self,
        task: str | Task[..., Any],
        rule: Any,
        rows: Iterable[ScheduleRow],
        for_owner: str | None = None,
        since: datetime | None = None,
        *,
        connection: Any = None,
    ) -> int:
        """Create any number of schedules. Each row has a key, arguments and options, and may have its own rule.

        They are due from now on, or from `since` on if that is later. Keys that exist are left as they are; returns how
        many are new. There is no line in the audit log for each: the caller writes one about all of them.
        """
        of, fresh, left = self._task(task), 0, iter(rows)
        while portion := list(islice(left, PORTION)):
            begin = max(self._now(), since) if since is not None else self._now()
            news = [replace(planned(self.of_row(of, rule, row), begin), owner=for_owner) for row in portion]
            fresh += sum(is_new for _, is_new in self.enroll(news, connection))
        return fresh

    def of_row(self, task: Task[..., Any], rule: Any, row: ScheduleRow) -> NewSchedule:
        """The schedule that a row describes, checked."""
        return self.new(task, row.get("rule", rule), checked_key(row.get("key")), row.get("args", {}), row)

    def enroll(self, news: Sequence[NewSchedule], connection: Any = None) -> list[tuple[int, bool]]:
        """Create these, whose rules are of one kind: the id of each, and whether it is new."""
        self._check_ring(news[0])
        with self._context.joining(connection) as joined:
            return self._store.enroll(news, self._seat, joined)

    def _task(self, task: str | Task[..., Any]) -> Task[..., Any]:
        return self._context.task_named(task) if isinstance(task, str) else task

    def new(
        self,
        task: Task[..., Any],
        rule: Any,
        key: str,
        args: Mapping[str, Any],
        options: ScheduleOptions,
        is_declared: bool = False,
    ) -> NewSchedule:
        """A new schedule, checked, ready to be written."""
        args = dict(args)
        is_even = isinstance(rule, Slots)
        usual = {"zone": "UTC", "catch_up": "latest", "overlap": "supersede" if is_even else "allow", "rank": task.rank}
        given = {name: value for name, value in options.items() if name in CHECKS and value not in (None, "")}
        return NewSchedule(
            task=task.name,
            key=key,
            queue=task.queue_for(args),
            args=task.checked_args(args),
            rule=str(rule.at(0) if is_even else checked_rule(rule)),  # in a ring, until it has a slot
            next_at=None,  # set when it is written
            ring=task.name if is_even else None,
            slots=rule.n if is_even else None,
            is_declared=is_declared,
            **{name: CHECKS[name](value) for name, value in {**usual, **given}.items()},
        )

    def write(self, who: Principal, new: NewSchedule, connection: Any = None) -> Schedule:
        """Write this schedule, as a new row or over the one that has its key."""
        self._check_ring(new)
        with self._context.joining(connection) as own:
            ((schedule_id, is_fresh),) = self._store.enroll([planned(new, self._now())], self._seat, own)
            if is_fresh:
                about = {"task": new.task, "key": who.unscoped(new.key)}
                self._audit.note(who, "schedule.created", f"schedule:{schedule_id}", about, own)
                return self.get(schedule_id, own)
        # Only now, when the ring is no longer locked: changes of schedules lock the schedule before its ring.
        self._overwrite(who, schedule_id, new, connection)
        return self.get(schedule_id, connection)

    def _overwrite(self, who: Principal, schedule_id: int, new: NewSchedule, connection: Any) -> None:
        # A schedule of the code may have a key that looks like a user's.
        if self.owned_one(schedule_id, who.owner, connection) is None:
            raise KeyConflict(f"the key {who.unscoped(new.key)!r} is already used; choose another key", 0)
        if (self.get(schedule_id, connection).ring is None) != (new.ring is None):
            raise InputError(
                "rule",
                f"schedule {new.key!r} exists with another kind of rule (with or without a slot); remove it first",
            )
        names = ("queue", "args", "is_declared", *CHECKS, *(("rule",) if new.ring is None else ()))
        fields = {name: getattr(new, name) for name in names}
        self._revise(who, [schedule_id], advance.changed, connection, **fields)

    def _seat(self, new: NewSchedule, slot: int) -> tuple[str, datetime]:
        rule = _seated(new.rule, slot)
        next_at = rule.next(self._now(), zone_named(new.zone))
        assert next_at is not None
        return str(rule), next_at

    def _check_ring(self, new: NewSchedule) -> None:
        """Check that all members of a ring divide the same period by the same number."""
        for (text,) in self._store.read("ring_rule", {"ring": new.ring}) if new.ring is not None else ():
            rule, known = slot_of(new.rule), slot_of(text)
            if (rule.of, rule.period) != (known.of, known.period):
                raise InputError("rule", f"all members of {new.ring} must have the same slots, which are {known.of}")

    # -- care

    def reached(self, who: Principal, schedule_id: int, connection: Any = None) -> Schedule:
        """The schedule, if it may be reached; a schedule of another owner is reported as missing."""
        found = self.get(schedule_id, connection)
        if who.reach not in (None, found.owner):
            raise DoesNotExist(f"there is no schedule {schedule_id}")
        return found

    def change(self, who: Principal, /, schedule_id: int, *, connection: Any = None, **fields: Any) -> Schedule:
        """Change a schedule's rule, zone, catch_up, max_lateness, overlap or rank, or its `args` as a whole."""
        schedule = self.reached(who, schedule_id, connection)
        changed: dict[str, Any] = {}
        for name, value in fields.items():
            if name in CHECKS:
                changed[name] = CHECKS[name](value)
            elif name == "args":
                task = self._context.task_named(schedule.task)
                changed["args"], changed["queue"] = task.checked_args(dict(value)), task.queue_for(value)
            elif name != "rule":
                known = ", ".join(("rule", *CHECKS, "args"))
                raise InputError(name, f"cannot be changed; fields that can: {known}")
            elif schedule.ring is not None:
                raise InputError("rule", "a member of a ring keeps its slot; see `duly slots`")
            else:
                changed["rule"] = str(checked_rule(value))
        self._revise(who, [schedule_id], advance.changed, connection, **changed)
        return self.get(schedule_id, connection)

    def pause(self, who: Principal, *ids: int, connection: Any = None) -> list[int]:
        """Create no more items until it is resumed."""
        return self._revise(who, ids, advance.paused, connection)

    def resume(self, who: Principal, *ids: int, connection: Any = None) -> list[int]:
        """Continue from now; occurrences missed during the pause are not made up for."""
        return self._revise(who, ids, advance.resumed, connection)

    def reactivate(
        self,
        who: Principal,
        *ids: int,
        run_now: bool = False,
        discard: bool = False,
        skip: bool = False,
        connection: Any = None,
    ) -> list[int]:
        """Let schedules go on that were deactivated after too many failures in a row; with `run_now`, also at once.

        With `discard`, the last item of each is discarded if it is in review: a person has looked at the failure.
        With `skip`, those that cannot be reactivated are left as they are. Returns the ids.
        """
        with self._context.joining(connection) as connection:
            failed = self._last_failures(ids, connection) if discard else {}

            def act(each: Schedule, live: Sequence[Item], now: datetime, actor: str) -> Revision:
                return advance.reactivated(each, live, now, actor, failed.get(each.id), run_now)

            return self._revise(who, ids, act, connection, skip=skip)

    def _last_failures(self, ids: Sequence[int], connection: Any) -> dict[int, Item]:
        """The last items of these schedules that are in review, by schedule."""
        store = self._store
        in_review = store.read("failed_of", {"ids": ids_text(ids)}, connection)
        found = store.fetch([item_id for (item_id,) in in_review], connection)
        return {item.schedule_id: item for item in found if item.schedule_id is not None}

    def reactivate_all(
        self,
        who: Principal,
        task: str | None = None,
        *,
        cause: str | None = None,
        owner: str | None = None,
        run_now: bool = False,
        discard: bool = False,
        most: int = PORTION,
        connection: Any = None,
    ) -> tuple[int, bool]:
        """Reactivate schedules that were deactivated, of a task or all, for one cause or any, at most `most`.

        A cause is a class of errors from `causes`. For `discard`, see `reactivate`. Returns how many were
        reactivated, and whether more are left.
        """
        given = {"task": task, "owner": who.among(owner), "error_class": cause, "most": most + 1}
        with self._context.joining(connection) as connection:
            ids = [each for (each,) in self._store.read("broken_ids", given, connection)]
            chosen = {"run_now": run_now, "discard": discard, "skip": True}  # some may have been reactivated meanwhile
            done = self.reactivate(who, *ids[:most], **chosen, connection=connection)
        return len(done), len(ids) > most

    def run_now(self, who: Principal, *ids: int, connection: Any = None) -> list[int]:
        """Make one more item now; WrongState if items must not overlap and one is still live."""
        return self._revise(who, ids, advance.run_now, connection)

    def remove(self, who: Principal, *ids: int, connection: Any = None) -> list[int]:
        """Remove schedules, and cancel their waiting items."""
        return self._revise(who, ids, advance.removed, connection)

    def move(self, who: Principal, moves: Iterable[Move], connection: Any = None) -> int:
        """Move these schedules to other slots of their ring."""
        count = 0
        for move in moves:
            rule = str(_seated(self.reached(who, move.schedule_id, connection).rule, move.to))
            self._revise(who, [move.schedule_id], advance.changed, connection, rule=rule, slot=move.to)
            count += 1
        return count

    def act(
        self, who: Principal, action: ScheduleAction, ids: Sequence[int], *, skip: bool = False, connection: Any = None
    ) -> list[int]:
        """Pause, resume, run, reactivate or remove a selection of schedules: all of them, or none; returns the ids.

        With `skip`, those that cannot be changed are left as they are.
        """
        return self._revise(who, selected(ids), ACTS[action], connection, skip=skip)

    def _revise(
        self,
        who: Principal,
        ids: Sequence[int],
        act: Callable[..., Revision],
        connection: Any,
        *,
        skip: bool = False,
        **fields: Any,
    ) -> list[int]:
        """Lock these schedules and write what `act` makes of them, with its lines of the audit log: all, or none.

        If one of them cannot be changed, the error names each such schedule; with `skip`, the others are changed.
        """
        ids, now = checked_ids(ids), self._now()
        revised: list[int] = []
        refused: dict[int, str] = {}

        def plan(schedules: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
            revisions = []
            for each in schedules:
                try:
                    revisions.append(act(each, live.get(each.id, ()), now, who.user_id, **fields))
                    revised.append(each.id)
                except WrongState as error:
                    refused[each.id] = str(error)
            return revisions

        with self._context.joining(connection) as connection:
            found = self.some(ids, connection)
            known = [each.id for each in found if who.reach in (None, each.owner)]
            if known:
                self._store.revise(known, now, len(known), plan, connection)
            missing = set(ids) - set(revised) - set(refused)
            refused |= {schedule_id: f"there is no schedule {schedule_id}" for schedule_id in missing}
            if refused and not skip:
                raise refusal(refused, known)
        return [schedule_id for schedule_id in ids if schedule_id in revised]


def planned(new: NewSchedule, now: datetime) -> NewSchedule:
    return new if new.ring is not None else replace(new, next_at=parse(new.rule).next(now, zone_named(new.zone)))


def _seated(text: str, slot: int) -> Slot:
    rule = slot_of(text)
    return Slot(slot, rule.of, rule.period)
