"""Rows of jobs, as lists show them and exports need them, and what is done to all rows of a job.

They are found along an index, a page at a time, and never counted off. What is done to all of them (cancel, try once
more, forget) is done portion by portion. A worker may die at any point, and the next one starts again: each portion
looks for rows that are still to be changed, so nothing is done twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any, TypedDict, TypeVar, Unpack

from duly.core.clock import EPOCH
from duly.core.errors import WrongState
from duly.core.filters import check_names, checked_most
from duly.core.model import Cancel, Change, Job, Outcome, Revived, Status
from duly.core.shown import ExportRow, JobItem, PendingItem, RowCounts
from duly.verbs.context import Principal, VerbContext, VerbGroup
from duly.verbs.items import possible
from duly.verbs.read import ids_text

log = logging.getLogger("duly.jobs")

STATUSES: tuple[Status, ...] = ("PENDING", "PROCESSING", "DONE", "ERROR", "NOT_FOUND", "SKIPPED")
# Those of rows that have not ended.
LIVE: tuple[Status, ...] = ("PENDING", "PROCESSING")
# Rows that an export reads at a time.
PORTION = 1_000
# Rows that are scanned for names at a time.
STRETCH = 50_000
# A page that takes more seconds than this is logged as slow.
SLOW = 0.25

# The time of the last change of a row and its id: after which a page begins.
RowPlace = tuple[datetime, int]
START: RowPlace = (EPOCH, 0)
END = datetime(9_999, 1, 1, tzinfo=UTC)
COUNTED = 10_000  # rows of a status that are counted off, at most
ACTED_ON = 500  # rows that are changed at a time
PAUSE = 0.05  # seconds before it looks again at rows that a worker has just changed
ANY = 2**31 - 1  # more rounds than any row had

T = TypeVar("T", bound=JobItem)


class RowFilter(TypedDict, total=False):
    """A filter for rows of jobs: by their jobs, and by the time of their last change."""

    owner: str | None
    job_type: str | None
    job_ids: Sequence[int]  # default: all jobs
    since: datetime | None
    until: datetime | None


class JobRows(VerbGroup):
    def page(
        self,
        who: Principal,
        job_id: int,
        statuses: Sequence[Status] = STATUSES,
        after: RowPlace = START,
        most: int = 100,
    ) -> list[JobItem]:
        """Rows of these statuses, those that changed longest ago first."""
        self._peers.jobs.get(who, job_id)
        return self._merged("job_items", {"job_id": job_id}, statuses, after, most, JobItem)

    def by_number(self, who: Principal, job_id: int, after: int = 0, most: int = 100) -> list[JobItem]:
        """Rows in the order of the file, from the one after this number on."""
        self._peers.jobs.get(who, job_id)
        given = {"job_id": job_id, "after": after, "until": after + checked_most(most)}
        with self._timed("job_items_by_number") as page:
            page += self._read.all(JobItem, "job_items_by_number", given)
        return page

    def pending(
        self,
        who: Principal,
        statuses: Sequence[Status] = LIVE,
        after: RowPlace = START,
        most: int = 100,
        **filter: Unpack[RowFilter],
    ) -> list[PendingItem]:
        """Rows of all jobs of one owner, or of all that they reach, those that changed longest ago first."""
        given = {**_jobs_meant(who, filter), "until": filter.get("until") or END}
        after = max(after, (filter.get("since") or EPOCH, 0))
        live = [status for status in statuses if status in LIVE]
        ended = [status for status in statuses if status not in LIVE]
        pages = [
            self._merged(section, given, some, after, most, PendingItem)
            for section, some in (("pending_items", live), ("ended_items", ended))
            if some
        ]
        return list(islice(merge(*pages, key=_place), most))

    def counts(self, who: Principal, **filter: Unpack[RowFilter]) -> RowCounts:
        """How many rows of jobs there are, by status.

        The counters of the jobs know, but for how many are worked on now. With a time, rows are counted, up to ten
        thousand of each status.
        """
        meant, since, until = _jobs_meant(who, filter), filter.get("since"), filter.get("until")
        store = self._store

        def counted(status: Status) -> int:
            asked = {**meant, "status": status, "since": since or EPOCH, "until": until or END, "most": COUNTED + 1}
            return int(store.read("count_status", asked)[0][0])

        if since is not None or until is not None:
            found = {status: counted(status) for status in STATUSES}
        else:
            total, done, not_found, failed, skipped = map(int, store.read("job_sums", meant)[0])
            left = total - done - not_found - failed - skipped
            at_work = min(counted("PROCESSING"), left)
            found = {
                "PENDING": left - at_work, "PROCESSING": at_work, "DONE": done, "ERROR": failed,
                "NOT_FOUND": not_found, "SKIPPED": skipped,
            }  # fmt: skip
            return RowCounts(found, at_work > COUNTED)
        is_capped = any(count > COUNTED for count in found.values())
        return RowCounts({status: min(count, COUNTED) for status, count in found.items()}, is_capped)

    def counts_of(self, who: Principal, job_id: int) -> RowCounts:
        """The same of one job."""
        self._peers.jobs.get(who, job_id)
        return self.counts(who, job_ids=[job_id])

    def each(self, who: Principal, job_id: int) -> Iterator[ExportRow]:
        """All rows with all that came in and went out, in the order of the file, read a portion at a time."""
        self._peers.jobs.get(who, job_id)
        after = 0
        given = {"job_id": job_id, "most": PORTION}
        while rows := self._read.all(ExportRow, "export_rows", {**given, "after": after}):
            yield from rows
            after = rows[-1].row_no

    def result_names(self, who: Principal, job_id: int) -> list[str]:
        """The fields of all results of a job, in the order of the alphabet; `result` for those that are no object."""
        return self._names("result_names", self._peers.jobs.get(who, job_id))

    def argument_names(self, who: Principal, job_id: int) -> list[str]:
        """The arguments of all rows of a job, in the order of the alphabet."""
        return self._names("argument_names", self._peers.jobs.get(who, job_id))

    def _names(self, section: str, job: Job) -> list[str]:
        """Asked for a stretch of rows at a time, for a statement over all of them could take longer than one may."""
        names: set[str] = set()
        for after in range(0, job.total, STRETCH):
            given = {"job_id": job.id, "after": after, "until": after + STRETCH}
            names.update(row[0] for row in self._store.read(section, given))
        return sorted(names)

    def _merged(
        self,
        section: str,
        given: dict[str, Any],
        statuses: Sequence[Status],
        after: RowPlace,
        most: int,
        struct: type[T],
    ) -> list[T]:
        """Each status has its own part of the index, so a page is the merged start of these parts."""
        asked = {**given, "after_at": after[0], "after_id": after[1], "most": most}
        page: list[T]
        with self._timed(section) as page:
            stretches = [self._read.all(struct, section, {**asked, "status": status}) for status in set(statuses)]
            page += islice(merge(*stretches, key=_place), most)
        return page

    @contextmanager
    def _timed(self, section: str) -> Iterator[list[Any]]:
        """A page to be filled. The time it takes is measured, and logged with the first and last position."""
        page: list[JobItem] = []
        begun = time.monotonic()
        yield page
        seconds = time.monotonic() - begun
        is_slow = seconds > SLOW
        self._context.measured("page", section, seconds)
        if is_slow:
            self._context.measured("slow page", section, seconds)
        first, last = (_place(page[0]), _place(page[-1])) if page else (None, None)
        log.log(
            logging.WARNING if is_slow else logging.DEBUG,
            "%s: a page of %d rows, from %s to %s, took %.0f ms", section, len(page), first, last, 1000 * seconds,
            extra={"list": section, "rows": len(page), "first": first, "last": last, "milliseconds": 1000 * seconds},
        )  # fmt: skip


def _jobs_meant(who: Principal, filter: RowFilter) -> dict[str, Any]:
    check_names(filter, RowFilter, "pending")
    jobs = ids_text(filter["job_ids"], "job_ids") if filter.get("job_ids") else None
    return {"owner": who.among(filter.get("owner")), "job_type": filter.get("job_type"), "jobs": jobs}


def _place(item: JobItem) -> RowPlace:
    return item.changed_at, item.id


# -- what is done to all rows of a job, portion by portion


def find_job(context: VerbContext, job_id: int) -> Job | None:
    """The job, also one that was removed; None when nothing is left of it."""
    return context.read.one(Job, "any_job", {"id": job_id})


def cancel_rows(context: VerbContext, job: Job, reason: str) -> Iterator[int]:
    """Cancel all rows that have not ended, and let the queue of the job go again, for there is nothing left to start.

    Yields how many were cancelled so far. A row that a worker changed meanwhile is found by the next walk.
    """
    done, is_over = 0, False
    while not is_over:
        is_over = True
        for count in _walk(context, job, LIVE, Cancel(reason), END, {}):
            is_over = False
            done += count
            yield done
            if not count:
                time.sleep(PAUSE)
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
