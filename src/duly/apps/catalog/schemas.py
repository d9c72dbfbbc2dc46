"""Products over HTTP."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.apps.catalog.capacity import MINUTES, MOST
from duly.core.doc import Doc
from duly.web.schemas import Model, Word, clean, example


class ProductIn(Model):
    model_config = example(sku="65-12345-1")

    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductImport(ProductIn):
    model_config = example(sku="65-12345-1", hourBucket=7, lastSuccessfulSync="2026-11-30", lastPrice="19.99")

    hour_bucket: int | None = Field(
        default=None, ge=0, le=100_000, description="Without it, it gets the emptiest slot."
    )
    last_successful_sync: date | None = None
    last_price: Decimal | None = Field(default=None, ge=0, max_digits=30)
    last_quantity: int | None = Field(default=None, ge=0, le=2**31 - 1)
    in_stock: bool | None = None
    last_boeing_hash: Word | None = None
    consecutive_failures: int = Field(default=0, ge=0, le=1_000_000)


class ProductsIn(Model):
    model_config = example(products=[{"sku": "65-12345-1", "hourBucket": 7}])

    products: list[ProductImport] = Field(min_length=1, max_length=1_000)


class Imported(Struct, frozen=True):
    products: Annotated[int, Doc("How many are new; those already known are unchanged.")]


class PlanIn(Model):
    model_config = example(products=5_000, batch=10, rate=2)

    products: int = Field(default=5_000, ge=0, le=MOST)
    batch: int = Field(default=10, ge=1, le=MOST, description="Products in a call.")
    rate: float = Field(default=2, gt=0, le=1e6, allow_inf_nan=False, description="Calls a minute.")
    slots: int = Field(default=24, ge=1, le=MINUTES, description="Slots a day.")
    windows: int = Field(default=6, ge=0, le=MINUTES, description="Retry windows a day.")
    cap: int = Field(default=50, ge=0, le=MOST, description="Products in a retry window.")
    failure_rate: float = Field(
        default=0.05, ge=0, lt=1, allow_inf_nan=False, description="Of all calls for a product."
    )


class ReactivateIn(Model):
    model_config = example(syncNow=True)

    sync_now: bool = Field(default=False, description="Sync it now too, not only from its next slot on.")


class ReactivateAllIn(ReactivateIn):
    model_config = example(cause="duly.outbound.http.TimedOut", syncNow=True)

    cause: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] | None = Field(
        default=None, description="Only what this deactivated, as the day names it; without it, all."
    )
