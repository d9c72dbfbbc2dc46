"""Items: put, shown, edited, tried again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from duly.core.model import Tried
from duly.core.shown import OwnedRow
from duly.web.schemas import (
    Args,
    Key,
    Model,
    Moment,
    Out,
    Rank,
    Seconds,
    Sentence,
    Tries,
    Word,
    clean,
    example,
    fields_of,
)


class ItemIn(Model):
    model_config = example(task="http", args={"url": "https://example.com/hook", "body": {"n": 1}}, key="hook-1")
    task: Word
    args: Args = Field(default_factory=dict)
    at: Moment | None = None
    delay: Seconds | None = Field(default=None, description="Seconds from now.")
    key: Key | None = Field(default=None, description="One live item per task and key.")
    rank: Rank | None = None
    tries: Tries | None = None
    max_lateness: Seconds | None = None


class PlacedOut(Out):
    id: int
    execution_key: str
    fresh: bool = Field(description="False: the item that has this key already.")


class ItemOut(Out):
    # The fence is between the store and the worker.
    __annotations__ = fields_of(OwnedRow, "fence")


class TryOut(Out):
    __annotations__ = fields_of(Tried)


class ItemStoryOut(ItemOut):
    tries: list[TryOut]
    lease_until: datetime | None


class ItemEdit(Model):
    model_config = example(args={"url": "https://example.com/hook"}, at="2026-12-01T09:00:00+01:00", rank=-1)

    args: Args | None = None
    at: Moment | None = None
    due_at: Moment | None = Field(default=None, description="An older name of `at`.")
    queue: Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(clean)] | None = None
    rank: Rank | None = None
    tries: Tries | None = None


class Reason(Model):
    model_config = example(reason="ordered twice")

    reason: Sentence = ""


class RetryIn(Model):
    model_config = example(at="2026-12-01T09:00:00+01:00")

    at: Moment | None = None


class Changed(Out):
    ids: list[int]
