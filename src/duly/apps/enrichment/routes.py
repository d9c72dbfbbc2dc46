"""Requests to the provider for the rows of a job, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from duly.apps.enrichment import plugin
from duly.apps.enrichment.lookups import Enrichment
from duly.apps.enrichment.searches import SearchEvent
from duly.web.auth import Reader
from duly.web.desk import Pages, serving
from duly.web.routing import Router
from duly.web.schemas import Id, Page

router = Router(tags=["apps"])

Here = Annotated[Enrichment, Depends(serving(plugin))]


@router.get("/api/jobs/{job_id}/events")
def list_job_events(job_id: Id, enrichment: Here, principal: Reader, pages: Pages) -> Page[SearchEvent]:
    """Every look-up for the rows of a job: in which words, at which retailer, how it ended and how long it took."""
    return pages.turn(lambda after, most: enrichment.events(job_id, after or 0, most, principal))
