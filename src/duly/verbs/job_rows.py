"""Rows of jobs, as lists show them and exports need them: found along an index, a page at a time, never counted off."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from duly.core import codec
from duly.core.clock import EPOCH
from duly.core.model import Job, Status
from duly.core.shown import ExportRow, JobItem
from duly.store.records import Record, reader
from duly.verbs.ground import Ground
from duly.verbs.jobs import Jobs
from duly.verbs.read import SEEN
from duly.verbs.who import Principal

log = logging.getLogger("duly.jobs")

STATUSES: tuple[Status, ...] = ("PENDING", "PROCESSING", "DONE", "ERROR", "NOT_FOUND", "SKIPPED")
# Those of rows that have not ended.
LIVE: tuple[Status, ...] = ("PENDING", "PROCESSING")
# Rows that an export reads at a time.
PORTION = 1_000
# Rows whose names are asked for at a time.
STRETCH = 50_000
# Seconds from which on a page is slow enough to be told of.
SLOW = 0.25

# The time of the last change of a row and its id: after which a page begins.
Place = tuple[datetime, int]
START: Place = (EPOCH, 0)

_item = reader(Record(JobItem), SEEN)
_export_row = reader(Record(ExportRow), {object: codec.decode})


class JobRows:
    def __init__(self, ground: Ground, jobs: Jobs) -> None:
        self._ground = ground
        self._jobs = jobs

    def page(
        self,
        who: Principal,
        job_id: int,
        statuses: Sequence[Status] = STATUSES,
        after: Place = START,
        most: int = 100,
    ) -> list[JobItem]:
        """Rows of these statuses, those that changed longest ago first."""
        self._jobs.get(who, job_id)
        return self._merged("job_items", {"job_id": job_id}, statuses, after, most)

    def by_number(self, who: Principal, job_id: int, after: int = 0, most: int = 100) -> list[JobItem]:
        """Rows in the order of the file, from the one after this number on."""
        self._jobs.get(who, job_id)
        given = {"job_id": job_id, "after": after, "until": after + most}
        with self._timed("job_items_by_number") as page:
            page += map(_item, self._ground.store.read("job_items_by_number", given))
        return page

    def pending(
        self,
        who: Principal,
        whose: str | None = None,
        statuses: Sequence[Status] = LIVE,
        job_type: str | None = None,
        after: Place = START,
        most: int = 100,
    ) -> list[JobItem]:
        """Rows of all jobs of one owner, or of all that they reach, those that changed longest ago first."""
        given = {"owner": who.among(whose), "job_type": job_type}
        live = [status for status in statuses if status in LIVE]
        ended = [status for status in statuses if status not in LIVE]
        pages = [
            self._merged(section, given, some, after, most)
            for section, some in (("pending_items", live), ("ended_items", ended))
            if some
        ]
        return list(islice(merge(*pages, key=_place), most))

    def each(self, who: Principal, job_id: int) -> Iterator[ExportRow]:
        """All rows with all that came in and went out, in the order of the file, read a portion at a time."""
        self._jobs.get(who, job_id)
        after = 0
        while portion := self._ground.store.read("export_rows", {"job_id": job_id, "after": after, "most": PORTION}):
            rows = [_export_row(row) for row in portion]
            yield from rows
            after = rows[-1].row_no

    def result_names(self, who: Principal, job_id: int) -> list[str]:
        """The fields of all results of a job, in the order of the alphabet; `result` for those that are no object."""
        return self._names("result_names", self._jobs.get(who, job_id))

    def argument_names(self, who: Principal, job_id: int) -> list[str]:
        """The arguments of all rows of a job, in the order of the alphabet."""
        return self._names("argument_names", self._jobs.get(who, job_id))

    def _names(self, section: str, job: Job) -> list[str]:
        """Asked for a stretch of rows at a time, for a statement over all of them could take longer than one may."""
        names: set[str] = set()
        for after in range(0, job.total, STRETCH):
            given = {"job_id": job.id, "after": after, "until": after + STRETCH}
            names.update(row[0] for row in self._ground.store.read(section, given))
        return sorted(names)

    def _merged(
        self, section: str, given: dict[str, Any], statuses: Sequence[Status], after: Place, most: int
    ) -> list[JobItem]:
        """Each status has its own stretch of the index, so a page is the first of what they have, merged."""
        asked = {**given, "after_at": after[0], "after_id": after[1], "most": most}
        with self._timed(section) as page:
            stretches = (
                map(_item, self._ground.store.read(section, {**asked, "status": status})) for status in set(statuses)
            )
            page += islice(merge(*stretches, key=_place), most)
        return page

    @contextmanager
    def _timed(self, section: str) -> Iterator[list[JobItem]]:
        """A page to be filled. How long that took is counted, and told with where the page begins and ends."""
        page: list[JobItem] = []
        begun = time.monotonic()
        yield page
        seconds = time.monotonic() - begun
        is_slow = seconds > SLOW
        self._ground.measured("page", section, seconds)
        if is_slow:
            self._ground.measured("slow page", section, seconds)
        first, last = (_place(page[0]), _place(page[-1])) if page else (None, None)
        log.log(
            logging.WARNING if is_slow else logging.DEBUG,
            "%s: a page of %d rows, from %s to %s, took %.0f ms", section, len(page), first, last, 1000 * seconds,
            extra={"list": section, "rows": len(page), "first": first, "last": last, "milliseconds": 1000 * seconds},
        )  # fmt: skip


def _place(item: JobItem) -> Place:
    return item.changed_at, item.id
