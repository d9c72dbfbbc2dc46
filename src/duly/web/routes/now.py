"""What happened lately."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from duly.core.shown import Series
from duly.web.auth import Reader
from duly.web.desk import At, values
from duly.web.schemas import BIG, WordFilter
from duly.web.schemas.now import ChartOut

router = APIRouter(tags=["now"])


@router.get("/api/history", response_model=ChartOut)
def history(
    desk: At,
    principal: Reader,
    minutes: Annotated[int, Query(ge=1, le=20_160)] = 60,
    task: WordFilter = None,
    measure: WordFilter = None,
    job: Annotated[int | None, Query(ge=1, le=BIG, description="Of this job, for its owner too.")] = None,
) -> Any:
    """What happened in the last minutes, step by step: of all tasks and paces, of one task, or of one job."""
    look = desk.app.verbs.history.look
    chart = look(principal, minutes=minutes, task=task, measure=measure, job_id=job)
    return {**values(chart), "series": [_series(each) for each in chart.series]}


def _series(series: Series) -> dict[str, Any]:
    return {**values(series), "task": series.subject if series.kind == "task" else None}
