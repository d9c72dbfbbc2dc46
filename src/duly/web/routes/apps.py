"""The apps' own resources, where the app behind this service has them: reminders, products, people."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AfterValidator

from duly.errors import ItemNotFound
from duly.people import Principal
from duly.web.auth import Reader, Writer
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.routes.items import find as find_item
from duly.web.schemas import Id, PersonEdit, PersonIn, PlacedOut, ProductIn, ReminderIn, _clean

router = APIRouter(tags=["apps"])

Sku = Annotated[str, Path(min_length=1, max_length=200), AfterValidator(_clean)]


@router.post("/api/reminders", status_code=201)
def schedule_reminder(
    new: ReminderIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Have a phone called at a time and told something."""
    reminders = _app(desk, "reminders")

    key = principal.scoped(new.key) if new.key is not None else None
    made = reminders.new(new.phone, new.message, new.at, key=key, owner=principal.owner)

    def act(connection: Any) -> tuple[int, Any]:
        return 201, PlacedOut.model_validate(desk.app.place(made, connection))

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("/api/reminders/{reminder_id}")
def show_reminder(reminder_id: Id, desk: At, principal: Reader) -> Any:
    reminders = _app(desk, "reminders")
    find_item(desk, principal, reminder_id)
    return _plain(reminders.get(reminder_id))


@router.get("/api/products")
def list_products(
    desk: At, principal: Reader, after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=500)] = 50,
) -> Any:  # fmt: skip
    """The products that you published, by id."""
    catalog = _app(desk, "catalog")
    user = None if principal.is_admin else principal.user_id
    return [_plain(product) for product in catalog.products(user_id=user, after=after, most=page_size)]


@router.post("/api/products", status_code=201)
def publish_product(new: ProductIn, desk: At, principal: Writer) -> Any:
    """Sync a product every day; publishing twice is publishing once."""
    catalog = _app(desk, "catalog")
    user_id = _whose(principal, new.user_id)
    product = catalog.publish(user_id, new.sku, None if principal.owner is None else user_id)
    desk.app.note(principal.user_id, "product.published", f"schedule:{product.id}", {"sku": new.sku})
    return _plain(product)


@router.delete("/api/products/{sku}", status_code=204)
def withdraw_product(sku: Sku, desk: At, principal: Writer) -> None:
    """Sync it no more."""
    _app(desk, "catalog").withdraw(principal.user_id, sku, actor=principal.user_id)


@router.post("/api/people", status_code=201)
def add_person(new: PersonIn, desk: At, principal: Writer) -> Any:
    """Greet someone every year at nine in the morning of their own time."""
    birthdays = _app(desk, "birthdays")
    person = birthdays.add(
        new.id, new.first_name, new.last_name, new.birthday, new.zone, new.leap, owner=principal.owner
    )
    desk.app.note(principal.user_id, "person.added", f"person:{new.id}", {})
    return _plain(person)


@router.get("/api/people/{person}")
def show_person(person: Sku, desk: At, principal: Reader) -> Any:
    birthdays = _app(desk, "birthdays")
    found = birthdays.get(person, owner=principal.owner)
    return {**_plain(found), "events": [_plain(event) for event in birthdays.events(person, owner=principal.owner)]}


@router.patch("/api/people/{person}")
def change_person(person: Sku, edit: PersonEdit, desk: At, principal: Writer) -> Any:
    """Another name, birthday or zone; the event to come moves along."""
    fields = {name: getattr(edit, name) for name in edit.model_fields_set if getattr(edit, name) is not None}
    birthdays = _app(desk, "birthdays")
    return _plain(birthdays.change(person, actor=principal.user_id, owner=principal.owner, **fields))


@router.delete("/api/people/{person}", status_code=204)
def remove_person(person: Sku, desk: At, principal: Writer) -> None:
    """No more greetings."""
    _app(desk, "birthdays").remove(person, actor=principal.user_id, owner=principal.owner)


def _app(desk: Desk, name: str) -> Any:
    found = desk.app.apps.get(name)
    if found is None:
        raise ItemNotFound(f"this service does not have {name}")
    return found


def _whose(principal: Principal, user_id: str | None) -> str:
    if user_id is None or user_id == principal.user_id:
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may act for others", "userId")
    return user_id


def _plain(value: Any) -> dict[str, Any]:
    """A struct as JSON tells it."""
    from pydantic.alias_generators import to_camel

    return {to_camel(name): getattr(value, name) for name in value.__struct_fields__}
