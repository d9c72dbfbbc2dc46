"""Tasks: give what waits of one task to another, because the task was renamed, or was misspelt when it was put.

What is moved: items that wait or are in review, schedules, and jobs with what they put at their end. Running items keep
their task: the worker that runs them still has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from duly.core import codec
from duly.core.errors import ConstraintViolated, DulyError, InputError, WrongState
from duly.core.model import Job, NewItem, Revision, Schedule
from duly.core.policy.recur import Slot
from duly.core.results import NotMoved, Retasked
from duly.core.unserved import OWN
from duly.tasks.checks import checked_name
from duly.tasks.task import Task
from duly.verbs.context import Principal, VerbGroup
from duly.verbs.timetable import slot_of

T = TypeVar("T")

# Items that are moved in one transaction, so that others may write meanwhile.
PORTION = 5_000
# Rows that are checked at a time, and refused ones that are named.
STEP, NAMED, LISTED = 1_000, 20, 100
# Items of one task, at most.
MOST = 10_000_000

Reasons = dict[int, str]


class Move:
    """From one task, which need not be known here, to another."""

    def __init__(self, old: str, new: Task[..., Any], known: Task[..., Any] | None, who: Principal) -> None:
        self.old = old
        self.new = new
        self.who = who
        self.given = {"task": old, "owner": who.reach}
        self._known = known
        self._is_split = any(limit.by for limit in new.limits)  # each value of an argument has a queue of its own

    def objection(self, args: bytes, is_row: bool) -> str | None:
        """Why these arguments cannot be given to the new task; None if they can. `is_row`: of a job."""
        if is_row and self._is_split:
            return f"{self.new.name} has a limit per argument value, which jobs do not support"
        try:
            self.new.checked_args(codec.decode(args))
        except (DulyError, msgspec.DecodeError) as error:
            return f"{self.new.name} does not accept its arguments: {error}"
        return None

    def queue_of(self, queue: str, args: bytes) -> str | None:
        """The queue that the new task has for this; None: it stays in its queue, into which a person has moved it."""
        given = codec.decode(args)
        if self._known is not None:
            is_own = queue == self._known.queue_for(given)
        else:
            is_own = queue == self.old or queue.startswith(f"{self.old}/")
        return self.new.queue_for(given) if is_own or self._is_split else None


@dataclass(frozen=True)
class Plan:
    """What can be moved, and what cannot."""

    move: Move
    ids: list[int]
    schedules: list[Schedule]
    jobs: list[Job]
    before: list[Job]  # jobs that put an item of the old task at their end
    refused: list[NotMoved]
    is_more: bool
    known: frozenset[int]  # all items that there were, also those that cannot be moved


class Tasks(VerbGroup):
    def retask(
        self,
        who: Principal,
        old: str,
        new: str,
        *,
        skip: bool = False,
        most: int = PORTION,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> Retasked:
        """Give waiting and failed items, schedules and jobs of the task `old` to the task `new`.

        Everything is checked before anything is changed. If something cannot be moved (`new` does not accept its
        arguments, or has its key), nothing is, and the error names each with the reason. With `skip`, the rest is
        moved. At most `most` items are moved in one transaction; `is_more` says that there are more. What follows can
        be moved with `skip`, which checks no more than it moves. With a `connection`, pass the `plan` that was made
        before its transaction began: checking takes a while, and others may wait for that transaction.
        """
        plan = plan or self.plan(who, old, new, skip=skip, most=most)
        move = plan.move
        try:
            with self._context.joining(connection) as own:
                moved = self._move_schedules(move, plan.schedules, own)
                items = self._move_items(move, [*plan.ids, *self._late(plan, own)] if moved else plan.ids, own)
                jobs = self._move_jobs(move, plan.jobs, plan.before, own)
                if items or moved or jobs:
                    about = {"to": new, "items": items, "schedules": moved, "jobs": jobs}
                    self._audit.note(who, "task.retasked", f"task:{old}", about, own)
        except ConstraintViolated:
            raise WrongState(f"an item of {new} with the same key was put meanwhile; try again") from None
        self._context.depths.forget()
        running = int(self._store.read("running_of_task", move.given)[0][0])
        return Retasked(items, moved, jobs, running, plan.refused[:LISTED], len(plan.refused), plan.is_more)

    def plan(self, who: Principal, old: str, new: str, *, skip: bool = False, most: int = PORTION) -> Plan:
        """What can be moved. Without `skip`, an error if there is something that cannot."""
        task = self._context.task_named(self._named("new", new))
        move = Move(self._named("old", old), task, self._context.tasks().get(old), who)
        if old == new:
            raise InputError("new", "is the same task")
        schedules = self._schedules(move)
        jobs, before = self._jobs(move, "jobs_of_task"), self._jobs(move, "jobs_before_task")
        ids = self._ids(move)
        items, seen = self._refused_items(move, ids, most if skip else MOST)
        refused = {
            "schedule": self._refused_schedules(move, schedules), "job": self._refused_jobs(move, jobs, before),
            "item": items,
        }  # fmt: skip
        listed = [NotMoved(kind, each, reasons[each]) for kind, reasons in refused.items() for each in sorted(reasons)]  # type: ignore[arg-type]
        if listed and not skip:
            raise _refusal(listed, new)
        allowed = [item_id for item_id in ids[:seen] if item_id not in items]
        return Plan(
            move, allowed[:most], _but(schedules, refused["schedule"]), _but(jobs, refused["job"]),
            _but(before, refused["job"]), listed, is_more=seen < len(ids) or len(allowed) > most, known=frozenset(ids),
        )  # fmt: skip

    def _named(self, field: str, name: str) -> str:
        if checked_name(field, name).startswith(OWN):
            raise InputError(field, f"{name} is a part of duly itself")
        return name

    # -- what there is

    def _ids(self, move: Move, connection: Any = None) -> list[int]:
        given = {**move.given, "most": MOST}
        sections = ("waiting_of_task", "failed_of_task")
        return sorted(row[0] for each in sections for row in self._store.read(each, given, connection))

    def _late(self, plan: Plan, connection: Any) -> list[int]:
        """Items that schedules have made since the plan."""
        fresh = [each for each in self._ids(plan.move, connection) if each not in plan.known]
        refused, _ = self._refused_items(plan.move, fresh, MOST, connection)
        return [each for each in fresh if each not in refused]

    def _schedules(self, move: Move) -> list[Schedule]:
        found: list[Schedule] = []
        given = {**dict.fromkeys(("ring", "slot", "key", "state")), **move.given, "most": STEP}
        while page := self._rows(Schedule, "schedules", {**given, "after": found[-1].id if found else 0}):
            found += page
        return found

    def _jobs(self, move: Move, section: str) -> list[Job]:
        return self._rows(Job, section, move.given)

    def _rows(self, kind: type[T], section: str, given: Mapping[str, Any]) -> list[T]:
        return [kind(*row) for row in self._store.read(section, given)]

    # -- what cannot be moved

    def _refused_items(
        self, move: Move, ids: Sequence[int], enough: int, connection: Any = None
    ) -> tuple[Reasons, int]:
        """Those of these items that cannot be moved. It stops after `enough` that can; returns how many were seen."""
        refused: Reasons = {}
        seen = 0
        for portion in _portions(ids):
            given = {"ids": codec.text(portion), "task": move.new.name}
            for row in self._store.read("key_is_taken", given, connection):
                refused[row[0]] = f"an item of {move.new.name} has its key"
            for item in self._store.fetch(portion, connection):
                if reason := move.objection(item.args, item.job_id is not None):
                    refused[item.id] = reason
            seen += len(portion)
            if seen - len(refused) >= enough:
                break
        return refused, seen

    def _refused_schedules(self, move: Move, schedules: Iterable[Schedule]) -> Reasons:
        # One that code declares is declared under its new name, or will be: then the old one is not needed.
        taken = self._taken("schedule_is_taken", move)
        reasons = {each.id: move.objection(each.args, is_row=False) for each in schedules}
        kept = {each.id for each in schedules if each.id in taken and not each.is_declared}
        reasons |= dict.fromkeys(kept, f"a schedule of {move.new.name} has its key")
        for (rule,) in self._store.read("ring_rule", {"ring": move.new.name}):
            known = slot_of(rule)
            text = f"all members of {move.new.name} must have the same slots, which are {known.of}"
            others = [each for each in schedules if each.ring == move.old]
            reasons |= {each.id: text for each in others if not _are_alike(known, slot_of(each.rule))}
        return {each: reason for each, reason in reasons.items() if reason}

    def _refused_jobs(self, move: Move, jobs: Iterable[Job], before: Iterable[Job]) -> Reasons:
        taken = self._taken("job_is_taken", move)
        reasons = {each.id: f"a job of {move.new.name} has its key" for each in jobs if each.id in taken}
        for job in before:
            if reason := move.objection(_then(job).args, is_row=False):
                reasons[job.id] = f"what it puts at its end: {reason}"
        return reasons

    def _taken(self, section: str, move: Move) -> set[int]:
        return {row[0] for row in self._store.read(section, {"task": move.old, "new": move.new.name})}

    # -- the move. Locks are taken in the order in which settling takes them: schedules, items, jobs.

    def _move_schedules(self, move: Move, schedules: Sequence[Schedule], connection: Any) -> int:
        rings = {move.old, move.new.name} if any(each.ring == move.old for each in schedules) else ()
        if schedules:
            self._store.hold([each.id for each in schedules], rings, connection)
        taken = self._taken("schedule_is_taken", move)
        if replaced := [each.id for each in schedules if each.id in taken and each.is_declared]:
            self._store.revise(
                replaced, self._now(), len(replaced),
                lambda found, _: [Revision(each, is_removed=True) for each in found], connection,
            )  # fmt: skip
            self._note(move, "schedule", "removed", replaced, connection)
        rows = [{"id": each.id, "queue": move.queue_of(each.queue, each.args)} for each in schedules]
        rows = [each for each in rows if each["id"] not in taken]
        moved = self._written("retask_schedules", move, rows, connection)
        self._note(move, "schedule", "retasked", moved, connection)
        return len(moved) + len(replaced)

    def _move_items(self, move: Move, ids: Sequence[int], connection: Any) -> int:
        count = 0
        for portion in _portions(ids):
            items = self._store.fetch(portion, connection)
            # A row of a job stays in the queue of its job.
            rows = [{"id": each.id, "queue": None if each.job_id else move.queue_of(each.queue, each.args)}
                    for each in items if each.task == move.old]  # fmt: skip
            moved = self._written("retask_items", move, rows, connection)
            self._note(move, "item", "retasked", moved, connection)
            count += len(moved)
        return count

    def _move_jobs(self, move: Move, jobs: Sequence[Job], before: Sequence[Job], connection: Any) -> int:
        moved: set[int] = set()
        if jobs:
            given = {"ids": codec.text([each.id for each in jobs]), "task": move.old, "new": move.new.name}
            moved |= {row[0] for row in self._store.write("retask_jobs", given, connection)}
        for job in before:
            then = _then(job)
            then = replace(then, task=move.new.name, queue=move.queue_of(then.queue, then.args) or then.queue)
            sequel = {"id": job.id, "then_item": msgspec.json.encode(then).decode()}
            moved |= {row[0] for row in self._store.write("retask_sequel", sequel, connection)}
        self._note(move, "job", "retasked", sorted(moved), connection)
        return len(moved)

    def _written(self, section: str, move: Move, rows: Sequence[Mapping[str, Any]], connection: Any) -> list[int]:
        given = {**move.given, "new": move.new.name, "rows": codec.text(rows), "now": self._now()}
        return [row[0] for row in self._store.write(section, given, connection)] if rows else []

    def _note(self, move: Move, kind: str, action: str, ids: Sequence[int], connection: Any) -> None:
        if ids:
            details = {"from": move.old, "to": move.new.name}
            subjects = [f"{kind}:{each}" for each in ids]
            self._audit.note_each(move.who, f"{kind}.{action}", subjects, details, connection)


def _are_alike(one: Slot, other: Slot) -> bool:
    return (one.of, one.period) == (other.of, other.period)


def _then(job: Job) -> NewItem:
    return msgspec.json.decode(job.then_item or b"", type=NewItem)


def _but(rows: Iterable[Any], refused: Mapping[int, str]) -> list[Any]:
    return [each for each in rows if each.id not in refused]


def _portions(ids: Sequence[int]) -> Iterator[list[int]]:
    left = iter(ids)
    while portion := list(islice(left, STEP)):
        yield portion


def _refusal(listed: Sequence[NotMoved], new: str) -> WrongState:
    named = "; ".join(f"{each.kind} {each.id}: {each.reason}" for each in listed[:NAMED])
    more = f"; and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return WrongState(f"nothing was moved to {new}: {named}{more}; skip them to move the rest")
