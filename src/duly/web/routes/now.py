"""Measurements of the last minutes, and the current state."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from duly.core.picture import Picture
from duly.core.shown import Chart
from duly.web.auth import Reader
from duly.web.desk import At
from duly.web.schemas import BIG, WordFilter, out

router = APIRouter(tags=["now"])


@router.get("/api/history", response_model=out(Chart))
def history(
    desk: At,
    principal: Reader,
    minutes: Annotated[int, Query(ge=1, le=20_160)] = 60,
    task: WordFilter = None,
    measure: WordFilter = None,
    job: Annotated[int | None, Query(ge=1, le=BIG, description="Of this job; its owner may ask too.")] = None,
) -> Any:
    """Measurements of the last minutes in steps: of all tasks and paces, of one task, or of one job."""
    return desk.app.verbs.history.look(principal, minutes=minutes, task=task, measure=measure, job_id=job)


@router.get("/api/now", response_model=out(Picture))
def now(desk: At, principal: Reader) -> Any:
    """The current state: health with its reasons, and totals. Admins see everything, others their own rows."""
    return desk.app.verbs.now.look(principal)
