"""Reminders over HTTP: schedule a call, show its status, move and cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query
from msgspec.structs import asdict
from pydantic import AfterValidator, StringConstraints

from duly.apps.reminders import Reminders, Status, plugin
from duly.apps.reminders.calls import Reminder
from duly.core.model import Placed
from duly.core.shown import Row
from duly.web.auth import Owner, Reader, Writer
from duly.web.desk import Pages, Verbs, masked, serving
from duly.web.routing import Router, Transaction
from duly.web.schemas import Changed, Id, Key, Model, Moment, Page, ReasonIn, clean, example

router = Router(tags=["apps"])

Here = Annotated[Reminders, Depends(serving(plugin))]
PhoneText = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(clean)]
MessageText = Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class ReminderIn(Model, **example(phone="+385 1 234 567", message="Dentist at 9", at="2026-12-01T09:00:00+01:00")):
    phone: PhoneText
    message: MessageText
    at: Moment
    name: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] = ""
    key: Key | None = None


class ReminderEdit(Model, **example(at="2026-12-01T10:00:00+01:00")):
    at: Moment | None = None
    phone: PhoneText | None = None
    message: MessageText | None = None
    name: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] | None = None


@router.post("/api/reminders", status_code=201)
def schedule_reminder(
    new: ReminderIn, verbs: Verbs, reminders: Here, principal: Writer, connection: Transaction
) -> Placed[Any]:
    """Call a phone at a time and read out a message. 200: the key has this reminder already."""
    key = principal.scoped(new.key) if new.key is not None else None
    made = reminders.new(new.phone, new.message, new.at, name=new.name, key=key, owner=principal.owner)
    return verbs.items.put(principal, made, connection)


@router.get("/api/reminders")
def list_reminders(
    verbs: Verbs,
    reminders: Here,
    principal: Reader,
    pages: Pages,
    owner: Owner,
    state: Annotated[Status | None, Query(description="How they stand, in the words of reminders.")] = None,
    since: Annotated[Moment | None, Query(alias="from", description="To be called then or later.")] = None,
    until: Annotated[Moment | None, Query(alias="to", description="To be called before then.")] = None,
) -> Page[Reminder]:
    """The reminders that are yours and fit, newest first, without their tries."""

    def find(before: int | None, most: int) -> Sequence[Row]:
        return reminders.page(owner, state, since=since, until=until, before=before, most=most)

    return pages.turn(find, lambda row: _shown(verbs, reminders.seen(row)))


@router.get("/api/reminders/{reminder_id}")
def show_reminder(reminder_id: Id, verbs: Verbs, reminders: Here, principal: Reader) -> Reminder:
    """Where a reminder stands."""
    verbs.items.find(principal, reminder_id)
    return _shown(verbs, reminders.get(reminder_id))


@router.patch("/api/reminders/{reminder_id}")
def edit_reminder(reminder_id: Id, edit: ReminderEdit, verbs: Verbs, reminders: Here, principal: Writer) -> Reminder:
    """Another time, phone, message or name for a reminder that waits or has failed."""
    changes = edit.changes()
    verbs.items.find(principal, reminder_id)
    return _shown(verbs, reminders.edit(reminder_id, **changes, who=principal))


@router.post("/api/reminders/{reminder_id}/cancel")
def cancel_reminder(
    reminder_id: Id,
    verbs: Verbs,
    reminders: Here,
    principal: Writer,
    connection: Transaction,
    body: ReasonIn | None = None,
) -> Changed:
    """Cancel a reminder, also while it is being called."""
    verbs.items.find(principal, reminder_id)
    found, reason = reminders.get(reminder_id), body.reason if body else ""
    return Changed(verbs.items.cancel(principal, found.id, reason=reason, connection=connection))


def _shown(verbs: Verbs, reminder: Reminder) -> Reminder:
    return Reminder(**masked(verbs, asdict(reminder)))
