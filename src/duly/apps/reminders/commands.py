"""`duly reminders`: reminders that become phone calls, on a database or through a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

import click

from duly.apps.reminders import Reminder, Status, reminders_on
from duly.cli import options, words
from duly.cli.sides import chosen
from duly.core.errors import InputError
from duly.core.model import Placed

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

item = click.argument("reminder_id", type=options.ID, metavar="ID")


class ReminderChange(TypedDict, total=False):
    """What can be changed of a reminder; None: as it is."""

    at: str | None
    phone: str | None
    message: str | None
    name: str | None


class LocalReminders:
    def __init__(self, app: Duly) -> None:
        self._app = app
        self._reminders = reminders_on(app)
        self._who = options.who()

    def page(
        self, most: int, *, status: Status | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[Reminder]:
        return iter(self._reminders.list(most=most, status=status, since=since, until=until))

    def add(self, phone: str, message: str, at: str, key: str | None = None) -> Reminder:
        return self.get(self._app.verbs.items.put(self._who, self._reminders.new(phone, message, at, key=key)).id)

    def get(self, reminder_id: int) -> Reminder:
        return self._reminders.get(reminder_id)

    def edit(self, reminder_id: int, **fields: Unpack[ReminderChange]) -> Reminder:
        given: Any = {name: value for name, value in fields.items() if value is not None}
        return self._reminders.edit(reminder_id, **given, who=self._who)

    def cancel(self, reminder_id: int) -> Reminder:
        return self._reminders.cancel(reminder_id, self._who)

    def retry(self, reminder_id: int) -> Reminder:
        return self._reminders.retry(reminder_id, self._who)


class RemindersClient:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._http = client.http

    def page(
        self, most: int, *, status: Status | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[Reminder]:
        query = {"state": status, "from": since, "to": until}
        return self._http.pages(Reminder, "/api/reminders", most, **query)

    def add(self, phone: str, message: str, at: str, key: str | None = None) -> Reminder:
        made = self._http.post(Placed, "/api/reminders", phone=phone, message=message, at=at, key=key)
        return self.get(made.id)

    def get(self, reminder_id: int) -> Reminder:
        return self._http.get(Reminder, f"/api/reminders/{reminder_id}")

    def edit(self, reminder_id: int, **fields: Unpack[ReminderChange]) -> Reminder:
        return self._http.patch(Reminder, f"/api/reminders/{reminder_id}", **fields)

    def cancel(self, reminder_id: int) -> Reminder:
        self._http.request("POST", f"/api/reminders/{reminder_id}/cancel")
        return self.get(reminder_id)

    def retry(self, reminder_id: int) -> Reminder:
        self.get(reminder_id)  # so that an item of another task is not retried
        self._client.retry(reminder_id)
        return self.get(reminder_id)


def _side() -> AbstractContextManager[LocalReminders | RemindersClient]:
    return chosen(LocalReminders, RemindersClient)


@options.listing(short_help="Reminders that become phone calls.")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only reminders with this status.")
@options.moment_option("--from", "since", help="Planned at or after this time, such as 2026-12-01T09:00+01:00.")
@options.moment_option("--to", "until", help="Planned before this time.")
@options.most()
@options.told
def reminders(most: int, as_json: bool, in_utc: bool, **filters: Any) -> None:
    """List reminders, newest first."""
    with _side() as api:
        found = list(api.page(most, **filters))
    words.print_lines(found, as_json, "there are no reminders", lambda each: _line(each, in_utc))


@reminders.command(name="add")
@click.argument("phone")
@click.argument("message")
@click.option("--at", required=True, metavar="TIME", help="When to call, such as 2026-12-01T09:00+01:00.")
@click.option("--key", help="Schedule it once while one with this key is live.")
@options.told
def add_reminder(phone: str, message: str, at: str, key: str | None, as_json: bool, in_utc: bool) -> None:
    """Call a phone at a time with a message."""
    with _side() as api:
        made = api.add(phone, message, at, key)
    words.print_one(made, as_json, _line(made, in_utc))


@reminders.command(name="show")
@item
@options.told
def show_reminder(reminder_id: int, as_json: bool, in_utc: bool) -> None:
    """Show one reminder."""
    with _side() as api:
        found = api.get(reminder_id)
    words.print_one(found, as_json, _line(found, in_utc))


@reminders.command(name="edit")
@item
@click.option("--at", metavar="TIME", help="Another time to call.")
@click.option("--phone")
@click.option("--message")
@click.option("--name")
@options.told
def edit_reminder(reminder_id: int, as_json: bool, in_utc: bool, **fields: Unpack[ReminderChange]) -> None:
    """Change the time, phone or message of a reminder that waits or has failed."""
    if all(value is None for value in fields.values()):
        raise InputError("edit", "nothing to change; give --at, --phone, --message or --name")
    with _side() as api:
        changed = api.edit(reminder_id, **fields)
    words.print_one(changed, as_json, _line(changed, in_utc))


def _act(name: Literal["cancel", "retry"], doc: str) -> None:
    @reminders.command(name=name, help=doc)
    @item
    @options.told
    def act(reminder_id: int, as_json: bool, in_utc: bool) -> None:
        with _side() as api:
            found = (api.cancel if name == "cancel" else api.retry)(reminder_id)
        words.print_one(found, as_json, _line(found, in_utc))


_act("cancel", "Cancel a reminder, also during its call.")
_act("retry", "Call now: a failed or cancelled reminder with all its tries, a waiting one sooner.")


def _line(each: Reminder, in_utc: bool) -> str:
    when = words.full(each.date_time_utc, datetime.now(UTC), in_utc)
    return f"reminder {each.id} {each.phone}: {each.status}, {when}, {words.cut(each.message, 60)}"


COMMANDS = (reminders,)
