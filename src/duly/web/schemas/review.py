"""Review: groups of failed items, and acts on many rows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.doc import Doc
from duly.core.results import DateField
from duly.web.schemas import BIG, Key, Model, Moment, Sentence, Tries, Word, clean, example


class ReviewNoteIn(Model):
    model_config = example(text="The supplier changed its certificate.")

    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class FilterIn(Model):
    """Which items an act changes: the filters of the list of items."""

    model_config = example(state="failed", task="http")

    state: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="One or more states, separated by commas."
    )
    task: Word | None = None
    queue: Word | None = None
    key: Key | None = None
    error_group: Word | None = None
    schedule_id: Annotated[int, Field(ge=1, le=BIG)] | None = None
    job_id: Annotated[int, Field(ge=1, le=BIG)] | None = None
    error: Word | None = Field(default=None, description="A part of the last error, ignoring case.")
    min_tries: Tries | None = None
    date_field: DateField | None = Field(
        default=None, description="The time that `from` and `to` apply to; default: created."
    )
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
    filter: FilterIn
    rate: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None, description="Items per second; null: all at once."
    )
    reason: Sentence = ""
    queue: Word | None = Field(default=None, description="The queue for retried items; null: their own.")


class CountIn(Model):
    model_config = example(action="retry", filter={"state": "failed", "task": "http"})

    action: Literal["cancel", "retry", "discard"]
    filter: FilterIn


class Count(Struct, frozen=True):
    count: int
    is_more: Annotated[bool, Doc("The count stopped here; there are more.")]
