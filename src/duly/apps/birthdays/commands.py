"""`duly people`: the people who are greeted on their birthdays.

On a database they are those that code added, through a service those of the user whose key is used.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click
from msgspec.structs import asdict

from duly import Duly
from duly.apps.birthdays import Person, birthdays_on
from duly.apps.birthdays.greetings import PersonStory
from duly.cli import options
from duly.cli.session import Session, acting, printing_times, session

someone = click.argument("person_id", metavar="ID")
leap = click.option(
    "--leap", type=click.Choice(["feb28", "mar1", "skip"]), help="When people born on 29 February are greeted."
)
acting_with_times = session(options.in_utc)


@options.listing(short_help="People who are greeted on their birthdays.")
@options.most()
@printing_times
def people(session: Session, most: int) -> None:
    """List people in the order in which they were added."""
    found = session.either(
        lambda app: list(birthdays_on(app).list(most)),
        lambda client: list(client.http.pages(Person, "/api/people", most)),
    )
    session.print_lines(found, "there are no people", lambda each: _line(session, each))


@people.command(name="add")
@someone
@click.argument("first_name")
@click.argument("last_name")
@click.argument("birthday")
@click.argument("zone")
@leap
@acting_with_times
def add_person(session: Session, person_id: str, leap: str | None, **fields: Any) -> None:
    """Add a person: BIRTHDAY is YYYY-MM-DD or MM-DD, ZONE such as Europe/Zagreb."""
    given = {**fields, "leap": leap or "feb28"}
    made = session.either(
        lambda app: birthdays_on(app).add(person_id, **given, actor=options.who().user_id),
        lambda client: client.http.post(Person, "/api/people", id=person_id, **given),
    )
    click.echo(_line(session, made))


@people.command(name="show")
@someone
@printing_times
def show_person(session: Session, person_id: str) -> None:
    """Show a person with the next event and the past ones."""

    def local(app: Duly) -> PersonStory:
        birthdays = birthdays_on(app)
        return PersonStory(**asdict(birthdays.get(person_id)), events=list(birthdays.events(person_id)))

    person = session.either(local, lambda client: client.http.get(PersonStory, _path(person_id)))
    events = [f"{session.full(each.target)} {each.status} {each.last_error or ''}".rstrip() for each in person.events]
    session.print_one(person, [_line(session, person), *events])


@people.command(name="change")
@someone
@click.option("--first-name")
@click.option("--last-name")
@click.option("--birthday")
@click.option("--zone")
@leap
@acting_with_times
def change_person(session: Session, person_id: str, **fields: Any) -> None:
    """Change a name, birthday or zone. The time of the next event is computed again."""
    given = options.given_any(fields, "change")
    changed = session.either(
        lambda app: birthdays_on(app).change(person_id, actor=options.who().user_id, **given),
        lambda client: client.http.patch(Person, _path(person_id), **given),
    )
    click.echo(_line(session, changed))


@people.command(name="remove")
@someone
@acting
def remove_person(session: Session, person_id: str) -> None:
    """Remove a person. A waiting greeting is cancelled."""
    session.either(
        lambda app: birthdays_on(app).remove(person_id, actor=options.who().user_id),
        lambda client: client.http.request("DELETE", _path(person_id)),
    )
    click.echo(f"{person_id} is removed")


def _path(person_id: str) -> str:
    return f"/api/people/{quote(person_id, safe='')}"


def _line(session: Session, each: Person) -> str:
    when = session.full(each.next_at) or "never"
    return f"{each.id} {each.first_name} {each.last_name}, {each.birthday} in {each.zone}: next {when}"


COMMANDS = (people,)
