"""Products over HTTP: publish them, see how their syncs went and where the day stands, reactivate, withdraw."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from duly import Duly
from duly.apps.catalog import Catalog, Product, plan, plugin
from duly.apps.catalog.capacity import MOST, Plan
from duly.apps.catalog.day import Day
from duly.apps.catalog.growth import MINUTES
from duly.apps.catalog.imports import Imported, SyncStatus
from duly.apps.catalog.products import Reactivated
from duly.core.errors import DoesNotExist
from duly.verbs import Principal
from duly.web.auth import Owner, Reader, UserId, Writer, owner_for
from duly.web.desk import App, Pages, serving
from duly.web.problems import Problem
from duly.web.routing import Router, Transaction, repeatable
from duly.web.schemas import Date, Model, Moment, Name, Page, Sentence, Word, clean, example

router = Router(tags=["apps"])

Here = Annotated[Catalog, Depends(serving(plugin))]


class ProductIn(Model, **example(sku="65-12345-1")):
    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductImport(
    ProductIn, **example(sku="65-12345-1", hourBucket=7, lastSuccessfulSync="2026-11-30", lastPrice="19.99")
):
    hour_bucket: int | None = Field(
        default=None, ge=0, le=100_000, description="Without it, it gets the emptiest slot."
    )
    sync_status: SyncStatus | None = Field(
        default=None, description="Without it, a product with failures in a row has failed."
    )
    last_sync_at: Moment | None = None
    last_successful_sync: Date | None = None
    consecutive_failures: int | None = Field(default=None, ge=0, le=1_000_000)
    last_error: Sentence | None = None
    is_active: bool | None = Field(default=None, description="false: it comes in deactivated.")
    last_boeing_hash: Word | None = None
    last_price: Decimal | None = Field(default=None, ge=0, max_digits=30, strict=False)
    last_quantity: int | None = Field(default=None, ge=0, le=2**31 - 1)
    in_stock: bool | None = None
    id: Any = Field(default=None, description="Accepted and not kept, as createdAt and updatedAt are.")
    created_at: Any = None
    updated_at: Any = None

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in given if isinstance(given, dict) else ():
            if name not in known and name not in cls.model_fields:
                raise ValueError(f"{name!r:.80} is not a field of an import. Accepted fields: {', '.join(known)}")
        return given


class ProductsIn(Model, **example(products=[{"sku": "65-12345-1", "hourBucket": 7}])):
    products: list[ProductImport] = Field(min_length=1, max_length=1_000)


class PlanIn(Model, **example(products=5_000, batch=10, rate=2)):
    products: int = Field(default=5_000, ge=0, le=MOST)
    batch: int = Field(default=10, ge=1, le=MOST, description="Products in a call.")
    rate: float = Field(default=2, gt=0, le=1e6, allow_inf_nan=False, description="Calls a minute.")
    slots: int = Field(default=24, ge=1, le=MINUTES, description="Slots a day.")
    windows: int = Field(default=6, ge=0, le=MINUTES, description="Retry windows a day.")
    cap: int = Field(default=50, ge=0, le=MOST, description="Products in a retry window.")
    failure_rate: float = Field(
        default=0.05, ge=0, lt=1, allow_inf_nan=False, description="Of all calls for a product."
    )


class ReactivateIn(Model, **example(syncNow=True)):
    sync_now: bool = Field(default=False, description="Sync it now too, not only from its next slot on.")


class ReactivateAllIn(ReactivateIn, **example(cause="duly.outbound.http.TimedOut", syncNow=True)):
    cause: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] | None = Field(
        default=None, description="Only what this deactivated, as the day names it; without it, all."
    )


@router.post("/api/plan")
@repeatable("it only reads")
def plan_catalog(asked: PlanIn, principal: Reader) -> Plan:
    """Compute whether a catalog of this size fits, what fails first as it grows, and what larger ones need."""
    return plan(**asked.model_dump())


@router.get("/api/catalog/day")
def show_catalog_day(catalog: Here, principal: Reader, owner: Owner) -> Day:
    """Where this day stands, in UTC: each slot, each retry window, the calls that the API allows, and the products."""
    return catalog.day(owner)


@router.get("/api/products")
def list_products(
    catalog: Here,
    principal: Reader,
    pages: Pages,
    owner: Owner,
    status: Annotated[SyncStatus | None, Query()] = None,
    slot: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    active: Annotated[bool | None, Query(description="false: those that were deactivated or paused.")] = None,
    q: Annotated[Word | None, Query(description="A part of a SKU, or of its user's id.")] = None,
) -> Page[Product]:
    """The products that are yours and fit, by id."""
    filters: dict[str, Any] = {"sync_status": status, "hour_bucket": slot, "is_active": active, "text": q}
    return pages.turn(lambda after, most: catalog.products(owner=owner, after=after or 0, most=most, **filters))


@router.post("/api/products", status_code=201)
def publish_product(new: ProductIn, app: App, catalog: Here, principal: Writer, connection: Transaction) -> Product:
    """Sync a product every day; publishing twice is publishing once."""
    user_id = _whose(principal, new.user_id)
    owner = None if principal.owner is None else user_id
    product = catalog.publish(user_id, new.sku, owner, connection, principal.user_id)
    _check_owner(app, principal, product.id, new.sku, connection)
    return product


@router.post("/api/products/import", status_code=201)
def import_products(new: ProductsIn, catalog: Here, principal: Writer, connection: Transaction) -> Imported:
    """Take products over from another system, with their state there: a thousand at a time, all or none."""
    rows = [
        {**row.model_dump(exclude_unset=True), "user_id": _whose(principal, row.user_id)} for row in new.products
    ]  # fmt: skip
    is_owned = principal.owner is not None
    return catalog.import_many(rows, is_owned=is_owned, who=principal, connection=connection)


@router.post("/api/products/reactivate")
def reactivate_products(
    catalog: Here, principal: Writer, connection: Transaction, owner: Owner, asked: ReactivateAllIn | None = None
) -> Reactivated:
    """Reactivate the products that one cause deactivated, or all of them: a thousand at a time; `isMore`: ask again."""
    given = asked or ReactivateAllIn()
    return catalog.reactivate_all(
        given.cause, sync_now=given.sync_now, owner=owner, who=principal, connection=connection
    )


@router.post("/api/products/{sku:path}/reactivate")
def reactivate_product(
    sku: Name,
    app: App,
    catalog: Here,
    principal: Writer,
    connection: Transaction,
    asked: ReactivateIn | None = None,
    user_id: UserId = None,
) -> Product:
    """Have a product synced again that was deactivated after failures in a row, with `syncNow` at once."""
    owner = _whose(principal, user_id)
    _check_owner(app, principal, catalog.product(owner, sku, connection).id, sku, connection)
    is_now = asked is not None and asked.sync_now
    return catalog.reactivate(owner, sku, principal.user_id, sync_now=is_now, connection=connection)


@router.delete("/api/products/{sku:path}", status_code=204)
def withdraw_product(sku: Name, app: App, catalog: Here, principal: Writer, user_id: UserId = None) -> None:
    """Withdraw a product: it is no longer synced."""
    user_id = _whose(principal, user_id)
    _check_owner(app, principal, catalog.product(user_id, sku).id, sku)
    catalog.withdraw(user_id, sku, actor=principal.user_id)


def _whose(principal: Principal, user_id: str | None) -> str:
    """The one whose product it is."""
    if user_id in (None, "me", principal.user_id):
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may act for others", "userId")
    return str(user_id)


def _check_owner(app: Duly, principal: Principal, schedule_id: int, sku: str, connection: Any = None) -> None:
    if app.schedules.owned_one(schedule_id, owner_for(principal, None), connection) is None:
        raise DoesNotExist(f"there is no product {sku!r:.80}")
