"""What is done to all rows of a job, portion by portion: cancel them, try them once more, forget them.

Whoever carries it out may die at any point, and the next one begins anew: each portion looks for rows that are still
to be changed, so nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from duly.core import codec
from duly.core.decide import decide
from duly.core.errors import WrongState
from duly.core.model import Cancel, Change, Job, Outcome, Revived, Status
from duly.verbs.ground import Ground
from duly.verbs.job_rows import LIVE

PORTION = 500
EVER = datetime(9999, 1, 1, tzinfo=UTC)
# More rounds than any row had.
ANY = 2**31 - 1


def find_job(ground: Ground, job_id: int) -> Job | None:
    """The job, also one that was removed; None when nothing is left of it."""
    rows = ground.store.read("any_job", {"id": job_id})
    return Job(*rows[0]) if rows else None


def cancel_rows(ground: Ground, job: Job, reason: str) -> Iterator[int]:
    """Cancel all rows that have not ended, and let the queue of the job go again, for there is nothing left to start.

    Yields how many were cancelled so far. A row that a worker changed meanwhile is found by the next walk.
    """
    done, before = 0, -1
    while done > before:
        before = done
        for count in _walk(ground, job, LIVE, Cancel(reason), EVER, (ANY, ANY)):
            done += count
            yield done
    ground.store.resume(job.rows_queue)
    ground.forget_depths()


def revive_rows(ground: Ground, job: Job, statuses: Sequence[Status], until: datetime, is_reset: bool) -> Iterator[int]:
    """Have the rows of these statuses tried once more that have not changed since then; yields how many so far."""
    settings, done = ground.job_settings, 0
    rounds = (ANY, ANY) if is_reset else (settings.max_attempts_error, settings.max_attempts_not_found)
    for count in _walk(ground, job, statuses, Revived(ground.now()), until, rounds):
        done += count
        yield done


def remove_rows(ground: Ground, job: Job) -> Iterator[int]:
    """Stop and forget all rows, and then the job itself; yields how many are gone so far."""
    for _ in cancel_rows(ground, job, "its job was removed"):
        yield 0
    done = 0
    while gone := ground.store.write("remove_rows", {"job_id": job.id, "most": PORTION}):
        done += len(gone)
        yield done
    with ground.store.transaction() as connection:
        if job.file_id is not None:
            ground.store.run(connection, "remove_file", {"id": job.file_id})
        ground.store.run(connection, "remove_job", {"id": job.id})


def _walk(
    ground: Ground, job: Job, statuses: Sequence[Status], outcome: Outcome, until: datetime, rounds: tuple[int, int]
) -> Iterator[int]:
    """Have this happen to the rows of these statuses, in their order; yields how many changed with each portion."""
    given = {
        "job_id": job.id, "statuses": codec.encode(statuses).decode(), "until": until, "most": PORTION,
        "error_rounds": rounds[0], "not_found_rounds": rounds[1],
    }  # fmt: skip
    after = 0
    while found := ground.store.read("job_row_ids", {**given, "after": after}):
        after = found[-1][1]
        now, rules = ground.now(), ground.rules_of(job.task)
        items = [item for item in ground.store.fetch([row[0] for row in found]) if item.status in statuses]
        yield _settled(ground, [decide(item, outcome, now, rules) for item in items])


def _settled(ground: Ground, changes: Sequence[Change]) -> int:
    """How many of these changes could be made."""
    try:
        return len(changes) - len(ground.observed().settle(changes))
    except WrongState:  # one of them has a key that another live item has: it must not stop the others
        done = 0
        for change in changes:
            with suppress(WrongState):
                done += not ground.observed().settle([change])
        return done
