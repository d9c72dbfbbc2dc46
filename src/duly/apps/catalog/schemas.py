"""Products over HTTP."""

from __future__ import annotations

from pydantic import Field

from duly.apps.catalog.products import Product
from duly.web.schemas import Model, Out, Word, example, fields_of


class ProductIn(Model):
    model_config = example(sku="65-12345-1")

    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductOut(Out):
    __annotations__ = fields_of(Product)
