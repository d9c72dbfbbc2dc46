"""What is done to all rows of a job, portion by portion: they are cancelled, tried once more, or removed.

A worker may die at any point, and the next one starts again: each portion looks for rows that are still to be changed,
so nothing is done twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from duly.core.errors import WrongState
from duly.core.model import Cancel, Change, Job, Outcome, Revived, Status
from duly.verbs.context import VerbContext
from duly.verbs.items import possible
from duly.verbs.job_checks import true_up_rows
from duly.verbs.job_rows import END, LIVE, START, RowPlace

ACTED_ON = 500  # rows that are changed at a time
PAUSE = 0.05  # seconds before it looks again at rows that a worker has just changed
STALLED = 50  # walks in a row that change nothing
ANY = 2**31 - 1  # more rounds than any row had


def find_job(context: VerbContext, job_id: int) -> Job | None:
    """The job, also one that was removed; None when nothing is left of it."""
    return context.read.one(Job, "any_job", {"id": job_id})


def cancel_rows(context: VerbContext, job: Job, reason: str) -> Iterator[int]:
    """Cancel all rows that have not ended, and let the queue of the job go again, for there is nothing left to start.

    Yields how many were cancelled so far. A row that a worker changed meanwhile is found by the next walk. Where a walk
    can change none of the rows that it finds, again and again, the job's item fails, and is tried again later.
    """
    done, idle = 0, 0
    was_untrue = true_up_rows(context, job.id) > 0
    while True:
        found = changed = 0
        for count in _walk(context, job, LIVE, Cancel(reason), END, {}):
            found, changed = found + 1, changed + count
            yield done + changed
        done += changed
        if not found:
            break
        idle = 0 if changed else idle + 1
        if idle > STALLED:
            raise WrongState(f"job {job.id}: rows that have not ended cannot be cancelled; `duly jobs check {job.id}`")
        if idle:
            was_untrue = true_up_rows(context, job.id) > 0 or was_untrue
            time.sleep(PAUSE)
    if was_untrue:
        context.store.recount_job(job.id, context.now())
    context.store.resume(job.rows_queue)
    context.depths.forget()


def revive_rows(
    context: VerbContext, job: Job, statuses: Sequence[Status], until: datetime, is_reset: bool
) -> Iterator[int]:
    """Have the rows of these statuses tried once more that have not changed since then; yields how many so far."""
    settings, done = context.job_settings, 0
    most = {"ERROR": settings.max_attempts_error, "NOT_FOUND": settings.max_attempts_not_found}
    rounds = {} if is_reset else {status: most.get(status, settings.max_attempts_error) for status in statuses}
    for count in _walk(context, job, statuses, Revived(context.now()), until, rounds):
        done += count
        yield done


def remove_rows(context: VerbContext, job: Job) -> Iterator[int]:
    """Stop and delete all rows, and then the job itself; yields how many are deleted so far."""
    for _ in cancel_rows(context, job, "its job was removed"):
        yield 0
    done = after = 0
    while gone := context.store.write("remove_rows", {"job_id": job.id, "after": after, "most": ACTED_ON}):
        after = max(row[0] for row in gone)
        done += len(gone)
        yield done
    with context.store.transaction() as connection:
        if job.file_id is not None:
            context.store.write("remove_file", {"id": job.file_id}, connection)
        context.store.write("remove_job", {"id": job.id}, connection)
        context.store.write("forget_queue", {"queue": job.rows_queue}, connection)


def _walk(
    context: VerbContext,
    job: Job,
    statuses: Sequence[Status],
    outcome: Outcome,
    until: datetime,
    rounds: Mapping[Status, int],
) -> Iterator[int]:
    """Have this happen to the rows of these statuses; yields, for each portion that was found, how many changed."""
    for status in statuses:
        given = {"job_id": job.id, "status": status, "until": until, "most": ACTED_ON}
        given["rounds"] = rounds.get(status, ANY)
        place: RowPlace = START
        while found := context.store.read("job_row_ids", {**given, "after_at": place[0], "after_id": place[1]}):
            place = found[-1][1], found[-1][0]
            items = [item for item in context.store.fetch([row[0] for row in found]) if item.status == status]
            yield _settled(context, possible(context, items, lambda _: outcome))


def _settled(context: VerbContext, changes: Sequence[Change]) -> int:
    """How many of these changes could be made."""
    try:
        return len(changes) - len(context.observed().settle(changes))
    except WrongState:  # one of them has a key that another live item has: it must not stop the others
        done = 0
        for change in changes:
            with suppress(WrongState):
                done += not context.observed().settle([change])
        return done
