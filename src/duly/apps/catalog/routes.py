"""Products over HTTP: publish them, see how their syncs went and where the day stands, reactivate, withdraw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from duly.apps.catalog import Catalog, Product, plan, plugin
from duly.apps.catalog.capacity import Plan
from duly.apps.catalog.day import Day
from duly.apps.catalog.products import Reactivated, SyncStatus
from duly.apps.catalog.schemas import Imported, PlanIn, ProductIn, ProductsIn, ReactivateAllIn, ReactivateIn
from duly.core.errors import DoesNotExist
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages, serving
from duly.web.problems import Problem
from duly.web.schemas import Name, Word, out, page_of

router = APIRouter(tags=["apps"])

Here = Annotated[Catalog, Depends(serving(plugin))]


@router.post("/api/plan", response_model=out(Plan))
def plan_catalog(asked: PlanIn, principal: Reader) -> Any:
    """What a catalog of so many products costs in calls and minutes, and what gives way first as it grows."""
    return plan(**asked.model_dump())


@router.get("/api/catalog/day", response_model=out(Day))
def show_catalog_day(catalog: Here, principal: Reader, user_id: UserId = None) -> Any:
    """Where this day stands, in UTC: each slot, each retry window, the calls that the API allows, and the products."""
    return catalog.day(owner_for(principal, user_id))


@router.get("/api/products", response_model=page_of(Product))
def list_products(
    catalog: Here,
    principal: Reader,
    pages: Pages,
    status: Annotated[SyncStatus | None, Query()] = None,
    slot: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    active: Annotated[bool | None, Query(description="false: those that were deactivated or paused.")] = None,
    q: Annotated[Word | None, Query(description="A part of a SKU, or of its user's id.")] = None,
    user_id: UserId = None,
) -> Any:
    """The products that are yours and fit, by id."""
    owner = owner_for(principal, user_id)
    filters: dict[str, Any] = {"sync_status": status, "hour_bucket": slot, "is_active": active, "text": q}

    def find(after: int | None, most: int) -> Sequence[Product]:
        return catalog.products(owner=owner, after=after or 0, most=most, **filters)

    return pages.turn(["products", owner, filters], find)


@router.post("/api/products", status_code=201, response_model=out(Product))
def publish_product(new: ProductIn, desk: At, catalog: Here, principal: Writer, once: Once) -> Response:
    """Sync a product every day; publishing twice is publishing once."""

    def act(connection: Any) -> Any:
        user_id = _whose(principal, new.user_id)
        owner = None if principal.owner is None else user_id
        product = catalog.publish(user_id, new.sku, owner, connection, principal.user_id)
        _check_owner(desk, principal, product.id, new.sku, connection)
        return product

    return once(principal, new, act)


@router.post("/api/products/import", status_code=201, response_model=out(Imported))
def import_products(new: ProductsIn, catalog: Here, principal: Writer, once: Once) -> Response:
    """Take products over from another system, with their slots and what they looked like: a thousand at a time."""
    rows = [
        {**row.model_dump(exclude_unset=True), "user_id": _whose(principal, row.user_id)} for row in new.products
    ]  # fmt: skip

    def act(connection: Any) -> Any:
        is_owned = principal.owner is not None
        return Imported(catalog.import_many(rows, is_owned=is_owned, who=principal, connection=connection))

    return once(principal, new, act)


@router.post("/api/products/reactivate", response_model=out(Reactivated))
def reactivate_products(
    catalog: Here, principal: Writer, once: Once, asked: ReactivateAllIn | None = None, user_id: UserId = None
) -> Response:
    """Reactivate the products that one cause deactivated, or all of them: a thousand at a time; `isMore`: ask again."""
    said = asked or ReactivateAllIn()
    owner = owner_for(principal, user_id)
    return once(
        principal,
        asked,
        lambda connection: catalog.reactivate_all(
            said.cause, sync_now=said.sync_now, owner=owner, who=principal, connection=connection
        ),
    )


@router.post("/api/products/{sku:path}/reactivate", response_model=out(Product))
def reactivate_product(
    sku: Name,
    desk: At,
    catalog: Here,
    principal: Writer,
    once: Once,
    asked: ReactivateIn | None = None,
    user_id: UserId = None,
) -> Response:
    """Have a product synced again that was deactivated after failures in a row, with `syncNow` at once."""
    owner = _whose(principal, user_id)

    def act(connection: Any) -> Any:
        _check_owner(desk, principal, catalog.product(owner, sku, connection).id, sku, connection)
        is_now = asked is not None and asked.sync_now
        return catalog.reactivate(owner, sku, principal.user_id, sync_now=is_now, connection=connection)

    return once(principal, asked, act)


@router.delete("/api/products/{sku:path}", status_code=204)
def withdraw_product(sku: Name, desk: At, catalog: Here, principal: Writer, user_id: UserId = None) -> None:
    """Withdraw a product: it is synced no more."""
    user_id = _whose(principal, user_id)
    _check_owner(desk, principal, catalog.product(user_id, sku).id, sku)
    catalog.withdraw(user_id, sku, actor=principal.user_id)


def _whose(principal: Principal, user_id: str | None) -> str:
    """The one whose product it is."""
    if user_id in (None, "me", principal.user_id):
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may act for others", "userId")
    return str(user_id)


def _check_owner(desk: Desk, principal: Principal, schedule_id: int, sku: str, connection: Any = None) -> None:
    if desk.app.schedules.owned_one(schedule_id, owner_for(principal, None), connection) is None:
        raise DoesNotExist(f"there is no product {sku!r:.80}")
