"""Queues, limits, workers and alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from duly.core.model import Lane, State
from duly.web.schemas import Model, Out, clean, example


class QueueOut(Out):
    queue: str
    waiting: int
    retrying: int
    due: int
    running: int
    failed: int
    oldest_due_seconds: float | None
    paused: bool


class QueueNote(Out):
    note: str


class LimitOut(Out):
    name: str
    most: int | None
    per_seconds: float | None
    granted: int
    last: datetime | None


class LimitIn(Model):
    model_config = example(limit="2/1m")

    limit: Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(clean)] = Field(
        description="`2/1m`: calls in any minute; `4`: at the same time."
    )


class WorkerOut(Out):
    name: str
    tasks: list[str]
    started_at: datetime
    seen_at: datetime


class AliveOut(Out):
    seen_at: datetime | None = Field(description="The last sign of life of any worker.")
    age_seconds: float | None = Field(description="How long ago that was, by the clock of the database.")


class LateOut(Out):
    id: int
    task: str
    queue: str
    planned_at: datetime
    started_at: datetime
    finished_at: datetime
    state: State
    lateness_seconds: float
    key: str | None
    subject: str | None = Field(description="The key of the schedule that made it.")


class StuckOut(Out):
    id: int
    task: str
    queue: str
    lane: Lane
    state: State
    planned_at: datetime
    due_at: datetime
    attempts: int
    last_error: str | None
    age_seconds: float
    key: str | None
    subject: str | None = Field(description="The key of the schedule that made it.")


class AlertOut(Out):
    name: str
    since: datetime
    message: str
    details: Any
    told_at: datetime | None
