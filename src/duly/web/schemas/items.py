"""Items: put, list, show, edit, act on several."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.doc import Doc
from duly.core.shown import Action, Row
from duly.web.schemas import (
    Args,
    Key,
    Model,
    Moment,
    Rank,
    Seconds,
    Selection,
    Sentence,
    Tries,
    Word,
    clean,
    example,
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


class Search(Struct, frozen=True):
    """How a page was looked for."""

    scanned: Annotated[int, Doc("How many items were read.")]
    is_done: Annotated[bool, Doc("False: there may be more; `next` continues, even where this page has no rows.")]
    is_indexed: Annotated[bool, Doc("An index found the items. Otherwise items were read one by one.")]


class ItemPage(Struct, frozen=True):
    items: list[Row]
    next: Annotated[str | None, Doc("`after` of the next page; null on the last.")]
    search: Search


class AgainIn(Model):
    model_config = example(key="hook-1")

    key: Key | None = Field(default=None, description="One live item per task and key.")
    at: Moment | None = None
    delay: Seconds | None = Field(default=None, description="Seconds from now.")


class ItemsAct(Selection):
    model_config = example(action="retry", ids=[7, 8])

    action: Action
    reason: Sentence = ""
    at: Moment | None = Field(default=None, description="When retried items are due; default: now.")
    delay: Seconds | None = Field(default=None, description="The same, in seconds from now.")


class ItemEdit(Model):
    model_config = example(args={"url": "https://example.com/hook"}, at="2026-12-01T09:00:00+01:00", rank=-1)

    args: Args | None = None
    at: Moment | None = None
    due_at: Moment | None = Field(default=None, description="An older name of `at`.")
    queue: Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(clean)] | None = None
    rank: Rank | None = None
    tries: Tries | None = None


class ReasonIn(Model):
    model_config = example(reason="ordered twice")

    reason: Sentence = ""


class RetryIn(Model):
    model_config = example(at="2026-12-01T09:00:00+01:00")

    at: Moment | None = None


class Changed(Struct, frozen=True):
    """The ids of the rows that were changed."""

    ids: list[int]
