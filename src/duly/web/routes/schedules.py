"""Schedules and slots."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from duly import Slots, codec
from duly.errors import InputError, ItemNotFound
from duly.model import Schedule
from duly.people import Principal
from duly.policy.recur import parse, zone_named
from duly.web.auth import Admin, Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.schemas import (
    BIG,
    After,
    Id,
    MoveOut,
    Page,
    PageSize,
    PreviewIn,
    PreviewOut,
    ScheduleEdit,
    ScheduleIn,
    ScheduleOut,
    SlotOut,
    WordFilter,
)

router = APIRouter(tags=["schedules"])


@router.post("/api/schedules", status_code=201, response_model=ScheduleOut)
def create_schedule(
    new: ScheduleIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a schedule; one per task and key of yours. An existing one is changed to what is said here."""
    options = {
        name: value
        for name in ("catch_up", "max_lateness", "overlap", "rank")
        if (value := getattr(new, name)) is not None
    }
    word, _, number = new.rule.partition(" ")
    rule: Any = Slots(int(number)) if word == "slots" and number.isdecimal() and len(number) < 7 else new.rule

    def act(_: Any) -> tuple[int, Any]:
        made = desk.app.schedules.create(
            new.task, rule, key=principal.scoped(new.key), zone=new.zone, for_owner=principal.owner,
            actor=principal.user_id, **options, **new.args,
        )  # fmt: skip
        desk.app.note(principal.user_id, "schedule.created", f"schedule:{made.id}", {"key": made.key})
        return 201, ScheduleOut.model_validate(shown(desk, find(desk, principal, made.id)))

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("/api/schedules", response_model=Page[ScheduleOut])
def list_schedules(
    desk: At,
    principal: Reader,
    task: WordFilter = None,
    key: WordFilter = None,
    state: Annotated[Literal["active", "paused", "broken"] | None, Query()] = None,
    slot: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    user_id: UserId = None,
    page_size: PageSize = 50,
    after: After = None,
) -> Any:
    """Schedules by id."""
    owner = owner_for(principal, user_id)
    key = principal.scoped(key) if key is not None else None
    filters = {"task": task, "key": key, "state": state, "slot": slot}
    bound = ["schedules", owner, filters]
    place = desk.cursors.read(after, bound) or 0
    rows = desk.app.schedules.owned(owner, after=place, most=page_size + 1, **filters)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: shown(desk, row))


@router.post("/api/schedules/preview", response_model=PreviewOut)
def preview_rule(asked: PreviewIn, desk: At, principal: Reader) -> Any:
    """What a rule means, in words and in its next times."""
    try:
        rule, zone = parse(asked.rule), zone_named(asked.zone)
    except ValueError as error:
        field = "zone" if str(error).startswith("zone:") else "rule"
        raise InputError(field, str(error)) from None
    return {
        "rule": str(rule),
        "describe": rule.describe(zone),
        "next": desk.app.schedules.preview(rule, asked.zone, asked.n),
    }


@router.get("/api/schedules/{schedule_id}", response_model=ScheduleOut)
def show_schedule(schedule_id: Id, desk: At, principal: Reader) -> Any:
    return shown(desk, find(desk, principal, schedule_id))


@router.patch("/api/schedules/{schedule_id}", response_model=ScheduleOut)
def change_schedule(schedule_id: Id, edit: ScheduleEdit, desk: At, principal: Writer) -> Any:
    """Change it; another rule or zone plans anew."""
    find(desk, principal, schedule_id)
    fields = {name: getattr(edit, name) for name in edit.model_fields_set if getattr(edit, name) is not None}
    if not fields:
        raise InputError("body", "says nothing to change")
    desk.app.schedules.change(schedule_id, actor=principal.user_id, **fields)
    return shown(desk, find(desk, principal, schedule_id))


@router.delete("/api/schedules/{schedule_id}", status_code=204)
def remove_schedule(schedule_id: Id, desk: At, principal: Writer) -> None:
    """Remove it, with what still waits of it."""
    find(desk, principal, schedule_id)
    desk.app.schedules.remove(schedule_id, actor=principal.user_id)


@router.post("/api/schedules/{schedule_id}/{act}", response_model=ScheduleOut)
def act_on_schedule(
    schedule_id: Id, act: Literal["pause", "resume", "run", "reactivate"], desk: At, principal: Writer
) -> Any:
    """Pause, resume, run now, or reactivate after too many failures in a row."""
    find(desk, principal, schedule_id)
    acts = {"run": desk.app.schedules.run_now}
    (acts.get(act) or getattr(desk.app.schedules, act))(schedule_id, actor=principal.user_id)
    return shown(desk, find(desk, principal, schedule_id))


@router.get("/api/slots", response_model=list[SlotOut])
def list_slots(desk: At, principal: Admin, ring: WordFilter = None) -> Any:
    """The load of each slot: its active members, of all owners."""
    return desk.app.schedules.slots(ring)


@router.get("/api/slots/{ring}/rebalance", response_model=list[MoveOut])
def preview_rebalance(ring: str, desk: At, principal: Admin, most: Annotated[int, Query(ge=1, le=BIG)] = 1_000) -> Any:
    """Who would have to move so that all slots are even again. Nobody moves by this."""
    return desk.app.schedules.rebalance(ring)[:most]


def find(desk: Desk, principal: Principal, schedule_id: int) -> Schedule:
    found = desk.app.schedules.owned_one(schedule_id, owner_for(principal, None))
    if found is None:
        raise ItemNotFound(f"there is no schedule {schedule_id}")
    return found


def shown(desk: Desk, schedule: Schedule) -> dict[str, Any]:
    values = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    if schedule.owner is not None:
        values["key"] = schedule.key.removeprefix(f"{schedule.owner}/")
    values.update(
        args=desk.masked(codec.decode(schedule.args)),
        keep=None if schedule.keep is None else desk.masked(codec.decode(schedule.keep)),
        describe=desk.app.schedules.describe(schedule),
        state="broken" if schedule.broken_at else "paused" if schedule.paused_at else "active",
    )
    return values
