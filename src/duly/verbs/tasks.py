"""Tasks: give what waits of one task to another, because the task was renamed, or was misspelt when it was put.

What is moved: items that wait or are in review, schedules, and jobs with what they put at their end. Running items keep
their task: the worker that runs them still has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from duly.core import codec
from duly.core.errors import ConstraintViolated, DulyError, InputError, WrongState
from duly.core.model import Job, NewItem, Revision, Schedule
from duly.core.results import NotMoved, Retasked
from duly.core.unserved import OWN
from duly.tasks.checks import checked_name
from duly.tasks.task import Task
from duly.verbs.context import Principal, VerbGroup

T = TypeVar("T")

# Items that are moved in one transaction, so that others may write meanwhile.
PORTION = 10_000
# Rows that are checked at a time, and refused ones that are named.
STEP, NAMED, LISTED = 1_000, 20, 100
# Items of one task, at most.
MOST = 10_000_000

Reasons = dict[int, str]


class Tasks(VerbGroup):
    def retask(
        self, who: Principal, old: str, new: str, *, skip: bool = False, most: int = PORTION, connection: Any = None
    ) -> Retasked:
        """Give waiting and failed items, schedules and jobs of the task `old` to the task `new`.

        Everything is checked before anything is changed. If something cannot be moved (`new` does not accept its
        arguments, or has its key), nothing is, and the error names each with the reason. With `skip`, the rest is
        moved. At most `most` items are moved in one transaction; `is_more` says that there are more.
        """
        move = _Move(self._named("old", old), self._context.task_named(self._named("new", new)), self._known(old), who)
        if old == new:
            raise InputError("new", "is the same task")
        schedules, jobs, before = self._schedules(move), self._jobs(move, "jobs_of_task"), self._sequels(move)
        ids = self._ids(move)
        refused = {
            "schedule": self._refused_schedules(move, schedules), "job": self._refused_jobs(move, jobs, before),
            "item": self._refused_items(move, ids),
        }  # fmt: skip
        listed = [NotMoved(kind, each, reasons[each]) for kind, reasons in refused.items() for each in sorted(reasons)]  # type: ignore[arg-type]
        if listed and not skip:
            raise _refusal(listed, new)
        allowed = ids
        try:
            with self._context.joining(connection) as own:
                moved = self._move_schedules(move, _but(schedules, refused["schedule"]), own)
                if moved:  # their last items may have come meanwhile
                    fresh = sorted(set(self._ids(move, own)).difference(ids))
                    refused["item"] |= self._refused_items(move, fresh, own)
                    allowed += fresh
                allowed = [item_id for item_id in allowed if item_id not in refused["item"]]
                items = self._move_items(move, allowed[:most], own)
                counted = self._move_jobs(move, _but(jobs, refused["job"]), _but(before, refused["job"]), own)
                about = {"to": new, "items": items, "schedules": moved, "jobs": counted}
                if items or moved or counted:
                    self._audit.note(who, "task.retasked", f"task:{old}", about, own)
        except ConstraintViolated:
            raise WrongState(f"an item of {new} with the same key was put meanwhile; try again") from None
        self._context.depths.forget()
        return Retasked(
            items, moved, counted, self._running(move), listed[:LISTED], len(listed), is_more=len(allowed) > most
        )

    def _named(self, field: str, name: str) -> str:
        if checked_name(field, name).startswith(OWN):
            raise InputError(field, f"{name} is a part of duly itself")
        return name

    def _known(self, name: str) -> Task[..., Any] | None:
        return self._context.tasks().get(name)

    # -- what there is

    def _ids(self, move: _Move, connection: Any = None) -> list[int]:
        given = {**move.given, "most": MOST}
        sections = ("waiting_of_task", "failed_of_task")
        return sorted(row[0] for each in sections for row in self._store.read(each, given, connection))

    def _running(self, move: _Move) -> int:
        return int(self._store.read("running_of_task", move.given)[0][0])

    def _schedules(self, move: _Move) -> list[Schedule]:
        found: list[Schedule] = []
        given = {**dict.fromkeys(("ring", "slot", "key", "state")), **move.given, "most": STEP}
        while page := self._rows(Schedule, "schedules", {**given, "after": found[-1].id if found else 0}):
            found += page
        return found

    def _jobs(self, move: _Move, section: str) -> list[Job]:
        return self._rows(Job, section, move.given)

    def _rows(self, kind: type[T], section: str, given: Mapping[str, Any]) -> list[T]:
        return [kind(*row) for row in self._store.read(section, given)]

    def _sequels(self, move: _Move) -> list[Job]:
        return self._jobs(move, "jobs_before_task")

    # -- what cannot be moved

    def _refused_items(self, move: _Move, ids: Sequence[int], connection: Any = None) -> Reasons:
        refused: Reasons = {}
        for portion in _portions(ids):
            given = {"ids": codec.text(portion), "task": move.new.name}
            for row in self._store.read("key_is_taken", given, connection):
                refused[row[0]] = f"an item of {move.new.name} has its key"
            for item in self._store.fetch(portion, connection):
                if reason := move.objection(item.args, item.job_id is not None):
                    refused[item.id] = reason
        return refused

    def _refused_schedules(self, move: _Move, schedules: Iterable[Schedule]) -> Reasons:
        # One that code declares is declared under its new name, or will be: then the old one is not needed.
        taken = self._taken("schedule_is_taken", move)
        reasons = {each.id: move.objection(each.args, is_row=False) for each in schedules}
        kept = {each.id for each in schedules if each.id in taken and not each.is_declared}
        reasons |= dict.fromkeys(kept, f"a schedule of {move.new.name} has its key")
        return {each: reason for each, reason in reasons.items() if reason}

    def _refused_jobs(self, move: _Move, jobs: Iterable[Job], before: Iterable[Job]) -> Reasons:
        taken = self._taken("job_is_taken", move)
        reasons = {each.id: f"a job of {move.new.name} has its key" for each in jobs if each.id in taken}
        for job in before:
            if reason := move.objection(_then(job).args, is_row=False):
                reasons[job.id] = f"what it puts at its end: {reason}"
        return reasons

    def _taken(self, section: str, move: _Move) -> set[int]:
        return {row[0] for row in self._store.read(section, {"task": move.old, "new": move.new.name})}

    # -- the move. Locks are taken in the order in which settling takes them: schedules, items, jobs.

    def _move_schedules(self, move: _Move, schedules: Sequence[Schedule], connection: Any) -> int:
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

    def _move_items(self, move: _Move, ids: Sequence[int], connection: Any) -> int:
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

    def _move_jobs(self, move: _Move, jobs: Sequence[Job], before: Sequence[Job], connection: Any) -> int:
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

    def _written(self, section: str, move: _Move, rows: Sequence[Mapping[str, Any]], connection: Any) -> list[int]:
        given = {**move.given, "new": move.new.name, "rows": codec.text(rows), "now": self._now()}
        return [row[0] for row in self._store.write(section, given, connection)] if rows else []

    def _note(self, move: _Move, kind: str, action: str, ids: Sequence[int], connection: Any) -> None:
        if ids:
            details = {"from": move.old, "to": move.new.name}
            subjects = [f"{kind}:{each}" for each in ids]
            self._audit.note_each(move.who, f"{kind}.{action}", subjects, details, connection)


class _Move:
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
