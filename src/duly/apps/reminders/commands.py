"""`duly reminders`: reminders that become phone calls, on a database or through a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from duly import Duly
from duly.apps.reminders import Reminder, Status, reminders_on
from duly.cli import options, words
from duly.cli.session import Session, printing_times
from duly.core.model import Placed

if TYPE_CHECKING:
    from duly.client import Client

item = click.argument("reminder_id", type=options.ID, metavar="ID")


@options.listing(short_help="Reminders that become phone calls.")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only reminders with this status.")
@options.moment_option("--from", "since", help="Planned at or after this time, such as 2026-12-01T09:00+01:00.")
@options.moment_option("--to", "until", help="Planned before this time.")
@options.most()
@printing_times
def reminders(session: Session, most: int, status: Status | None, **times: Any) -> None:
    """List reminders, newest first."""
    query = {"state": status, "from": times["since"], "to": times["until"]}
    found = session.either(
        lambda app: list(reminders_on(app).list(status, most, **times)),
        lambda client: list(client.http.pages(Reminder, "/api/reminders", most, **query)),
    )
    session.print_lines(found, "there are no reminders", lambda each: _line(session, each))


@reminders.command(name="add")
@click.argument("phone")
@click.argument("message")
@click.option("--at", required=True, metavar="TIME", help="When to call, such as 2026-12-01T09:00+01:00.")
@click.option("--key", help="Schedule it once while one with this key is live.")
@printing_times
def add_reminder(session: Session, **fields: Any) -> None:
    """Call a phone at a time with a message."""

    def local(app: Duly) -> Reminder:
        reminders = reminders_on(app)
        return reminders.get(app.internals.verbs.items.put(options.who(), reminders.new(**fields)).id)

    def remote(client: Client) -> Reminder:
        return _get(client, client.http.post(Placed, "/api/reminders", **fields).id)

    _print(session, session.either(local, remote))


@reminders.command(name="show")
@item
@printing_times
def show_reminder(session: Session, reminder_id: int) -> None:
    """Show one reminder."""
    found = session.either(lambda app: reminders_on(app).get(reminder_id), lambda client: _get(client, reminder_id))
    _print(session, found)


@reminders.command(name="edit")
@item
@click.option("--at", metavar="TIME", help="Another time to call.")
@click.option("--phone")
@click.option("--message")
@click.option("--name")
@printing_times
def edit_reminder(session: Session, reminder_id: int, **fields: Any) -> None:
    """Change the time, phone or message of a reminder that waits or has failed."""
    given = options.given_any(fields, "edit")
    changed = session.either(
        lambda app: reminders_on(app).edit(reminder_id, **given, who=options.who()),
        lambda client: client.http.patch(Reminder, _path(reminder_id), **given),
    )
    _print(session, changed)


def _act(name: Literal["cancel", "retry"], doc: str) -> None:
    @reminders.command(name=name, help=doc)
    @item
    @printing_times
    def act(session: Session, reminder_id: int) -> None:
        def local(app: Duly) -> Reminder:
            reminders = reminders_on(app)
            return (reminders.cancel if name == "cancel" else reminders.retry)(reminder_id, options.who())

        def remote(client: Client) -> Reminder:
            _get(client, reminder_id)  # so that an item of another task is not changed
            (client.cancel if name == "cancel" else client.retry)(reminder_id)
            return _get(client, reminder_id)

        _print(session, session.either(local, remote))


_act("cancel", "Cancel a reminder, also during its call.")
_act("retry", "Call now: a failed or cancelled reminder with all its tries, a waiting one sooner.")


def _path(reminder_id: int) -> str:
    return f"/api/reminders/{reminder_id}"


def _get(client: Client, reminder_id: int) -> Reminder:
    return client.http.get(Reminder, _path(reminder_id))


def _print(session: Session, reminder: Reminder) -> None:
    session.print_one(reminder, _line(session, reminder))


def _line(session: Session, each: Reminder) -> str:
    when = session.full(each.date_time_utc)
    return f"reminder {each.id} {each.phone}: {each.status}, {when}, {words.cut(each.message, 60)}"


COMMANDS = (reminders,)
