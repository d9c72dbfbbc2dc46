"""Rows of jobs are counted: what changes of items mean for their jobs, and what is put when a job is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from duly.core.errors import KeyConflict
from duly.core.model import Change, Job, NewItem, Placed, Status

# The counter of a job for each way in which a row can have ended.
COUNTERS: dict[Status | None, str] = {
    "DONE": "done",
    "NOT_FOUND": "not_found",
    "ERROR": "failed",
    "SKIPPED": "skipped",
}


def tally(changes: Iterable[Change]) -> tuple[dict[int, Counter[str]], datetime | None]:
    """By how much these changes move the counters of each job, by their ids, and when the last was made."""
    tallies: dict[int, Counter[str]] = {}
    last: datetime | None = None
    for change in changes:
        if change.job_id is None:
            continue
        counters = tallies.setdefault(change.job_id, Counter())
        if change.was_status in COUNTERS:
            counters[COUNTERS[change.was_status]] -= 1
        if change.status in COUNTERS:
            counters[COUNTERS[change.status]] += 1
        last = change.changed_at if last is None or (change.changed_at or last) > last else last
    return dict(sorted(tallies.items())), last


def sequel(job: Job) -> NewItem | None:
    """What is put now that the last row of this job has ended; None when there is nothing, or it was put before.

    An argument called `job` receives how many rows ended in which way.
    """
    if job.then_item is None or job.then_id is not None:
        return None
    item = msgspec.json.decode(job.then_item, type=NewItem)
    args = msgspec.json.decode(item.args)
    if "job" not in args:
        return item
    return replace(item, args=msgspec.json.encode({**args, "job": counts(job)}))


def conclusion(job: Job, now: datetime | None, put: Callable[[NewItem], Placed[Any]]) -> dict[str, Any] | None:
    """What is written when a job is over now, or no longer; None when nothing changed. `put` puts the sequel."""
    if job.is_over == (job.finished_at is not None):
        return None
    then_id = None
    if job.is_over and (then := sequel(job)) is not None:
        try:
            then_id = put(then).id
        except KeyConflict as error:  # a live item has this key already, which will do
            then_id = error.item_id
    return {"id": job.id, "finished_at": now if job.is_over else None, "then_id": then_id}


def counts(job: Job) -> dict[str, Any]:
    """The counters of this job."""
    return {
        "id": job.id,
        "total": job.total,
        "done": job.done,
        "not_found": job.not_found,
        "failed": job.failed,
        "skipped": job.skipped,
    }
