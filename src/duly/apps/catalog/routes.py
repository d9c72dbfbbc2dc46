"""Products over HTTP: publish them, see how their syncs went, withdraw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from duly.apps.catalog import Catalog, Product, plugin
from duly.apps.catalog.capacity import plan
from duly.apps.catalog.schemas import PlanIn, PlanOut, ProductIn, ProductOut
from duly.core.errors import ItemNotFound
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages, serving
from duly.web.problems import Problem
from duly.web.schemas import Name, Page

router = APIRouter(tags=["apps"])

Here = Annotated[Catalog, Depends(serving(plugin))]


@router.get("/api/products", response_model=Page[ProductOut])
def list_products(desk: At, catalog: Here, principal: Reader, pages: Pages, user_id: UserId = None) -> Any:
    """The products that are yours, by id."""
    owner = owner_for(principal, user_id)

    def find(after: int | None, most: int) -> Sequence[Product]:
        return catalog.seen(desk.app.schedules.owned(owner, task=catalog.task.name, after=after or 0, most=most))

    return pages.turn(["products", owner], find)


@router.post("/api/products", status_code=201, response_model=ProductOut)
def publish_product(new: ProductIn, desk: At, catalog: Here, principal: Writer, once: Once) -> Response:
    """Sync a product every day; publishing twice is publishing once."""

    def act(connection: Any) -> tuple[int, Any]:
        user_id = _whose(principal, new.user_id)
        owner = None if principal.owner is None else user_id
        product = catalog.publish(user_id, new.sku, owner, connection, principal.user_id)
        _check_owner(desk, principal, product.id, new.sku, connection)
        return 201, ProductOut.model_validate(product)

    return once(principal, new, act)


@router.delete("/api/products/{sku:path}", status_code=204)
def withdraw_product(sku: Name, desk: At, catalog: Here, principal: Writer, user_id: UserId = None) -> None:
    """Withdraw a product: it is synced no more."""
    user_id = _whose(principal, user_id)
    _check_owner(desk, principal, catalog.product(user_id, sku).id, sku)
    catalog.withdraw(user_id, sku, actor=principal.user_id)


@router.post("/api/plan", response_model=PlanOut)
def plan_catalog(asked: PlanIn, principal: Reader) -> Any:
    """What a catalog of so many products costs in calls and minutes, and what breaks first as it grows."""
    return plan(**asked.model_dump())


def _whose(principal: Principal, user_id: str | None) -> str:
    """The one whose product it is."""
    if user_id in (None, "me", principal.user_id):
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may act for others", "userId")
    return str(user_id)


def _check_owner(desk: Desk, principal: Principal, schedule_id: int, sku: str, connection: Any = None) -> None:
    if desk.app.schedules.owned_one(schedule_id, owner_for(principal, None), connection) is None:
        raise ItemNotFound(f"there is no product {sku!r:.80}")
