"""Queues, limits, workers and alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.doc import Doc
from duly.web.schemas import Model, clean, example


class QueueNote(Struct, frozen=True):
    note: str


class LimitIn(Model):
    model_config = example(limit="2/1m")

    limit: Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(clean)] = Field(
        description="`2/1m`: calls in any minute; `4`: at the same time."
    )


class Alive(Struct, frozen=True):
    """When a worker last showed that it is alive."""

    seen_at: datetime | None
    age_seconds: Annotated[float | None, Doc("How long ago that was, by the clock of the database.")]
