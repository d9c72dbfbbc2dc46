"""Measurements of the last minutes, and the current state."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from duly.core.picture import Picture
from duly.core.shown import Chart
from duly.web.auth import Reader
from duly.web.desk import Verbs
from duly.web.routing import Router
from duly.web.schemas import BIG, WordFilter

router = Router(tags=["now"])


@router.get("/api/history")
def history(
    verbs: Verbs,
    principal: Reader,
    minutes: Annotated[int, Query(ge=1, le=20_160)] = 60,
    task: WordFilter = None,
    measure: WordFilter = None,
    job: Annotated[int | None, Query(ge=1, le=BIG, description="Of this job; its owner may ask too.")] = None,
) -> Chart:
    """Measurements of the last minutes in steps: of all tasks and paces, of one task, or of one job."""
    return verbs.history.look(principal, minutes=minutes, task=task, measure=measure, job_id=job)


@router.get("/api/now")
def now(verbs: Verbs, principal: Reader) -> Picture:
    """The current state: health with its reasons, and totals. Admins see everything, others their own rows."""
    return verbs.now.look(principal)
