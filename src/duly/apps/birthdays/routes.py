"""People over HTTP: who is greeted, when, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends
from msgspec.structs import asdict
from pydantic import AfterValidator, StringConstraints

from duly.apps.birthdays import Birthdays, plugin
from duly.apps.birthdays.greetings import Leap, Person, PersonStory
from duly.core.model import Schedule
from duly.verbs import Principal
from duly.web.auth import Owner, Reader, UserId, Writer, owner_for
from duly.web.desk import Pages, Verbs, masked, serving
from duly.web.routing import Router, Transaction
from duly.web.schemas import Model, Name, Page, Word, clean, example

router = Router(tags=["apps"])

Here = Annotated[Birthdays, Depends(serving(plugin))]
Birthday = Annotated[str, StringConstraints(min_length=5, max_length=10), AfterValidator(clean)]


class PersonIn(
    Model, **example(id="user-456", firstName="Ana", lastName="Horvat", birthday="1990-03-15", zone="Europe/Zagreb")
):
    id: Word
    first_name: Word
    last_name: Word
    birthday: Birthday
    zone: Word
    leap: Leap = "feb28"


class PersonEdit(Model, **example(zone="America/New_York")):
    first_name: Word | None = None
    last_name: Word | None = None
    birthday: Birthday | None = None
    zone: Word | None = None
    leap: Leap | None = None


@router.post("/api/people", status_code=201)
def add_person(new: PersonIn, birthdays: Here, principal: Writer, connection: Transaction) -> Person:
    """Add a person, who is greeted every year at nine in the morning of their local time."""
    given = (new.id, new.first_name, new.last_name, new.birthday, new.zone, new.leap)
    return birthdays.add(*given, owner=principal.owner, actor=principal.user_id, connection=connection)


@router.get("/api/people")
def list_people(verbs: Verbs, birthdays: Here, principal: Reader, pages: Pages, owner: Owner) -> Page[Person]:
    """The people that are yours, in the order in which they were added."""

    def find(after: int | None, most: int) -> Sequence[Schedule]:
        return verbs.schedules.page(owner=owner, task=birthdays.task.name, after=after or 0, most=most)

    return pages.turn(find, lambda row: masked(verbs, asdict(birthdays.seen(row))))


@router.get("/api/people/{person:path}")
def show_person(person: Name, verbs: Verbs, birthdays: Here, principal: Reader, user_id: UserId = None) -> PersonStory:
    """Someone, with the event to come and those that were."""
    owner = _owner(principal, user_id)
    found = {**asdict(birthdays.get(person, owner)), "events": list(birthdays.events(person, owner=owner))}
    return PersonStory(**masked(verbs, found))


@router.patch("/api/people/{person:path}")
def change_person(person: Name, edit: PersonEdit, birthdays: Here, principal: Writer, user_id: UserId = None) -> Person:
    """Change a name, birthday or zone; the event to come moves along."""
    owner = _owner(principal, user_id)
    return birthdays.change(person, actor=principal.user_id, owner=owner, **edit.changes())


@router.delete("/api/people/{person:path}", status_code=204)
def remove_person(person: Name, birthdays: Here, principal: Writer, user_id: UserId = None) -> None:
    """Remove a person. A waiting greeting is cancelled."""
    birthdays.remove(person, actor=principal.user_id, owner=_owner(principal, user_id))


def _owner(principal: Principal, user_id: str | None) -> str | None:
    """The one whose people are meant; each has people of their own, under ids of their own."""
    return principal.owner if user_id in (None, "me") else owner_for(principal, user_id)
