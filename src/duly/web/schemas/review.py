"""Review: groups of failed items, and acts on many rows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.core.shown import ReviewNote, ReviewTotals, ShownGroup
from duly.verbs.listing import DateField
from duly.web.schemas import BIG, Key, Model, Moment, Out, Sentence, Tries, Word, clean, example, fields_of


class GroupOut(Out):
    __annotations__ = fields_of(ShownGroup, "sample", "message", "trend")
    sample: int = Field(description="An item of this group.")
    message: str | None = Field(description="The first line of the sample's error.")
    trend: list[int] = Field(description="Given up per hour of the last 24, oldest first; of its newest items.")


class ReviewTotalsOut(Out):
    __annotations__ = fields_of(ReviewTotals)


class ReviewNoteIn(Model):
    model_config = example(text="The supplier changed its certificate.")

    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class ReviewNoteOut(Out):
    __annotations__ = fields_of(ReviewNote)


class GroupStoryOut(GroupOut):
    notes: list[ReviewNoteOut]
    error: str | None = Field(description="The last error of the sample.")


class Filter(Model):
    """Which items an act means: the filters of the list of items."""

    model_config = example(state="failed", task="http")

    state: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="One or more states, by commas."
    )
    task: Word | None = None
    queue: Word | None = None
    key: Key | None = None
    error_group: Word | None = None
    schedule_id: Annotated[int, Field(ge=1, le=BIG)] | None = None
    job_id: Annotated[int, Field(ge=1, le=BIG)] | None = None
    error: Word | None = Field(default=None, description="A part of the last error, in whatever case.")
    min_tries: Tries | None = None
    date_field: DateField | None = Field(default=None, description="Which time is meant; default: created.")
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    where: Annotated[list[Key], Field(max_length=10)] | None = Field(
        default=None, description="name=value of an argument, or result.name=value."
    )


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
    queue: Word | None = Field(default=None, description="Where retried items wait from now on; null: where they did.")


class CountIn(Model):
    model_config = example(action="retry", filter={"state": "failed", "task": "http"})

    action: Literal["cancel", "retry", "discard"]
    filter: Filter


class CountOut(Out):
    count: int
    is_more: bool = Field(description="The count stopped here; there are more.")


class FilterOut(Out):
    state: Annotated[str, AfterValidator(lambda text: text.rstrip(",") or None)] | None
    task: str | None
    queue: str | None
    key: str | None = None
    error_group: str | None
    schedule_id: int | None = None
    job_id: int | None = None
    error: str | None = None
    min_tries: int | None = None
    date_field: DateField | None = None
    since: datetime | None = Field(default=None, alias="from")
    until: datetime | None = Field(default=None, alias="to")
    where: list[str] | None = None


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
