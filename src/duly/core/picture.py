"""How it is now, in one picture: whether all is well and why not, and the numbers behind that."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Struct, field

from duly.core.doc import Doc
from duly.core.shown import Alert, QueueDepth, WorkerLife

Level = Literal["ok", "warn", "bad"]


class Reason(Struct, frozen=True):
    """Why all is not well, in plain words, and the page of the dashboard on which one acts on it."""

    level: Level
    text: str
    path: Annotated[str, Doc("The page of the dashboard on which to act.")]


class QueueNow(QueueDepth, frozen=True, kw_only=True):
    lateness_seconds: Annotated[float | None, Doc("Mean lateness of starts of its tasks in the last minutes.")]
    per_minute: Annotated[float | None, Doc("Items of its tasks done lately; null where no task has this queue.")]


class ItemsNow(Struct, frozen=True):
    waiting: int
    due: int
    retrying: int
    running: int
    failed: int
    late: Annotated[int, Doc("For admins as the alert of late items counts them: 0 while there is none.")]
    capped: Annotated[bool, Doc("Only the newest items were counted.")]


class Run(Struct, frozen=True):
    """An item that runs."""

    id: int
    task: str
    key: str | None
    started_at: datetime


class WorkerNow(WorkerLife, frozen=True):
    running: int = 0
    runs: list[Run] = field(default_factory=list)  # some of them, the longest first


class LimitNow(Struct, frozen=True):
    name: str
    most: int | None  # None if set neither by a person nor by a task of this process
    per_seconds: float | None  # None: at the same time
    used: int
    fill: float  # from 0 to 1
    free_at: datetime | None  # when a limit that is full has room again, if that is known


class Recovery(Struct, frozen=True):
    """Late items are being made up for."""

    late: int
    since: datetime
    per_minute: float
    seconds: Annotated[float | None, Doc("Until nothing is late, at this rate; null while nothing is done.")]


class ReviewNow(Struct, frozen=True):
    items: int
    groups: int
    capped: bool


class SchedulesNow(Struct, frozen=True):
    active: int
    paused: int
    broken: int
    next_at: datetime | None
    capped: bool


class Picture(Struct, frozen=True, kw_only=True):
    at: datetime
    health: Level
    reasons: list[Reason]
    totals: ItemsNow
    review: ReviewNow
    schedules: SchedulesNow
    # What follows is about all owners, and empty for users who are not admins.
    queues: list[QueueNow] = []
    more_queues: int = 0
    workers: list[WorkerNow] = []
    more_workers: int = 0
    limits: list[LimitNow] = []
    more_limits: int = 0
    recovery: Recovery | None = None
    alerts: list[Alert] = []
