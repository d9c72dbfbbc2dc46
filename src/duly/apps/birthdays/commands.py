"""`duly people`: who is greeted when, on a database or through a service."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from duly.apps.birthdays import Person, PersonEvent, birthdays_on
from duly.cli import options, words
from duly.cli.sides import chosen, read_as
from duly.core.errors import InputError

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

someone = click.argument("person_id", metavar="ID")
leap = click.option(
    "--leap", type=click.Choice(["feb28", "mar1", "skip"]), help="When who was born on 29 February is greeted."
)


class _Here:
    """On the database that the settings name: people of the code's own, not those of users."""

    def __init__(self, app: Duly) -> None:
        self._birthdays = birthdays_on(app)

    def page(self, most: int) -> list[Person]:
        return list(self._birthdays.list(most))

    def add(self, said: dict[str, Any]) -> Person:
        return self._birthdays.add(said.pop("id"), **said, actor=options.who().user_id)

    def show(self, person_id: str) -> tuple[Person, list[PersonEvent]]:
        return self._birthdays.get(person_id), list(self._birthdays.events(person_id))

    def change(self, person_id: str, said: dict[str, Any]) -> Person:
        return self._birthdays.change(person_id, actor=options.who().user_id, **said)

    def remove(self, person_id: str) -> None:
        self._birthdays.remove(person_id, actor=options.who().user_id)


class _There:
    """Through a service: the people of the one whose key it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def page(self, most: int) -> list[Person]:
        return [read_as(Person, each) for each in islice(self._client.pages("/api/people"), most)]

    def add(self, said: dict[str, Any]) -> Person:
        return read_as(Person, self._client.request("POST", "/api/people", _camel(said)))

    def show(self, person_id: str) -> tuple[Person, list[PersonEvent]]:
        told = self._client.request("GET", _path(person_id))
        return read_as(Person, told), [read_as(PersonEvent, each) for each in told["events"]]

    def change(self, person_id: str, said: dict[str, Any]) -> Person:
        return read_as(Person, self._client.request("PATCH", _path(person_id), _camel(said)))

    def remove(self, person_id: str) -> None:
        self._client.request("DELETE", _path(person_id))


def _path(person_id: str) -> str:
    return f"/api/people/{quote(person_id, safe='')}"


def _camel(said: dict[str, Any]) -> dict[str, Any]:
    names = {"first_name": "firstName", "last_name": "lastName"}
    return {names.get(name, name): value for name, value in said.items()}


def _side() -> Any:
    return chosen(_Here, _There)


@options.listing(short_help="People who are greeted on their birthdays.")
@options.most()
@options.told
def people(most: int, as_json: bool, in_utc: bool) -> None:
    """List people in the order in which they were added."""
    with _side() as place:
        found: list[Person] = place.page(most)
    words.print_lines(found, as_json, "there is nobody to greet", lambda each: _line(each, in_utc))


@people.command(name="add")
@someone
@click.argument("first_name")
@click.argument("last_name")
@click.argument("birthday")
@click.argument("zone")
@leap
@options.side
@options.in_utc
def add_person(person_id: str, in_utc: bool, **said: Any) -> None:
    """Greet someone every year: BIRTHDAY is YYYY-MM-DD or MM-DD, ZONE such as Europe/Zagreb."""
    given = {name: value for name, value in said.items() if value is not None}
    with _side() as place:
        made = place.add({"id": person_id, **given})
    click.echo(_line(made, in_utc))


@people.command(name="show")
@someone
@options.told
def show_person(person_id: str, as_json: bool, in_utc: bool) -> None:
    """Someone, with the event to come and those that were."""
    with _side() as place:
        person, events = place.show(person_id)
    if as_json:
        words.print_json({**{name: getattr(person, name) for name in person.__struct_fields__}, "events": events})
        return
    click.echo(_line(person, in_utc))
    for each in events:
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
def change_person(person_id: str, in_utc: bool, **said: Any) -> None:
    """Another name, birthday or zone; the event to come moves along."""
    given = {name: value for name, value in said.items() if value is not None}
    if not given:
        raise InputError("change", "say what: --first-name, --last-name, --birthday, --zone or --leap")
    with _side() as place:
        changed = place.change(person_id, given)
    click.echo(_line(changed, in_utc))


@people.command(name="remove")
@someone
@options.side
def remove_person(person_id: str) -> None:
    """No more greetings; one that waits is cancelled."""
    with _side() as place:
        place.remove(person_id)
    click.echo(f"{person_id} is removed")


def _line(each: Person, in_utc: bool) -> str:
    when = words.full(each.next_at, datetime.now(UTC), in_utc) if each.next_at else "never"
    return f"{each.id} {each.first_name} {each.last_name}, {each.birthday} in {each.zone}: next {when}"


COMMANDS = (people,)
