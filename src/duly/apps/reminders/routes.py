"""Reminders over HTTP: have a phone called, see where that stands, move it to another time, call it off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from duly.apps.reminders import Reminders, Status, plugin
from duly.apps.reminders.calls import Reminder
from duly.apps.reminders.schemas import ReminderEdit, ReminderIn
from duly.core.errors import InputError
from duly.core.model import Placed
from duly.core.shown import Row
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages, placed_status, serving, values
from duly.web.schemas import Id, Moment, out, page_of
from duly.web.schemas.items import Changed, ReasonIn

router = APIRouter(tags=["apps"])

Here = Annotated[Reminders, Depends(serving(plugin))]


@router.post("/api/reminders", status_code=201, response_model=out(Placed), responses={200: {"model": out(Placed)}})
def schedule_reminder(new: ReminderIn, desk: At, reminders: Here, principal: Writer, once: Once) -> Response:
    """Have a phone called at a time and told something. 200: the key has this reminder already."""

    def act(connection: Any) -> Any:
        key = principal.scoped(new.key) if new.key is not None else None
        made = reminders.new(new.phone, new.message, new.at, name=new.name, key=key, owner=principal.owner)
        return desk.app.verbs.items.put(principal, made, connection)

    return once(principal, new, act, status=placed_status)


@router.get("/api/reminders", response_model=page_of(Reminder))
def list_reminders(
    desk: At,
    reminders: Here,
    principal: Reader,
    pages: Pages,
    state: Annotated[Status | None, Query(description="How they stand, in the words of reminders.")] = None,
    since: Annotated[Moment | None, Query(alias="from", description="To be called then or later.")] = None,
    until: Annotated[Moment | None, Query(alias="to", description="To be called before then.")] = None,
    user_id: UserId = None,
) -> Any:
    """The reminders that are yours and fit, newest first, without their tries."""
    owner = owner_for(principal, user_id)

    def find(before: int | None, most: int) -> Sequence[Row]:
        return reminders.page(owner, state, since=since, until=until, before=before, most=most)

    bound = ["reminders", owner, state, str(since), str(until)]
    return pages.turn(bound, find, lambda row: desk.masked(values(reminders.seen(row))))


@router.get("/api/reminders/{reminder_id}", response_model=out(Reminder))
def show_reminder(reminder_id: Id, desk: At, reminders: Here, principal: Reader) -> Any:
    """Where a reminder stands."""
    return _shown(desk, reminders, principal, reminder_id)


@router.patch("/api/reminders/{reminder_id}", response_model=out(Reminder))
def edit_reminder(reminder_id: Id, edit: ReminderEdit, desk: At, reminders: Here, principal: Writer) -> Any:
    """Another time, phone, message or name for a reminder that waits or has failed."""
    said = {name: value for name in edit.model_fields_set if (value := getattr(edit, name)) is not None}
    if not said:
        raise InputError("body", "says nothing to change")
    desk.app.verbs.items.find(principal, reminder_id)
    reminders.edit(reminder_id, **said, who=principal)
    return _shown(desk, reminders, principal, reminder_id)


@router.post("/api/reminders/{reminder_id}/cancel", response_model=out(Changed))
def cancel_reminder(
    reminder_id: Id, desk: At, reminders: Here, principal: Writer, once: Once, reason: ReasonIn | None = None
) -> Response:
    """Call no more; also while it is being called."""
    desk.app.verbs.items.find(principal, reminder_id)
    found = reminders.get(reminder_id)

    def act(connection: Any) -> Any:
        said = reason.reason if reason else ""
        return Changed(desk.app.verbs.items.cancel(principal, found.id, reason=said, connection=connection))

    return once(principal, reason, act)


def _shown(desk: Desk, reminders: Reminders, principal: Principal, reminder_id: int) -> Any:
    desk.app.verbs.items.find(principal, reminder_id)
    return desk.masked(values(reminders.get(reminder_id)))
