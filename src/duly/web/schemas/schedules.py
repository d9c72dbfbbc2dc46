"""Schedules, their occurrences, previews and slots."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from duly.core.model import Schedule
from duly.core.shown import Occurrence
from duly.web.schemas import Args, Key, Model, Out, Rank, Rule, Seconds, Word, example, fields_of
from duly.web.schemas.audit import NoteOut


class ScheduleIn(Model):
    model_config = example(
        task="http", key="nightly", rule="daily 02:30", zone="Europe/Zagreb", args={"url": "https://example.com/hook"}
    )
    task: Word
    key: Key
    rule: Rule = Field(
        description="`daily 09:00`, `weekly mon,fri 08:00`, `every 15m`, five fields of cron, or `slots 24`."
    )
    zone: Word = "UTC"
    args: Args = Field(default_factory=dict)
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Seconds | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Rank | None = None


class ScheduleEdit(Model):
    model_config = example(rule="daily 03:30", overlap="skip")

    rule: Rule | None = None
    zone: Word | None = None
    args: Args | None = None
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Seconds | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Rank | None = None


class ReactivateSchedulesIn(Model):
    model_config = example(task="http", cause="duly.outbound.http.TimedOut", run=True)

    task: Word | None = None
    cause: str | None = Field(
        None,
        max_length=500,
        description="The class of the error that their last item ended with; empty: those whose last item is gone.",
    )
    run: bool = Field(False, description="Whether each makes an item now.")


class ReactivatedSchedulesOut(Out):
    reactivated: int
    is_more: bool = Field(description="There are more; ask again.")


class ScheduleOut(Out):
    # As it is kept, but for JSON, which is shown as what it says, and words that may become more.
    __annotations__ = {**fields_of(Schedule), "args": Any, "keep": Any, "catch_up": str, "overlap": str}
    state: Literal["active", "paused", "broken"]
    describe: str


class OccurrenceOut(Out):
    __annotations__ = fields_of(Occurrence)


class ClockNoteOut(Out):
    at: datetime
    note: str = Field(description="What the clocks do there, such as: 02:30 does not exist that day; runs 03:30.")


class ScheduleStoryOut(ScheduleOut):
    next: list[datetime] = Field(description="Its next times; none while it is paused or broken.")
    notes: list[ClockNoteOut] = Field(description="Where clocks change at these times.")
    items: list[OccurrenceOut] = Field(description="What it made lately, newest first.")
    audit: list[NoteOut] = Field(description="What was done to it lately, newest first.")


class PreviewIn(Model):
    model_config = example(rule="weekly mon,fri 08:00", zone="Europe/Zagreb", n=3)

    rule: Rule
    zone: Word = "UTC"
    n: Annotated[int, Field(ge=1, le=100)] = 5


class PreviewOut(Out):
    rule: str
    describe: str
    next: list[datetime]
    notes: list[ClockNoteOut] = Field(description="Where clocks change at these times.")


class SlotOut(Out):
    ring: str
    slot: int
    members: int


class MoveOut(Out):
    schedule_id: int
    key: str
    slot: int
    to: int
