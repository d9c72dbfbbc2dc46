"""Reminders over HTTP: have a phone called, and see where that stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from duly.apps.reminders import Reminders, plugin
from duly.apps.reminders.schemas import ReminderIn, ReminderOut
from duly.core.shown import OwnedRow
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Once, Pages, serving, values
from duly.web.schemas import Id, Page
from duly.web.schemas.items import PlacedOut

router = APIRouter(tags=["apps"])

Here = Annotated[Reminders, Depends(serving(plugin))]


@router.post("/api/reminders", status_code=201, response_model=PlacedOut, responses={200: {"model": PlacedOut}})
def schedule_reminder(new: ReminderIn, desk: At, reminders: Here, principal: Writer, once: Once) -> Response:
    """Have a phone called at a time and told something. 200: the key has this reminder already."""

    def act(connection: Any) -> tuple[int, Any]:
        key = principal.scoped(new.key) if new.key is not None else None
        made = reminders.new(new.phone, new.message, new.at, key=key, owner=principal.owner)
        placed = desk.app.verbs.items.put(principal, made, connection)
        return 201 if placed.fresh else 200, PlacedOut.model_validate(placed)

    return once(principal, new, act)


@router.get("/api/reminders", response_model=Page[ReminderOut])
def list_reminders(desk: At, reminders: Here, principal: Reader, pages: Pages, user_id: UserId = None) -> Any:
    """The reminders that are yours, newest first, without their tries."""
    owner = owner_for(principal, user_id)

    def find(before: int | None, most: int) -> Sequence[OwnedRow]:
        return desk.app.read.owned(owner, task=reminders.task.name, before=before, most=most)

    return pages.turn(["reminders", owner], find, lambda row: desk.masked(values(reminders.seen(row))))


@router.get("/api/reminders/{reminder_id}", response_model=ReminderOut)
def show_reminder(reminder_id: Id, desk: At, reminders: Here, principal: Reader) -> Any:
    """Where a reminder stands."""
    desk.app.verbs.items.find(principal, reminder_id)
    return desk.masked(values(reminders.get(reminder_id)))
