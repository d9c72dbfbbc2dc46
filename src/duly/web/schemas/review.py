"""Review: groups of failed items, and acts on many rows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.doc import Doc
from duly.verbs.listing import DateField
from duly.web.schemas import BIG, Key, Model, Moment, Sentence, Tries, Word, clean, example


class ReviewNoteIn(Model):
    model_config = example(text="The supplier changed its certificate.")

    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


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


class Count(Struct, frozen=True):
    count: int
    is_more: Annotated[bool, Doc("The count stopped here; there are more.")]
