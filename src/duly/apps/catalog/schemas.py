"""Products over HTTP."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import Field

from duly.web.schemas import Model, Out, Word, example


class ProductIn(Model):
    model_config = example(sku="65-12345-1")

    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductOut(Out):
    id: int
    user_id: str
    sku: str
    hour_bucket: int
    sync_status: Literal["pending", "syncing", "success", "failed"]
    last_sync_at: datetime | None
    last_successful_sync: date | None
    consecutive_failures: int
    last_error: str | None
    is_active: bool
    last_boeing_hash: str | None
    last_price: float | None
    last_quantity: int | None
    created_at: datetime
