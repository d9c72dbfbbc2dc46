"""Scans: which versions of which files were taken from the sources, each once.

A version is taken by inserting its row in the transaction that makes its job. So of several scanners one takes it, and
one that dies has either taken it or left it as it was. Content that a job here has already is not taken again, as long
as that job is kept: jobs of scans have keys that are made of where the file lay and what was in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from msgspec import Struct

from duly.core import codec
from duly.core.model import Job, NewFile
from duly.tasks.task import Task
from duly.verbs.context import VerbGroup
from duly.verbs.who import Principal, local

SCAN = "duly.scan"
# The one scan of a database that is under way, or waits to be.
KEY = "scan"
# Versions that are looked up at a time.
PORTION = 1_000
# The principal that creates the jobs, whoever asked for the scan.
SCANNER = local("scan")


class FileVersion(Struct, frozen=True):
    """One version of a file, as a place has it."""

    source: str  # the address of the file; `file:` for any file of the inbox; their versions differ
    version: str
    name: str


class EarlierScan(Struct, frozen=True):
    """What became of a version before."""

    job_id: int | None
    reason: str | None  # why it was refused


class Scans(VerbGroup):
    def fates(self, seen: Sequence[FileVersion]) -> dict[tuple[str, str], EarlierScan]:
        """What became of those of these that were taken or refused before, by source and version."""
        found: dict[tuple[str, str], EarlierScan] = {}
        pairs = ([each.source, each.version] for each in seen)
        while portion := list(islice(pairs, PORTION)):
            for row in self._store.read("scanned", {"pairs": codec.text(portion)}):
                found[row[0], row[1]] = EarlierScan(row[2], row[3])
        return found

    def take(
        self, seen: FileVersion, file: NewFile, task: Task[..., Any], job_type: str, options: Mapping[str, Any]
    ) -> Job | None:
        """A job of a file that is kept already; None when this version was taken meanwhile.

        It is the job that has the same content from the same place, if there is one.
        """
        store = self._store
        owner = self._context.job_settings.scan_owner or None
        key = f"scan:{sha256(f'{seen.source} {file.sha256}'.encode()).hexdigest()}"
        with store.transaction() as connection:
            if not self._is_first(seen, connection):
                return None
            job = self._peers.jobs.create(
                SCANNER, task, file, job_type=job_type, key=key, options=options, owner=owner, connection=connection
            )
            self._became(seen, job.id, connection)
        return job

    def fetched(self, seen: FileVersion, job: Job, file: NewFile) -> Job:
        """A job that someone ordered by the address of a file, with that file, which no scan takes any more."""
        with self._store.transaction() as connection:
            if self._is_first(seen, connection):
                self._became(seen, job.id, connection)
            return self._peers.files.attach(job, file, connection)

    def _is_first(self, seen: FileVersion, connection: Any) -> bool:
        """Note that this version is taken in this transaction; False when it was taken before."""
        return bool(self._store.write("take_scanned", self._noted(seen), connection))

    def _became(self, seen: FileVersion, job_id: int, connection: Any) -> None:
        """This version is the file of that job, in the transaction that makes it so."""
        given = {"source": seen.source, "version": seen.version, "job_id": job_id}
        self._store.write("scanned_became", given, connection)

    def refuse(self, seen: FileVersion, reason: str) -> None:
        """This version is not taken, and not looked at again unless someone asks for that."""
        self._store.write("refuse_scanned", {**self._noted(seen), "reason": reason})

    def begin(self, who: Principal, is_again: bool = False) -> None:
        """Someone looks through the sources; `is_again`: also at what was refused before."""
        with self._store.transaction() as connection:
            if is_again:
                self._store.write("forget_refusals", {}, connection)
            self._audit.note(who, "sources.scanned", "sources", {"again": is_again}, connection)

    def go_on(self, delay: float = 0.0) -> None:
        """Have a worker scan the sources, as durable work. There is at most one such item in a database."""
        self._context.task_named(SCAN).options(key=KEY, delay=delay).put()

    def _noted(self, seen: FileVersion) -> dict[str, Any]:
        return {"source": seen.source, "version": seen.version, "name": seen.name, "now": self._now()}
