"""`duly people`: the people who are greeted on their birthdays, on a database or through a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from urllib.parse import quote

import click
from msgspec.structs import asdict

from duly.apps.birthdays import Person, PersonEvent, birthdays_on
from duly.apps.birthdays.greetings import Leap
from duly.cli import options, words
from duly.cli.sides import chosen
from duly.core.errors import InputError

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

someone = click.argument("person_id", metavar="ID")
leap = click.option(
    "--leap", type=click.Choice(["feb28", "mar1", "skip"]), help="When people born on 29 February are greeted."
)


class PersonStory(Person, frozen=True, kw_only=True):
    """A person with the next event and the past ones."""

    events: list[PersonEvent]


class PersonChange(TypedDict, total=False):
    """What can be changed of a person; None: as it is."""

    first_name: str | None
    last_name: str | None
    birthday: str | None
    zone: str | None
    leap: Leap | None


class LocalPeople:
    """People on a database: those that code added, not those of users."""

    def __init__(self, app: Duly) -> None:
        self._birthdays = birthdays_on(app)
        self._actor = options.who().user_id

    def page(self, most: int) -> Iterator[Person]:
        return iter(self._birthdays.list(most))

    def add(
        self, person_id: str, first_name: str, last_name: str, birthday: str, zone: str, leap: Leap = "feb28"
    ) -> Person:
        return self._birthdays.add(person_id, first_name, last_name, birthday, zone, leap, actor=self._actor)

    def get(self, person_id: str) -> PersonStory:
        return PersonStory(**asdict(self._birthdays.get(person_id)), events=list(self._birthdays.events(person_id)))

    def change(self, person_id: str, **fields: Unpack[PersonChange]) -> Person:
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        return self._birthdays.change(person_id, actor=self._actor, **given)

    def remove(self, person_id: str) -> None:
        self._birthdays.remove(person_id, actor=self._actor)


class PeopleClient:
    """People through a service: those of the user whose key is used."""

    def __init__(self, client: Client) -> None:
        self._http = client.http

    def page(self, most: int) -> Iterator[Person]:
        return self._http.pages(Person, "/api/people", most)

    def add(
        self, person_id: str, first_name: str, last_name: str, birthday: str, zone: str, leap: Leap = "feb28"
    ) -> Person:
        names = {"id": person_id, "first_name": first_name, "last_name": last_name}
        return self._http.post(Person, "/api/people", **names, birthday=birthday, zone=zone, leap=leap)

    def get(self, person_id: str) -> PersonStory:
        return self._http.get(PersonStory, _path(person_id))

    def change(self, person_id: str, **fields: Unpack[PersonChange]) -> Person:
        return self._http.patch(Person, _path(person_id), **fields)

    def remove(self, person_id: str) -> None:
        self._http.request("DELETE", _path(person_id))


def _path(person_id: str) -> str:
    return f"/api/people/{quote(person_id, safe='')}"


def _side() -> AbstractContextManager[LocalPeople | PeopleClient]:
    return chosen(LocalPeople, PeopleClient)


@options.listing(short_help="People who are greeted on their birthdays.")
@options.most()
@options.told
def people(most: int, as_json: bool, in_utc: bool) -> None:
    """List people in the order in which they were added."""
    with _side() as api:
        found = list(api.page(most))
    words.print_lines(found, as_json, "there are no people", lambda each: _line(each, in_utc))


@people.command(name="add")
@someone
@click.argument("first_name")
@click.argument("last_name")
@click.argument("birthday")
@click.argument("zone")
@leap
@options.side
@options.in_utc
def add_person(
    person_id: str, first_name: str, last_name: str, birthday: str, zone: str, leap: Leap | None, in_utc: bool
) -> None:
    """Greet someone every year: BIRTHDAY is YYYY-MM-DD or MM-DD, ZONE such as Europe/Zagreb."""
    with _side() as api:
        made = api.add(person_id, first_name, last_name, birthday, zone, leap or "feb28")
    click.echo(_line(made, in_utc))


@people.command(name="show")
@someone
@options.told
def show_person(person_id: str, as_json: bool, in_utc: bool) -> None:
    """Show a person with the next event and the past ones."""
    with _side() as api:
        person = api.get(person_id)
    if as_json:
        words.print_json(person)
        return
    click.echo(_line(person, in_utc))
    for each in person.events:
        when = words.full(each.target, datetime.now(UTC), in_utc)
        click.echo(f"{when} {each.status} {each.last_error or ''}".rstrip())


@people.command(name="change")
@someone
@click.option("--first-name")
@click.option("--last-name")
@click.option("--birthday")
@click.option("--zone")
@leap
@options.side
@options.in_utc
def change_person(person_id: str, in_utc: bool, **fields: Unpack[PersonChange]) -> None:
    """Change a name, birthday or zone. The next event is planned anew."""
    if all(value is None for value in fields.values()):
        raise InputError("change", "nothing to change; give --first-name, --last-name, --birthday, --zone or --leap")
    with _side() as api:
        changed = api.change(person_id, **fields)
    click.echo(_line(changed, in_utc))


@people.command(name="remove")
@someone
@options.side
def remove_person(person_id: str) -> None:
    """Remove a person. A waiting greeting is cancelled."""
    with _side() as api:
        api.remove(person_id)
    click.echo(f"{person_id} is removed")


def _line(each: Person, in_utc: bool) -> str:
    when = words.full(each.next_at, datetime.now(UTC), in_utc) if each.next_at else "never"
    return f"{each.id} {each.first_name} {each.last_name}, {each.birthday} in {each.zone}: next {when}"


COMMANDS = (people,)
