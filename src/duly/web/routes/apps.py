"""The apps' own resources, where the app behind this service has them: reminders, products, people."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from duly.errors import InputError, ItemNotFound
from duly.people import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.routes.items import find as find_item
from duly.web.schemas import (
    After,
    Id,
    Name,
    Page,
    PageSize,
    PersonEdit,
    PersonIn,
    PersonOut,
    PersonStoryOut,
    PlacedOut,
    ProductIn,
    ProductOut,
    ReminderIn,
    ReminderOut,
)

router = APIRouter(tags=["apps"])


@router.post("/api/reminders", status_code=201, response_model=PlacedOut, responses={200: {"model": PlacedOut}})
def schedule_reminder(
    new: ReminderIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Have a phone called at a time and told something. 200: the key has this reminder already."""
    reminders = app_named(desk, "reminders")

    def act(connection: Any) -> tuple[int, Any]:
        key = principal.scoped(new.key) if new.key is not None else None
        made = reminders.new(new.phone, new.message, new.at, key=key, owner=principal.owner)
        placed = desk.place(principal, made, connection)
        return 201 if placed.fresh else 200, PlacedOut.model_validate(placed)

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("/api/reminders/{reminder_id}", response_model=ReminderOut)
def show_reminder(reminder_id: Id, desk: At, principal: Reader) -> Any:
    """Where a reminder stands."""
    reminders = app_named(desk, "reminders")
    find_item(desk, principal, reminder_id)
    return desk.masked(_values(reminders.get(reminder_id)))


@router.get("/api/products", response_model=Page[ProductOut])
def list_products(
    desk: At, principal: Reader, user_id: UserId = None, page_size: PageSize = 50, after: After = None
) -> Any:
    """The products that are yours, by id."""
    catalog = app_named(desk, "catalog")
    owner = owner_for(principal, user_id)
    bound = ["products", owner]
    place = desk.cursors.read(after, bound) or 0
    rows = desk.app.schedules.owned(owner, task=catalog.task.name, after=place, most=page_size + 1)
    return desk.page(catalog.seen(rows), page_size, lambda product: product.id, bound, lambda product: product)


@router.post("/api/products", status_code=201, response_model=ProductOut)
def publish_product(
    new: ProductIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Sync a product every day; publishing twice is publishing once."""
    catalog = app_named(desk, "catalog")

    def act(connection: Any) -> tuple[int, Any]:
        user_id = _whose(principal, new.user_id)
        product = catalog.publish(user_id, new.sku, None if principal.owner is None else user_id, connection)
        _check_owner(desk, principal, product.id, new.sku, connection)
        desk.note(principal, "product.published", f"schedule:{product.id}", {"sku": new.sku}, connection)
        return 201, ProductOut.model_validate(product)

    return desk.once(principal, idempotency_key, request, new, act)


@router.delete("/api/products/{sku:path}", status_code=204)
def withdraw_product(sku: Name, desk: At, principal: Writer, user_id: UserId = None) -> None:
    """Sync it no more."""
    catalog, user_id = app_named(desk, "catalog"), _whose(principal, user_id)
    _check_owner(desk, principal, catalog.product(user_id, sku).id, sku)
    catalog.withdraw(user_id, sku, actor=principal.user_id)


@router.post("/api/people", status_code=201, response_model=PersonOut)
def add_person(
    new: PersonIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Greet someone every year at nine in the morning of their own time."""
    birthdays = app_named(desk, "birthdays")

    def act(connection: Any) -> tuple[int, Any]:
        given = (new.id, new.first_name, new.last_name, new.birthday, new.zone, new.leap)
        person = birthdays.add(*given, owner=principal.owner, connection=connection)
        desk.note(principal, "person.added", f"person:{new.id}", {}, connection)
        return 201, PersonOut.model_validate(person)

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("/api/people/{person:path}", response_model=PersonStoryOut)
def show_person(person: Name, desk: At, principal: Reader, user_id: UserId = None) -> Any:
    """Someone, with the event to come and those that were."""
    birthdays, owner = app_named(desk, "birthdays"), _owner(principal, user_id)
    found = birthdays.get(person, owner)
    return desk.masked({**_values(found), "events": list(birthdays.events(person, owner=owner))})


@router.patch("/api/people/{person:path}", response_model=PersonOut)
def change_person(person: Name, edit: PersonEdit, desk: At, principal: Writer, user_id: UserId = None) -> Any:
    """Another name, birthday or zone; the event to come moves along."""
    fields = {name: getattr(edit, name) for name in edit.model_fields_set if getattr(edit, name) is not None}
    if not fields:
        raise InputError("body", "says nothing to change")
    owner = _owner(principal, user_id)
    return app_named(desk, "birthdays").change(person, actor=principal.user_id, owner=owner, **fields)


@router.delete("/api/people/{person:path}", status_code=204)
def remove_person(person: Name, desk: At, principal: Writer, user_id: UserId = None) -> None:
    """No more greetings."""
    app_named(desk, "birthdays").remove(person, actor=principal.user_id, owner=_owner(principal, user_id))


def app_named(desk: Desk, name: str) -> Any:
    found = desk.app.apps.get(name)
    if found is None:
        raise ItemNotFound(f"this service does not have {name}")
    return found


def _whose(principal: Principal, user_id: str | None) -> str:
    """The one whose product it is."""
    if user_id in (None, "me", principal.user_id):
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may act for others", "userId")
    return str(user_id)


def _owner(principal: Principal, user_id: str | None) -> str | None:
    """The one whose people are meant; each has people of their own, under ids of their own."""
    return principal.owner if user_id in (None, "me") else owner_for(principal, user_id)


def _check_owner(desk: Desk, principal: Principal, schedule_id: int, sku: str, connection: Any = None) -> None:
    if desk.app.schedules.owned_one(schedule_id, owner_for(principal, None), connection) is None:
        raise ItemNotFound(f"there is no product {sku!r:.80}")


def _values(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
