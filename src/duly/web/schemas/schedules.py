"""Schedules, their occurrences, previews and slots."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from duly.core.doc import Doc
from duly.core.results import ScheduleAction
from duly.web.schemas import Args, Key, Model, Rank, Rule, Seconds, Selection, Word, example


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


class SchedulesAct(Selection):
    model_config = example(action="pause", ids=[7, 8])

    action: ScheduleAction


class ReactivateSchedulesIn(Model):
    model_config = example(task="http", cause="duly.outbound.http.TimedOut", run=True)

    task: Word | None = None
    cause: str | None = Field(
        None,
        max_length=500,
        description="The error class of their last item; empty: their last item is gone.",
    )
    run: bool = Field(False, description="Also make an item of each now.")


class ReactivatedSchedules(Struct, frozen=True):
    reactivated: int
    is_more: Annotated[bool, Doc("There are more; send the request again.")]


class PreviewIn(Model):
    model_config = example(rule="weekly mon,fri 08:00", zone="Europe/Zagreb", n=3)

    rule: Rule
    zone: Word = "UTC"
    n: Annotated[int, Field(ge=1, le=100)] = 5
