"""What happened lately."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from duly.core.shown import Kind
from duly.web.schemas import Out


class SeriesOut(Out):
    kind: Kind
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
