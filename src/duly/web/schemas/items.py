"""Items: put, shown, edited, tried again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from duly.core.model import Tried
from duly.core.shown import Action, Event, Row
from duly.tasks.signature import Signature, Type
from duly.verbs.items import SELECTED
from duly.web.schemas import (
    BIG,
    Args,
    Key,
    Model,
    Moment,
    Out,
    Page,
    Rank,
    Seconds,
    Sentence,
    State,
    Tries,
    Word,
    clean,
    example,
    fields_of,
)
from duly.web.schemas.audit import NoteOut


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
    __annotations__ = fields_of(Row, "fence")


class SearchOut(Out):
    """How a page was looked for."""

    scanned: int = Field(description="How many items were looked at.")
    is_done: bool = Field(description="False: there may be more; `next` goes on, even where this page has no rows.")
    is_indexed: bool = Field(description="An index knew what fits. Otherwise rows were looked at one by one.")


class ItemPage(Page[ItemOut]):
    search: SearchOut


class CountsOut(Out):
    """How many items fit, by state."""

    counts: dict[State, int]
    capped: dict[State, bool] = Field(description="There are at least so many; it was not counted further.")


class AgainIn(Model):
    model_config = example(key="hook-1")

    key: Key | None = Field(default=None, description="One live item per task and key.")
    at: Moment | None = None
    delay: Seconds | None = Field(default=None, description="Seconds from now.")


class SelectionIn(Model):
    model_config = example(action="retry", ids=[7, 8])

    action: Action
    ids: list[Annotated[int, Field(ge=1, le=BIG)]] = Field(min_length=1, max_length=SELECTED)
    reason: Sentence = ""


class ParamOut(Out):
    name: str
    type: Type = Field(description="json: any other value, written as JSON.")
    required: bool = Field(validation_alias="is_required")
    default: Any
    is_nullable: bool


class TaskOut(Out):
    __annotations__ = {**fields_of(Signature, "params"), "params": list[ParamOut], "is_internal": bool}
    is_internal = False


class TryOut(Out):
    __annotations__ = fields_of(Tried)


class EventOut(Out):
    __annotations__ = fields_of(Event)


class ScheduleName(Out):
    id: int
    key: str


class ItemStoryOut(ItemOut):
    tries: list[TryOut]
    lease_until: datetime | None
    timeline: list[EventOut] = Field(description="What happened to it, oldest first, and when it is due.")
    trace_id: str | None = Field(description="Of the trace in which it was put.")
    schedule: ScheduleName | None = Field(description="The schedule that made it, while that is there.")
    audit: list[NoteOut] = Field(description="What people did to it lately, newest first.")


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
