"""People over HTTP: who is greeted, when, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from duly.apps.birthdays import Birthdays, plugin
from duly.apps.birthdays.greetings import Person, PersonStory
from duly.apps.birthdays.schemas import PersonEdit, PersonIn
from duly.core.errors import InputError
from duly.core.model import Schedule
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Once, Pages, serving, values
from duly.web.schemas import Name, out, page_of

router = APIRouter(tags=["apps"])

Here = Annotated[Birthdays, Depends(serving(plugin))]


@router.post("/api/people", status_code=201, response_model=out(Person))
def add_person(new: PersonIn, birthdays: Here, principal: Writer, once: Once) -> Response:
    """Greet someone every year at nine in the morning of their own time."""

    def act(connection: Any) -> Any:
        given = (new.id, new.first_name, new.last_name, new.birthday, new.zone, new.leap)
        owner, actor = principal.owner, principal.user_id
        return birthdays.add(*given, owner=owner, actor=actor, connection=connection)

    return once(principal, new, act)


@router.get("/api/people", response_model=page_of(Person))
def list_people(desk: At, birthdays: Here, principal: Reader, pages: Pages, user_id: UserId = None) -> Any:
    """The people that are yours, in the order in which they were added."""
    owner = owner_for(principal, user_id)

    def find(after: int | None, most: int) -> Sequence[Schedule]:
        return desk.app.schedules.page(owner=owner, task=birthdays.task.name, after=after or 0, most=most)

    return pages.turn(["people", owner], find, lambda row: desk.masked(values(birthdays.seen(row))))


@router.get("/api/people/{person:path}", response_model=out(PersonStory))
def show_person(person: Name, desk: At, birthdays: Here, principal: Reader, user_id: UserId = None) -> Any:
    """Someone, with the event to come and those that were."""
    owner = _owner(principal, user_id)
    found = birthdays.get(person, owner)
    return desk.masked({**values(found), "events": list(birthdays.events(person, owner=owner))})


@router.patch("/api/people/{person:path}", response_model=out(Person))
def change_person(person: Name, edit: PersonEdit, birthdays: Here, principal: Writer, user_id: UserId = None) -> Any:
    """Change a name, birthday or zone; the event to come moves along."""
    fields = {name: getattr(edit, name) for name in edit.model_fields_set if getattr(edit, name) is not None}
    if not fields:
        raise InputError("body", "says nothing to change")
    owner = _owner(principal, user_id)
    return birthdays.change(person, actor=principal.user_id, owner=owner, **fields)


@router.delete("/api/people/{person:path}", status_code=204)
def remove_person(person: Name, birthdays: Here, principal: Writer, user_id: UserId = None) -> None:
    """Greet someone no more; a greeting that waits is cancelled."""
    birthdays.remove(person, actor=principal.user_id, owner=_owner(principal, user_id))


def _owner(principal: Principal, user_id: str | None) -> str | None:
    """The one whose people are meant; each has people of their own, under ids of their own."""
    return principal.owner if user_id in (None, "me") else owner_for(principal, user_id)
