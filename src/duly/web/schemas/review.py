"""Review: groups of failed items, and acts on many rows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.core.shown import Group, ReviewNote
from duly.web.schemas import Model, Out, Sentence, State, Word, clean, example, fields_of


class GroupOut(Out):
    __annotations__ = fields_of(Group, "sample")
    sample: int = Field(description="An item of this group.")


class ReviewNoteIn(Model):
    model_config = example(text="The supplier changed its certificate.")

    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class ReviewNoteOut(Out):
    __annotations__ = fields_of(ReviewNote)


class GroupStoryOut(GroupOut):
    notes: list[ReviewNoteOut]
    error: str | None = Field(description="The last error of the sample.")


class Filter(Model):
    model_config = example(state="failed", task="http")

    state: State | None = None
    task: Word | None = None
    queue: Word | None = None
    error_group: Word | None = None


class BulkIn(Model):
    model_config = example(
        action="retry", filter={"state": "failed", "task": "http"}, rate=10, reason="the receiver is back"
    )

    action: Literal["cancel", "retry", "discard"]
    filter: Filter
    rate: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None, description="Items per second; null: as fast as it goes."
    )
    reason: Sentence = ""


class CountIn(Model):
    model_config = example(action="retry", filter={"state": "failed", "task": "http"})

    action: Literal["cancel", "retry", "discard"]
    filter: Filter


class CountOut(Out):
    count: int
    is_more: bool = Field(description="The count stopped here; there are more.")


class FilterOut(Out):
    state: State | None
    task: str | None
    queue: str | None
    error_group: str | None


class BulkOut(Out):
    id: int
    owner: str | None
    author: str
    action: Literal["cancel", "retry", "discard"]
    filter: FilterOut
    state: Literal["running", "done", "cancelled"]
    total: int
    seen: int
    changed: int
    created_at: datetime
    finished_at: datetime | None
