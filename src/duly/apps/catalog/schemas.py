"""Products over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from duly.apps.catalog.capacity import Break, Plan
from duly.apps.catalog.products import Product
from duly.web.schemas import Model, Out, Word, example, fields_of


class ProductIn(Model):
    model_config = example(sku="65-12345-1")

    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductOut(Out):
    __annotations__ = fields_of(Product)


class PlanIn(Model):
    model_config = example(products=5000)

    products: Annotated[int, Field(ge=0, le=10_000_000)] = 5_000
    batch: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=10, description="SKUs per call.")
    rate: Annotated[float, Field(gt=0, le=1e6)] = Field(default=2, description="Calls a minute.")
    slots: Annotated[int, Field(ge=1, le=86_400)] = Field(default=24, description="Slots a day.")
    windows: Annotated[int, Field(ge=0, le=86_400)] = Field(default=6, description="Retry windows a day.")
    cap: Annotated[int, Field(ge=0, le=1_000_000)] = Field(default=50, description="Products per retry window.")


class BreakOut(Out):
    __annotations__ = fields_of(Break)


class PlanOut(Out):
    __annotations__ = {
        **fields_of(Plan), "breaks_first": BreakOut | None, "breaks": tuple[BreakOut, ...],
    }  # fmt: skip
