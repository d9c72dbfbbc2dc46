"""`duly reminders`: who is called when, on a database or through a service."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

import click

from duly.apps.reminders import Reminder, Status, reminders_on
from duly.cli import options, words
from duly.cli.sides import chosen, read_as, snake
from duly.core.errors import InputError

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

item = click.argument("reminder_id", type=options.ID, metavar="ID")


class _Here:
    """On the database that the settings name."""

    def __init__(self, app: Duly) -> None:
        self._app = app
        self._reminders = reminders_on(app)

    def page(self, most: int, filters: dict[str, Any]) -> list[Reminder]:
        return list(self._reminders.list(most=most, **filters))

    def add(self, said: dict[str, Any]) -> Reminder:
        placed = self._app.verbs.items.put(options.who(), self._reminders.new(**said))
        return self.show(placed.id)

    def show(self, reminder_id: int) -> Reminder:
        return self._reminders.get(reminder_id)

    def edit(self, reminder_id: int, said: dict[str, Any]) -> Reminder:
        return self._reminders.edit(reminder_id, **said, who=options.who())

    def act(self, act: str, reminder_id: int) -> Reminder:
        reminders = self._reminders
        return (reminders.cancel if act == "cancel" else reminders.retry)(reminder_id, options.who())


class _There:
    """Through a service."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def page(self, most: int, filters: dict[str, Any]) -> list[Reminder]:
        said = {"state": filters["status"], "from": filters["since"], "to": filters["until"]}
        return [_read(each) for each in islice(self._client.pages("/api/reminders", said), most)]

    def add(self, said: dict[str, Any]) -> Reminder:
        given = {name: value for name, value in said.items() if value}
        return self.show(self._client.request("POST", "/api/reminders", given)["id"])

    def show(self, reminder_id: int) -> Reminder:
        return _read(self._client.request("GET", f"/api/reminders/{reminder_id}"))

    def edit(self, reminder_id: int, said: dict[str, Any]) -> Reminder:
        return _read(self._client.request("PATCH", f"/api/reminders/{reminder_id}", said))

    def act(self, act: str, reminder_id: int) -> Reminder:
        self.show(reminder_id)
        if act == "cancel":
            self._client.request("POST", f"/api/reminders/{reminder_id}/cancel")
        else:
            self._client.retry(reminder_id)
        return self.show(reminder_id)


def _read(told: dict[str, Any]) -> Reminder:
    return read_as(Reminder, told, attempts=[snake(each) for each in told["attempts"]])


def _side() -> Any:
    return chosen(_Here, _There)


@options.listing(short_help="Reminders that become phone calls.")
@click.option("--status", type=click.Choice(get_args(Status)), help="How they stand.")
@click.option("--from", "since", metavar="TIME", help="To be called then or later, such as 2026-12-01T09:00+01:00.")
@click.option("--to", "until", metavar="TIME", help="To be called before then.")
@options.most()
@options.told
def reminders(most: int, as_json: bool, in_utc: bool, **filters: Any) -> None:
    """List reminders, newest first."""
    with _side() as place:
        found: list[Reminder] = place.page(most, filters)
    words.print_lines(found, as_json, "there are no reminders", lambda each: _line(each, in_utc))


@reminders.command(name="add")
@click.argument("phone")
@click.argument("message")
@click.option("--at", required=True, metavar="TIME", help="When to call, such as 2026-12-01T09:00+01:00.")
@click.option("--key", help="Schedule it once while one with this key is live.")
@options.told
def add_reminder(as_json: bool, in_utc: bool, **said: Any) -> None:
    """Have a phone called at a time and told something."""
    with _side() as place:
        made = place.add(said)
    words.print_one(made, as_json, _line(made, in_utc))


@reminders.command(name="show")
@item
@options.told
def show_reminder(reminder_id: int, as_json: bool, in_utc: bool) -> None:
    """Where a reminder stands."""
    with _side() as place:
        found = place.show(reminder_id)
    words.print_one(found, as_json, _line(found, in_utc))


@reminders.command(name="edit")
@item
@click.option("--at", metavar="TIME", help="Another time to call.")
@click.option("--phone")
@click.option("--message")
@click.option("--name")
@options.told
def edit_reminder(reminder_id: int, as_json: bool, in_utc: bool, **said: Any) -> None:
    """Another time, phone or message for a reminder that waits or has failed."""
    given = {name: value for name, value in said.items() if value is not None}
    if not given:
        raise InputError("edit", "say what: --at, --phone, --message or --name")
    with _side() as place:
        changed = place.edit(reminder_id, given)
    words.print_one(changed, as_json, _line(changed, in_utc))


def _act(name: str, doc: str) -> None:
    @reminders.command(name=name, help=doc)
    @item
    @options.told
    def act(reminder_id: int, as_json: bool, in_utc: bool) -> None:
        with _side() as place:
            found = place.act(name, reminder_id)
        words.print_one(found, as_json, _line(found, in_utc))


_act("cancel", "Call no more; also while it is being called.")
_act("retry", "Call now: a failed or cancelled reminder with all its tries, a waiting one sooner.")


def _line(each: Reminder, in_utc: bool) -> str:
    when = words.full(each.date_time_utc, datetime.now(UTC), in_utc)
    return f"reminder {each.id} {each.phone}: {each.status}, {when}, {words.cut(each.message, 60)}"


COMMANDS = (reminders,)
