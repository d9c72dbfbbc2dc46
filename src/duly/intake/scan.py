"""Scans the places where files are dropped: every new file becomes a job.

    look       what is there, at each place
    settle     what may still be written is left alone: it must stay as it is for a while
    pass over  what was taken or refused before, by source and version
    take       keep the file as an upload is kept, see what it is, and make the job of it, in one transaction with the
               row by which its version is known from then on
    move on    a file of the inbox, to those that are done or failed

A scanner may die at any point. A stored file without a job is removed a day later; a file of the inbox is put back by
the next scan, and moved on if its version is known. One scan takes a portion, so that it ends soon
however many files there are; a worker goes on with the rest.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from duly.bulk.files import Kept
from duly.bulk.read import open_rows
from duly.bulk.sources import BucketError, Found, SourceError, Steady, is_unfinished
from duly.core.errors import DoesNotExist, InputError, WrongState
from duly.core.patience import Patient
from duly.core.results import ScanReport
from duly.intake.intake import FileOptions, Intake, new_file
from duly.intake.sources import Inbox, Remote, places
from duly.intake.types import IMAGES, JobType
from duly.verbs import Principal
from duly.verbs.files import EarlierScan

log = logging.getLogger("duly.jobs")

# Files that one portion takes, and seconds after which it begins with no further one.
PORTION = 100
SECONDS = 10.0
# Seconds after which a scan that someone waits for does nothing more, well before their request is given up. Looking
# must leave as many of them for taking files as a portion has.
WHOLE = 20.0
LATE = "there was no time to look here; a worker will go on"
UNSETTLED = "may still be written"
# What is wrong with one file or one place, and may be gone the next time.
PASSING = (SourceError, BucketError, DoesNotExist, OSError)


class _Elsewhere(Exception):
    """The file would be a job of a type that only workers elsewhere may know."""


class _Late(Exception):
    """A place did not list its files in time."""


class _Look(Patient[list[Found]]):
    """A look at a place with a time limit."""

    def _late(self) -> list[Found]:
        raise _Late


class View:
    """What one place has."""

    def __init__(self, intake: Intake, place: Inbox | Remote, steady: Steady, end: float) -> None:
        self.place = place
        self.steady = steady
        self._intake = intake
        self.look(end)

    def look(self, end: float) -> None:
        """See what is there, until `end` at most."""
        self.now = time.monotonic()
        look = self.place.look if end == math.inf else _Look(self.place.look, end - self.now)
        self.found = [each for each in look() if not is_unfinished(each.name)]
        self.steady = self.steady.after(self.found, self.now)
        self._fates = self._intake.verbs.scans.fates([self.place.seen(each) for each in self.found])

    def fate(self, found: Found) -> EarlierScan | None:
        """What became of this file before; None when it is new."""
        seen = self.place.seen(found)
        return self._fates.get((seen.source, seen.version))

    def is_ready(self, found: Found) -> bool:
        return self.steady.is_ready(found, self.now)

    @property
    def is_settled(self) -> bool:
        """Whether no new file may still be written."""
        return all(self.is_ready(each) or self.fate(each) for each in self.found)


class Scanner:
    """Scans the places of one app. It remembers since when each file has been unchanged."""

    def __init__(self, intake: Intake, sleep: Callable[[float], None] = time.sleep) -> None:
        self._intake = intake
        self._sleep = sleep
        self._steady: dict[str, Steady] = {}

    @property
    def hindrance(self) -> str | None:
        """Why files must be left to a worker elsewhere: this process does not know the jobs that they would be."""
        wanted = self._intake.settings.scan_type
        if self._intake.types and (not wanted or self._intake.knows(wanted)):
            return None
        return f"no job type {wanted or 'at all'} is registered here; a worker that has it takes the files"

    def scan(self, who: Principal, is_again: bool = False) -> ScanReport:
        """Scan all places once, for the caller; a worker continues with the rest.

        `is_again`: also files that were rejected before.
        """
        self._intake.refuse_if_off()
        self._intake.verbs.scans.begin(who, is_again)
        report = self.portion(time.monotonic() + WHOLE) if self.hindrance is None else ScanReport(held=self.hindrance)
        if report.held or not report.is_complete:
            self._intake.verbs.scans.go_on()
        return report

    def portion(self, end: float = math.inf) -> ScanReport:
        """Take as many files as one look takes. It waits once for new files that may still be written.

        What does not fit before `end` is left.
        """
        self._intake.refuse_if_off()
        report, settings = ScanReport(), self._intake.settings
        views: dict[str, View] = {}
        for name, opener in places(settings, self._intake.sources):
            with self._trying(name, report):
                views[name] = self._view(name, opener, end - SECONDS)
        is_settled = all(view.is_settled for view in views.values())
        if not is_settled and time.monotonic() + settings.scan_settle_seconds < end:
            self._sleep(settings.scan_settle_seconds)
            looked, views = views, {}
            for name, view in looked.items():
                with self._trying(name, report):
                    if not view.is_settled:
                        view.look(end)
                    views[name] = view
        end = min(end, time.monotonic() + SECONDS)
        for name, view in views.items():
            self._steady[name] = view.steady
            with self._trying(name, report):
                self._go_through(view, report, end)
        level = logging.INFO if report.took else logging.DEBUG
        log.log(
            level, "sources: %d files found, %d taken, %d passed over, %d refused, %d left",
            report.found, report.took, report.passed_over, report.refused, report.left,
        )  # fmt: skip
        return report

    def _view(self, name: str, opener: Callable[[], Inbox | Remote], end: float) -> View:
        if time.monotonic() > end:
            raise _Late
        place = opener()
        settle = self._intake.settings.scan_settle_seconds if place.is_settling else 0.0
        return View(self._intake, place, self._steady.get(name, Steady(settle)), end)

    @contextmanager
    def _trying(self, name: str, report: ScanReport) -> Iterator[None]:
        """Reports what is wrong with this place, which must not keep us from the others."""
        try:
            yield
        except _Late:
            log.warning("sources: %s: %s", name, LATE)
            report.leave(name, LATE)
        except (InputError, *PASSING) as error:
            log.warning("sources: %s: %s", name, error)
            report.refuse(name, str(error))

    def _go_through(self, view: View, report: ScanReport, end: float) -> None:
        place = view.place
        for name in place.strange():
            report.refuse(name, "is a link or a device, which is never followed")
        for found in view.found:
            report.found += 1
            if fate := view.fate(found):
                self._dealt_with_before(place, found, fate, report)
            elif not view.is_ready(found):
                report.unsettled += 1
                report.pass_over(place.address(found), UNSETTLED)
            elif report.held or report.took >= PORTION or time.monotonic() > end:
                report.left += 1
            else:
                self._take(place, found, report)

    def _dealt_with_before(self, place: Inbox | Remote, found: Found, fate: EarlierScan, report: ScanReport) -> None:
        """Report a file that an earlier scan handled. In the inbox it is moved on, which that scan did not do."""
        if fate.job_id is None:
            report.refuse(place.address(found), fate.reason or "")
        elif isinstance(place, Inbox):
            report.pass_over(place.address(found), "was taken before", fate.job_id)
        else:
            report.passed_over += 1
        if isinstance(place, Inbox) and (taken := place.folder.take(found)) is not None:
            taken.done() if fate.reason is None else taken.failed(fate.reason)

    def _take(self, place: Inbox | Remote, found: Found, report: ScanReport) -> None:
        address = place.address(found)
        try:
            if isinstance(place, Remote):
                self._made(place, found, place.portions(found), report)
            elif (taken := place.folder.take(found)) is None:
                report.pass_over(address, "is gone, or another scan takes it")
            else:
                try:
                    reason = self._made(place, found, taken.portions(), report)
                except BaseException:
                    taken.release()
                    raise
                taken.done() if reason is None else taken.failed(reason)
        except WrongState as error:
            report.held = str(error)
            report.left += 1
        except _Elsewhere as error:
            log.info("sources: %s: %s", address, error)
            report.leave(address, str(error))
        except PASSING as error:
            log.warning("sources: %s: %s", address, error)
            report.pass_over(address, str(error))

    def _made(self, place: Inbox | Remote, found: Found, portions: Iterable[bytes], report: ScanReport) -> str | None:
        """Make a job of this file and report it; returns the reason if it was rejected."""
        intake, seen, address = self._intake, place.seen(found), place.address(found)
        try:
            kept = intake.keep(portions)
            owner = intake.settings.scan_owner or None
            chosen = self._seen_through(kept, seen.name, owner)
            file, options = new_file(kept, seen.name, owner), {"said": FileOptions()}
            job, is_ours = intake.made(
                kept, lambda: intake.verbs.scans.take(seen, file, chosen.task, chosen.name, options)
            )
        except InputError as error:
            intake.verbs.scans.refuse(seen, str(error))
            report.refuse(address, str(error))
            return str(error)
        if job is None:
            report.pass_over(address, "was taken by another scan")
        elif not is_ours:
            report.pass_over(address, f"has the same content as the file of job {job.id}", job.id)
        else:
            report.take(address, job.id)
        return None

    def _seen_through(self, kept: Kept, name: str, owner: str | None) -> JobType:
        """The type of jobs that takes a file like this; if there is none, InputError, and it is not stored."""
        intake = self._intake
        try:
            with intake.files.open(kept.key) as file:
                with open_rows(file, name) as reading:
                    kind = reading.shape.kind
                wanted = intake.settings.scan_type or ("image" if kind in IMAGES else "csv")
                if not intake.knows(wanted):
                    raise _Elsewhere(f"is left to a worker with the job type {wanted}, which is not registered here")
                chosen = intake.type_named(wanted)
                intake.look(file, name, chosen, FileOptions(), owner)
                return chosen
        except BaseException:
            intake.files.delete(kept.key)
            raise
