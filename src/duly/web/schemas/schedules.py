"""Schedules, their occurrences, previews and slots."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

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


class ScheduleOut(Out):
    id: int
    task: str
    key: str
    queue: str
    rank: int
    args: Any
    rule: str
    describe: str
    zone: str
    state: Literal["active", "paused", "broken"]
    catch_up: str
    max_lateness: float | None
    overlap: str
    ring: str | None
    slot: int | None
    is_declared: bool
    next_at: datetime | None
    paused_at: datetime | None
    broken_at: datetime | None
    failures: int
    last_at: datetime | None
    last_item: int | None
    last_success_at: datetime | None
    last_error: str | None
    fingerprint: str | None
    unchanged: int
    skipped: int
    keep: Any
    owner: str | None
    created_at: datetime


class OccurrenceOut(Out):
    __annotations__ = fields_of(Occurrence)


class ScheduleStoryOut(ScheduleOut):
    next: list[datetime] = Field(description="Its next times; none while it is paused or broken.")
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


class SlotOut(Out):
    ring: str
    slot: int
    members: int


class MoveOut(Out):
    schedule_id: int
    key: str
    slot: int
    to: int
