"""What happened lately, and how it is now."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from duly.core.picture import Level
from duly.core.shown import HistoryKind
from duly.web.schemas import Out
from duly.web.schemas.queues import AlertOut


class SeriesOut(Out):
    kind: HistoryKind
    task: str | None = Field(description="Of a task: its name.")
    subject: str = Field(description="The name of the task or pace, or the id of the job.")
    measure: str
    points: list[tuple[int, int, float | None, float | None]] = Field(
        description="When a step began (seconds since 1970), how often, the mean and the largest value."
    )


class ChartOut(Out):
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    step_seconds: int
    series: list[SeriesOut]
    is_more: bool


class ReasonOut(Out):
    level: Level
    text: str
    path: str = Field(description="The page of the dashboard on which one acts on it.")


class QueueNowOut(Out):
    queue: str
    waiting: int
    retrying: int
    due: int
    running: int
    failed: int
    oldest_due_seconds: float | None
    lateness_seconds: float | None = Field(description="How late its items started in the last minutes, on average.")
    paused: bool
    per_minute: float | None = Field(description="Items that were done; null where no task has this queue.")


class TotalsOut(Out):
    waiting: int
    due: int
    retrying: int
    running: int
    failed: int
    late: int = Field(description="For admins as the alert of late items counts them: 0 while there is none.")
    capped: bool = Field(description="Only the newest items were counted.")


class RunOut(Out):
    id: int
    task: str
    key: str | None
    started_at: datetime


class WorkerNowOut(Out):
    name: str
    tasks: list[str]
    started_at: datetime
    seen_at: datetime
    running: int
    runs: list[RunOut]


class LimitNowOut(Out):
    name: str
    most: int | None
    per_seconds: float | None
    used: int
    fill: float
    free_at: datetime | None


class RecoveryOut(Out):
    late: int
    since: datetime
    per_minute: float
    seconds: float | None = Field(description="Until nothing is late any more, at this pace.")


class ReviewTotalsOut(Out):
    items: int
    groups: int
    capped: bool


class ScheduleTotalsOut(Out):
    active: int
    paused: int
    broken: int
    next_at: datetime | None
    capped: bool


class PictureOut(Out):
    at: datetime
    health: Level
    reasons: list[ReasonOut]
    totals: TotalsOut
    review: ReviewTotalsOut
    schedules: ScheduleTotalsOut
    queues: list[QueueNowOut]
    more_queues: int
    workers: list[WorkerNowOut]
    more_workers: int
    limits: list[LimitNowOut]
    more_limits: int
    recovery: RecoveryOut | None
    alerts: list[AlertOut]
