"""Schedules and slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from msgspec.structs import replace

from duly.core import codec
from duly.core.errors import InputError
from duly.core.model import Schedule
from duly.core.policy.recur import Slots, parse, zone_named
from duly.core.results import RulePreview, SlotLoad
from duly.core.shown import ScheduleStory, ShownSchedule
from duly.verbs.schedules import OPTIONS
from duly.verbs.timetable import Move
from duly.web.auth import Admin, Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages
from duly.web.schemas import BIG, Id, Name, Word, WordFilter, list_of, out, page_of
from duly.web.schemas.items import Changed
from duly.web.schemas.schedules import (
    PreviewIn,
    ReactivatedSchedules,
    ReactivateSchedulesIn,
    ScheduleEdit,
    ScheduleIn,
    SchedulesAct,
)

router = APIRouter(tags=["schedules"])

SLOTS = 10_000  # of all rings together; give a ring to see the others


@router.post("/api/schedules", status_code=201, response_model=out(ShownSchedule))
def create_schedule(new: ScheduleIn, desk: At, principal: Writer, once: Once) -> Response:
    """Create a schedule. If you have one with this task and key already, it is changed to this."""

    def act(connection: Any) -> Any:
        options = {name: value for name in OPTIONS if (value := getattr(new, name)) is not None}
        made = desk.app.verbs.schedules.create(
            principal, desk.task(new.task), _rule(new.rule), new.args, key=new.key, connection=connection, **options
        )
        return shown(desk, made)

    return once(principal, new, act)


@router.get("/api/schedules", response_model=page_of(ShownSchedule))
def list_schedules(
    desk: At,
    principal: Reader,
    pages: Pages,
    task: WordFilter = None,
    key: WordFilter = None,
    state: Annotated[Literal["active", "paused", "broken"] | None, Query()] = None,
    ring: WordFilter = None,
    slot: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    key_contains: Annotated[Word | None, Query(alias="keyContains", description="A part of the key.")] = None,
    sort: Annotated[Literal["id", "next"], Query(description="next: by their next time.")] = "id",
    after_id: Annotated[int, Query(alias="afterId", ge=0, le=BIG, description="Only those with a larger id.")] = 0,
    user_id: UserId = None,
) -> Any:
    """The schedules that match, by id or by their next time.

    Filters without an index are checked schedule by schedule, at most 20,000 for a page. `next` continues from there,
    even where a page has no rows.
    """
    owner = owner_for(principal, user_id)
    filters: dict[str, Any] = {"task": task, "key": key, "state": state, "ring": ring, "slot": slot}
    if key_contains is not None or sort == "next" or (state == "broken" and not after_id):
        schedules, by_next = desk.app.verbs.schedules, sort == "next"

        def search(after: Any, most: int) -> tuple[Sequence[Schedule], Any]:
            return schedules.search(owner, contains=key_contains, by_next=by_next, after=after, most=most, **filters)

        rows, following = pages.walk(["schedules", owner, filters, key_contains, sort], search)
        return {"items": [shown(desk, row) for row in rows], "next": following}

    def find(after: int | None, most: int) -> Sequence[Schedule]:
        return desk.app.verbs.schedules.page(owner=owner, after=max(after or 0, after_id), most=most, **filters)

    return pages.turn(["schedules", owner, filters, after_id], find, lambda row: shown(desk, row))


@router.post("/api/schedules/preview", response_model=out(RulePreview))
def preview_rule(asked: PreviewIn, desk: At, principal: Reader) -> Any:
    """Describe a rule in words, with its next times."""
    try:
        rule, zone = parse(asked.rule), zone_named(asked.zone)
    except ValueError as error:
        field = "zone" if str(error).startswith("zone:") else "rule"
        raise InputError(field, str(error).removeprefix(f"{field}: ")) from None
    schedules = desk.app.verbs.schedules
    times = schedules.preview(rule, asked.zone, asked.n)
    notes = schedules.clock_notes(rule, asked.zone, times)
    return RulePreview(str(rule), rule.describe(zone), times, notes)


@router.post("/api/schedules/act", response_model=out(Changed))
def act_on_schedules(body: SchedulesAct, desk: At, principal: Writer, once: Once) -> Response:
    """Pause, resume, run, reactivate or remove a selection of schedules, in one transaction: all of them, or none.

    If one of them cannot be changed, the answer is 409 (404 if none of those exists) and names each with the reason.
    With `skip`, such schedules are left as they are. Returns the ids that were changed.
    """

    def act(connection: Any) -> Any:
        schedules = desk.app.verbs.schedules
        return Changed(schedules.act(principal, body.action, body.ids, skip=body.skip, connection=connection))

    return once(principal, body, act)


@router.post("/api/schedules/reactivate", response_model=out(ReactivatedSchedules))
def reactivate_schedules(asked: ReactivateSchedulesIn, desk: At, principal: Writer) -> Any:
    """Reactivate schedules that were deactivated after repeated failures, by task and cause, a portion at a time."""
    done, is_more = desk.app.verbs.schedules.reactivate_all(principal, asked.task, cause=asked.cause, run_now=asked.run)
    return ReactivatedSchedules(done, is_more)


@router.get("/api/schedules/{schedule_id}", response_model=out(ScheduleStory))
def show_schedule(schedule_id: Id, desk: At, principal: Reader, ahead: Annotated[int, Query(ge=1, le=100)] = 5) -> Any:
    """One schedule with its next times, its latest items and its audit log."""
    schedules = desk.app.verbs.schedules
    found = schedules.reached(principal, schedule_id)
    story = schedules.story(found, ahead)
    audit = [replace(line, details=desk.masked(line.details)) for line in story.audit]
    return replace(story, **_masked(desk, found), audit=audit)


@router.patch("/api/schedules/{schedule_id}", response_model=out(ShownSchedule))
def change_schedule(schedule_id: Id, edit: ScheduleEdit, desk: At, principal: Writer) -> Any:
    """Change a schedule. With another rule or zone its next time is computed again."""
    schedules = desk.app.verbs.schedules
    known = schedules.reached(principal, schedule_id)
    fields = {name: value for name in edit.model_fields_set if (value := getattr(edit, name)) is not None}
    if not fields:
        raise InputError("body", "must have at least one field to change")
    if edit.args is not None:
        fields["args"] = desk.unmasked(edit.args, codec.decode(known.args))
    return shown(desk, schedules.change(principal, schedule_id, **fields))


@router.delete("/api/schedules/{schedule_id}", status_code=204)
def remove_schedule(schedule_id: Id, desk: At, principal: Writer) -> None:
    """Remove a schedule, and cancel those of its items that wait."""
    desk.app.verbs.schedules.remove(principal, schedule_id)


@router.post("/api/schedules/{schedule_id}/{act}", response_model=out(ShownSchedule))
def act_on_schedule(
    schedule_id: Id, act: Literal["pause", "resume", "run", "reactivate"], desk: At, principal: Writer, once: Once
) -> Response:
    """Pause, resume or run a schedule, or reactivate it after repeated failures."""
    schedules = desk.app.verbs.schedules
    acts = {
        "pause": schedules.pause, "resume": schedules.resume, "run": schedules.run_now,
        "reactivate": schedules.reactivate,
    }  # fmt: skip

    def carry_out(connection: Any) -> Any:
        acts[act](principal, schedule_id, connection=connection)
        return shown(desk, schedules.reached(principal, schedule_id, connection))

    return once(principal, None, carry_out)


@router.get("/api/slots", response_model=list_of(SlotLoad))
def list_slots(desk: At, principal: Admin, ring: WordFilter = None) -> Any:
    """The number of active members in each slot, of all owners."""
    return desk.app.verbs.schedules.slots(ring)[:SLOTS]


@router.get("/api/slots/{ring:path}/rebalance", response_model=list_of(Move))
def preview_rebalance(ring: Name, desk: At, principal: Admin, most: Annotated[int, Query(ge=1, le=BIG)] = 1_000) -> Any:
    """The schedules that would have to move to make all slots even. Nothing is moved."""
    return desk.app.verbs.schedules.rebalance(ring)[:most]


def _rule(text: str) -> Any:
    """A rule, or `slots 24`: a slot in the ring of the task."""
    word, _, number = text.partition(" ")
    if word != "slots" or not number.isdecimal() or len(number) > 6:
        return text
    try:
        return Slots(int(number))
    except ValueError as error:
        raise InputError("rule", str(error)) from None


def shown(desk: Desk, schedule: Schedule) -> ShownSchedule:
    """The schedule with its JSON decoded, secrets masked, and its key as its owner knows it."""
    return replace(desk.app.verbs.schedules.shown(schedule), **_masked(desk, schedule))


def _masked(desk: Desk, schedule: Schedule) -> dict[str, Any]:
    """What a service shows otherwise than a database: its secrets and its key."""
    known = desk.app.verbs.schedules.shown(schedule)
    key = known.key if known.owner is None else known.key.removeprefix(f"{known.owner}/")
    return {"key": key, "args": desk.masked(known.args), "keep": desk.masked(known.keep)}
