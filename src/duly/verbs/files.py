"""Files of jobs: their facts, the progress of reading them, and the mapping of their columns.

Scans remember which versions of which files were taken from the sources, each once. A version is taken by inserting its
row in the transaction that makes its job. So of several scanners one takes it, and one that dies has either taken it or
left it as it was. Content that a job here has already is not taken again, as long as that job is kept: jobs of scans
have keys that are made of where the file lay and what was in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from duly.core import codec
from duly.core.errors import DoesNotExist, WrongState
from duly.core.model import Job, NewFile, StoredFile
from duly.tasks.task import Task
from duly.verbs.context import Principal, VerbGroup, local

SCAN = "duly.scan"
# The one scan of a database that is under way, or waits to be.
KEY = "scan"
# Versions that are looked up at a time.
PORTION = 1_000
# The principal that creates the jobs, independent of who requested the scan.
SCANNER = local("scan")


class FileVersion(Struct, frozen=True):
    """One version of a file, as a place has it."""

    source: str  # the address of the file; `file:` for any file of the inbox; their versions differ
    version: str
    name: str


class EarlierScan(Struct, frozen=True):
    """The earlier result for a version of a file."""

    job_id: int | None
    reason: str | None  # why it was refused


class Files(VerbGroup):
    """What reading files needs to look up and record. This is not the act of a user, so there is no principal."""

    def of(self, job: Job) -> StoredFile:
        file = self._read.one(StoredFile, "file", {"id": job.file_id})
        if file is None:
            raise DoesNotExist(f"job {job.id} has no file")
        return file

    def unnamed(self, places: Sequence[str]) -> list[str]:
        """Those of these places where no job keeps its file."""
        rows = self._store.read("places_in_use", {"places": codec.text(list(places))})
        in_use = {row[0] for row in rows}
        return [place for place in places if place not in in_use]

    def add(self, file: NewFile, connection: Any) -> int:
        """Record a file that is stored already; returns its id."""
        return int(self._store.write("add_file", {**asdict(file), "now": self._now()}, connection)[0][0])

    def begin(self, job: Job, options: Mapping[str, Any]) -> None:
        """Record that reading the file of this job starts, with its known facts."""
        self._store.write("job_is_read", {"id": job.id, "options": codec.text(options), "now": self._now()})

    def give_up(self, job: Job, reason: str) -> None:
        """No more rows come from the file of this job, for this reason."""
        self._store.give_up_job(job.id, reason, self._now())

    def tell_duplicates(self, job: Job, count: int) -> None:
        self._store.write("job_has_duplicates", {"id": job.id, "duplicates": count})

    def mapping(self, owner: str | None, job_type: str, fingerprint: str) -> dict[str, str] | None:
        """The column of each field, as last given for such a file; None when it never was."""
        given = {"owner": owner or "", "job_type": job_type, "fingerprint": fingerprint}
        rows = self._store.read("mapping", given)
        return codec.decode(rows[0][0]) if rows else None

    def keep_mapping(self, owner: str | None, job_type: str, fingerprint: str, columns: Mapping[str, str]) -> None:
        given = {
            "owner": owner or "", "job_type": job_type, "fingerprint": fingerprint,
            "columns": codec.text(columns), "now": self._now(),
        }  # fmt: skip
        self._store.write("keep_mapping", given)


class Scans(VerbGroup):
    def fates(self, seen: Sequence[FileVersion]) -> dict[tuple[str, str], EarlierScan]:
        """The earlier results for these files, by source and version."""
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
        """A job that someone ordered by the address of a file, with that file, which no scan takes any more.

        WrongState when the job was removed meanwhile or has a file by now.
        """
        with self._store.transaction() as connection:
            if self._is_first(seen, connection):
                self._became(seen, job.id, connection)
            file_id = self._peers.files.add(file, connection)
            if not self._store.write("attach_file", {"id": job.id, "file_id": file_id}, connection):
                raise WrongState(f"job {job.id} was removed, or has a file by now")
            return replace(job, file_id=file_id)

    def _is_first(self, seen: FileVersion, connection: Any) -> bool:
        """Note that this version is taken in this transaction; False when it was taken before."""
        return bool(self._store.write("take_scanned", self._row_of(seen), connection))

    def _became(self, seen: FileVersion, job_id: int, connection: Any) -> None:
        """This version is the file of that job, in the transaction that makes it so."""
        given = {"source": seen.source, "version": seen.version, "job_id": job_id}
        self._store.write("scanned_became", given, connection)

    def refuse(self, seen: FileVersion, reason: str) -> None:
        """This version is rejected, and not examined again unless a scan asks for it."""
        self._store.write("refuse_scanned", {**self._row_of(seen), "reason": reason})

    def begin(self, who: Principal, is_again: bool = False) -> None:
        """Start a scan of the sources; `is_again`: also of files that were rejected before."""
        with self._store.transaction() as connection:
            if is_again:
                self._store.write("forget_refusals", {}, connection)
            self._audit.note(who, "sources.scanned", "sources", {"again": is_again}, connection)

    def go_on(self, delay: float = 0.0) -> None:
        """Have a worker scan the sources, as durable work. There is at most one such item in a database."""
        self._context.task_named(SCAN).options(key=KEY, delay=delay).put()

    def _row_of(self, seen: FileVersion) -> dict[str, Any]:
        return {"source": seen.source, "version": seen.version, "name": seen.name, "now": self._now()}
