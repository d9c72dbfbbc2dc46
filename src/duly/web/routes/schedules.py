"""Schedules and slots."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query
from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field

from duly.core import codec
from duly.core.model import CatchUp, Overlap, Schedule
from duly.core.results import RulePreview, ScheduleAction, SlotLoad
from duly.core.shown import ScheduleStory, ShownSchedule
from duly.core.wire import Doc
from duly.verbs.schedules import OPTIONS
from duly.verbs.timetable import Move, rule_or_slots, rule_preview
from duly.web.auth import Admin, Owner, Reader, Writer
from duly.web.desk import App, Pages, Verbs, masked, open_task
from duly.web.routes.queues import line_shown
from duly.web.routing import Router, Transaction, repeatable
from duly.web.schemas import (
    BIG,
    Args,
    Changed,
    Id,
    Key,
    Model,
    Name,
    Page,
    Rank,
    Rule,
    Seconds,
    Selection,
    Word,
    WordFilter,
    example,
)

router = Router(tags=["schedules"])

Shown = TypeVar("Shown", bound=ShownSchedule)

SLOTS = 10_000  # of all rings together; give a ring to see the others


class ScheduleOptions(Model):
    catch_up: CatchUp | None = None
    max_lateness: Seconds | None = None
    overlap: Overlap | None = None
    rank: Rank | None = None


class ScheduleIn(
    ScheduleOptions,
    **example(
        task="http", key="nightly", rule="daily 02:30", zone="Europe/Zagreb", args={"url": "https://example.com/hook"}
    ),
):
    task: Word
    key: Key
    rule: Rule = Field(
        description="`daily 09:00`, `weekly mon,fri 08:00`, `every 15m`, five fields of cron, or `slots 24`."
    )
    zone: Word = "UTC"
    args: Args = Field(default_factory=dict)


class ScheduleEdit(ScheduleOptions, **example(rule="daily 03:30", overlap="skip")):
    rule: Rule | None = None
    zone: Word | None = None
    args: Args | None = None


class SchedulesAct(Selection, **example(action="pause", ids=[7, 8])):
    action: ScheduleAction


class ReactivateSchedulesIn(Model, **example(task="http", cause="duly.outbound.http.TimedOut", run=True)):
    task: Word | None = None
    cause: str | None = Field(
        None, max_length=500, description="The error class of their last item; empty: their last item is gone."
    )
    run: bool = Field(False, description="Also make an item of each now.")


class ReactivatedSchedules(Struct, frozen=True):
    reactivated: int
    is_more: Annotated[bool, Doc("There are more; send the request again.")]


class PreviewIn(Model, **example(rule="weekly mon,fri 08:00", zone="Europe/Zagreb", n=3)):
    rule: Rule
    zone: Word = "UTC"
    n: Annotated[int, Field(ge=1, le=100)] = 5


@router.post("/api/schedules", status_code=201)
def create_schedule(
    new: ScheduleIn, app: App, verbs: Verbs, principal: Writer, connection: Transaction
) -> ShownSchedule:
    """Create a schedule. If you have one with this task and key already, it is changed to this."""
    options = {name: value for name in OPTIONS if (value := getattr(new, name)) is not None}
    task, rule = open_task(app, new.task), rule_or_slots(new.rule)
    made = verbs.schedules.create(principal, task, rule, new.args, key=new.key, connection=connection, **options)
    return shown(verbs, made)


@router.get("/api/schedules")
def list_schedules(
    verbs: Verbs,
    principal: Reader,
    pages: Pages,
    owner: Owner,
    task: WordFilter = None,
    key: WordFilter = None,
    state: Annotated[Literal["active", "paused", "broken"] | None, Query()] = None,
    ring: WordFilter = None,
    slot: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    key_contains: Annotated[Word | None, Query(alias="keyContains", description="A part of the key.")] = None,
    sort: Annotated[Literal["id", "next"], Query(description="next: by their next time.")] = "id",
    after_id: Annotated[int, Query(alias="afterId", ge=0, le=BIG, description="Only those with a larger id.")] = 0,
) -> Page[ShownSchedule]:
    """The schedules that match, by id or by their next time.

    Filters without an index are checked schedule by schedule, at most 20,000 for a page. `next` continues from there,
    even where a page has no rows.
    """
    filters: dict[str, Any] = {"task": task, "key": key, "state": state, "ring": ring, "slot": slot}
    if key_contains is not None or sort == "next" or (state == "broken" and not after_id):
        options = {**filters, "contains": key_contains, "by_next": sort == "next"}
        rows, following = pages.walk(
            lambda after, most: verbs.schedules.search(owner, after=after, most=most, **options)
        )
        return Page([shown(verbs, row) for row in rows], following)
    return pages.turn(
        lambda after, most: verbs.schedules.page(owner=owner, after=max(after or 0, after_id), most=most, **filters),
        lambda row: shown(verbs, row),
    )


@router.post("/api/schedules/preview")
@repeatable("it only reads")
def preview_rule(asked: PreviewIn, app: App, principal: Reader) -> RulePreview:
    """Describe a rule in words, with its next times."""
    return rule_preview(asked.rule, asked.zone, app.clock.now(), asked.n)


@router.post("/api/schedules/act")
def act_on_schedules(body: SchedulesAct, verbs: Verbs, principal: Writer, connection: Transaction) -> Changed:
    """Pause, resume, run, reactivate or remove a selection of schedules, in one transaction: all of them, or none.

    If one of them cannot be changed, the answer is 409 (404 if none of those exists) and names each with the reason.
    With `skip`, such schedules are left as they are. Returns the ids that were changed.
    """
    return Changed(verbs.schedules.act(principal, body.action, body.ids, skip=body.skip, connection=connection))


@router.post("/api/schedules/reactivate")
def reactivate_schedules(
    asked: ReactivateSchedulesIn, verbs: Verbs, principal: Writer, connection: Transaction
) -> ReactivatedSchedules:
    """Reactivate schedules that were deactivated after repeated failures, by task and cause, a portion at a time."""
    done, is_more = verbs.schedules.reactivate_all(
        principal, asked.task, cause=asked.cause, run_now=asked.run, connection=connection
    )
    return ReactivatedSchedules(done, is_more)


@router.get("/api/schedules/{schedule_id}")
def show_schedule(
    schedule_id: Id, verbs: Verbs, principal: Reader, ahead: Annotated[int, Query(ge=1, le=100)] = 5
) -> ScheduleStory:
    """One schedule with its next times, its latest items and its audit log."""
    story = verbs.schedules.story(verbs.schedules.reached(principal, schedule_id), ahead)
    return replace(_masked(verbs, story), audit=[line_shown(verbs, line) for line in story.audit])


@router.patch("/api/schedules/{schedule_id}")
def change_schedule(schedule_id: Id, edit: ScheduleEdit, verbs: Verbs, principal: Writer) -> ShownSchedule:
    """Change a schedule. With another rule or zone its next time is computed again."""
    known = verbs.schedules.reached(principal, schedule_id)
    fields = edit.changes()
    if edit.args is not None:
        fields["args"] = verbs.context.masks.unmasked(edit.args, codec.decode(known.args))
    return shown(verbs, verbs.schedules.change(principal, schedule_id, **fields))


@router.delete("/api/schedules/{schedule_id}", status_code=204)
def remove_schedule(schedule_id: Id, verbs: Verbs, principal: Writer) -> None:
    """Remove a schedule, and cancel those of its items that wait."""
    verbs.schedules.remove(principal, schedule_id)


@router.post("/api/schedules/{schedule_id}/{act}")
def act_on_schedule(
    schedule_id: Id,
    act: Literal["pause", "resume", "run", "reactivate"],
    verbs: Verbs,
    principal: Writer,
    connection: Transaction,
) -> ShownSchedule:
    """Pause, resume or run a schedule, or reactivate it after repeated failures."""
    verbs.schedules.act(principal, act, [schedule_id], connection=connection)
    return shown(verbs, verbs.schedules.reached(principal, schedule_id, connection))


@router.get("/api/slots")
def list_slots(verbs: Verbs, principal: Admin, ring: WordFilter = None) -> list[SlotLoad]:
    """The number of active members in each slot, of all owners."""
    return verbs.schedules.slots(ring)[:SLOTS]


@router.get("/api/slots/{ring:path}/rebalance")
def preview_rebalance(
    ring: Name, verbs: Verbs, principal: Admin, most: Annotated[int, Query(ge=1, le=BIG)] = 1_000
) -> list[Move]:
    """The schedules that would have to move to make all slots even. Nothing is moved."""
    return verbs.schedules.rebalance(ring)[:most]


def shown(verbs: Verbs, schedule: Schedule) -> ShownSchedule:
    """The schedule with its JSON decoded, secrets masked, and its key as its owner knows it."""
    return _masked(verbs, verbs.schedules.shown(schedule))


def _masked(verbs: Verbs, known: Shown) -> Shown:
    key = known.key if known.owner is None else known.key.removeprefix(f"{known.owner}/")
    return replace(known, key=key, args=masked(verbs, known.args), keep=masked(verbs, known.keep))
