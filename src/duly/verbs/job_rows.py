"""Rows of jobs, as lists show them and exports need them: found along an index, a page at a time, never counted off.

A list over all jobs is one read along the index of rows that are neither done nor worked on. Where few of the next rows
there are of jobs that are meant, the first rows of each such job are merged instead: one look for each job, and then
only at those jobs that can have a row on the page. Rows that are worked on are those under leases.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any, TypedDict, TypeVar, Unpack

from duly.core.clock import EPOCH
from duly.core.filters import check_names, checked_most
from duly.core.model import Job, Status
from duly.core.shown import ExportRow, JobItem, PendingItem, RowCounts
from duly.verbs.context import Principal, VerbGroup
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
LAST: RowPlace = (END, 2**63 - 1)
COUNTED = 10_000  # rows of a status that are counted off, at most
# Rows along the index of all jobs among which a page is looked for.
AHEAD = 2_000

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
        asked = {**_jobs_meant(who, filter), "until": filter.get("until") or END, "most": most}
        after = max(after, (filter.get("since") or EPOCH, 0))
        page: list[PendingItem]
        with self._timed("pending_items" if set(statuses) <= set(LIVE) else "ended_items") as page:
            stretches = [self._over_jobs({**asked, "status": status}, after) for status in set(statuses)]
            page += islice(merge(*stretches, key=_place), most)
        return page

    def _over_jobs(self, asked: dict[str, Any], after: RowPlace) -> list[PendingItem]:
        """The first rows of one status, over all jobs that are meant."""
        given = {**asked, "after_at": after[0], "after_id": after[1]}
        if given["status"] == "PROCESSING":
            return self._read.all(PendingItem, "working_items", given)
        if given["owner"] is None and given["jobs"] is None:
            ahead = self._store.read("listed_until", {**given, "ahead": AHEAD - 1})
            last: RowPlace = ahead[0] if ahead else LAST
            page = self._read.all(PendingItem, "listed_items", {**given, "until_at": last[0], "until_id": last[1]})
            if len(page) == given["most"] or not ahead:
                return page
        # The first rows of an owner, of some jobs or of a rare type: as many jobs as there are rows on a page can have
        # one on it, those whose first rows come first, and none of these comes after the last of those.
        heads = "pending_heads" if given["status"] == "PENDING" else "ended_heads"
        first = self._store.read(heads, {**given, "each": 1, "until_at": LAST[0], "until_id": LAST[1]})
        last = first[-1][1:] if len(first) == given["most"] else LAST
        given |= {"jobs": ids_text([row[0] for row in first]), "each": given["most"]}
        return self._read.all(PendingItem, "items_of_jobs", {**given, "until_at": last[0], "until_id": last[1]})

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
