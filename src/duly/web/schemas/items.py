"""Items: put, filter, edit, act on one, on several, or on all that match a filter."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import Field, StringConstraints

from duly.core.doc import Doc
from duly.core.results import DateField
from duly.core.shown import Action, Row
from duly.web.schemas import (
    Args,
    Key,
    Model,
    Moment,
    Rank,
    RowId,
    Seconds,
    Selection,
    Sentence,
    Tries,
    Word,
    example,
)


class RetryIn(Model):
    model_config = example(at="2026-12-01T09:00:00+01:00")

    at: Moment | None = None


class AgainIn(RetryIn):
    model_config = example(key="hook-1")

    delay: Seconds | None = Field(default=None, description="Seconds from now.")
    key: Key | None = Field(default=None, description="One live item per task and key.")


class ItemIn(AgainIn):
    model_config = example(task="http", args={"url": "https://example.com/hook", "body": {"n": 1}}, key="hook-1")

    task: Word
    args: Args = Field(default_factory=dict)
    rank: Rank | None = None
    tries: Tries | None = None
    max_lateness: Seconds | None = None


class Search(Struct, frozen=True):
    """How a page was looked for."""

    scanned: Annotated[int, Doc("How many items were read.")]
    is_done: Annotated[bool, Doc("False: there may be more; `next` continues, even where this page has no rows.")]
    is_indexed: Annotated[bool, Doc("An index found the items. Otherwise items were read one by one.")]


class ItemPage(Struct, frozen=True):
    items: list[Row]
    next: Annotated[str | None, Doc("`after` of the next page; null on the last.")]
    search: Search


class ItemEdit(Model):
    model_config = example(args={"url": "https://example.com/hook"}, at="2026-12-01T09:00:00+01:00", rank=-1)

    args: Args | None = None
    at: Moment | None = None
    queue: Word | None = None
    rank: Rank | None = None
    tries: Tries | None = None


class ReasonIn(Model):
    model_config = example(reason="ordered twice")

    reason: Sentence = ""


class ItemsAct(Selection, ReasonIn):
    model_config = example(action="retry", ids=[7, 8])

    action: Action
    at: Moment | None = Field(default=None, description="When retried items are due; default: now.")
    delay: Seconds | None = Field(default=None, description="The same, in seconds from now.")


class FilterIn(Model):
    """Which items are listed, or changed by an act."""

    model_config = example(state="failed", task="http")

    state: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="One or more states, separated by commas."
    )
    task: Word | None = None
    queue: Word | None = None
    key: Key | None = None
    error_group: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")] | None = None
    schedule_id: RowId | None = None
    job_id: RowId | None = None
    error: Word | None = Field(default=None, description="A part of the last error, ignoring case.")
    min_tries: Tries | None = None
    date_field: DateField | None = Field(
        default=None, description="The time that `from` and `to` apply to; default: created."
    )
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    where: Annotated[list[Key], Field(max_length=10)] | None = Field(
        default=None, description="name=value of an argument, or result.name=value; at most ten."
    )


class CountIn(Model):
    model_config = example(action="retry", filter={"state": "failed", "task": "http"})

    action: Action
    filter: FilterIn


class ActIn(CountIn, ReasonIn):
    model_config = example(
        action="retry", filter={"state": "failed", "task": "http"}, rate=10, reason="the receiver is back"
    )

    rate: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None, description="Items per second; null: all at once."
    )
    queue: Word | None = Field(default=None, description="The queue for retried items; null: their own.")


class Count(Struct, frozen=True):
    count: int
    is_more: Annotated[bool, Doc("The count stopped here; there are more.")]
