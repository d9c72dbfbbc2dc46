"""Files of jobs: what is known of them, how far reading them is, and which of their columns are which fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from duly.core import codec
from duly.core.errors import DoesNotExist, WrongState
from duly.core.model import Job, NewFile, StoredFile
from duly.verbs.context import VerbGroup


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
        file_id: int = self._store.write("add_file", {**asdict(file), "now": self._now()}, connection)[0][0]
        return file_id

    def attach(self, job: Job, file: NewFile, connection: Any) -> Job:
        """This is the file of a job that was made without one; the job with its file.

        WrongState when the job was removed meanwhile or has a file by now.
        """
        file_id = self.add(file, connection)
        if not self._store.write("attach_file", {"id": job.id, "file_id": file_id}, connection):
            raise WrongState(f"job {job.id} was removed, or has a file by now")
        return replace(job, file_id=file_id)

    def begin(self, job: Job, options: Mapping[str, Any]) -> None:
        """Reading the file of this job begins, once more, with what is known of it by now."""
        given = {"id": job.id, "options": codec.text(options), "now": self._now()}
        self._store.write("job_is_read", given)

    def give_up(self, job: Job, reason: str) -> None:
        given = {"id": job.id, "last_error": reason, "now": self._now()}
        self._store.write("job_cannot_be_read", given)

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
