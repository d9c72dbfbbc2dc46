"""Files come in: a file is first stored as a whole, and then becomes a job, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Required, TypedDict, TypeVar, Unpack

from msgspec import convert
from msgspec.structs import replace

from duly.bulk.files import FileStore, Kept, Writer, open_files
from duly.bulk.mapping import checked_columns, fingerprint, fitted_columns, preview, suggest
from duly.bulk.read import FileRow, ReadOptions, Shape, open_rows
from duly.bulk.sources import FileSource, registry
from duly.core.errors import ConfigError, DoesNotExist, InputError, NotAllowed, WrongState
from duly.core.model import Job, NewFile
from duly.core.results import FilePreview, PreviewRow
from duly.core.settings import JobSettings
from duly.intake.sources import checked, opened, shown_name
from duly.intake.types import JobType
from duly.verbs import Principal, Verbs

if TYPE_CHECKING:
    from duly.intake.scan import Scanner

J = TypeVar("J", Job, Job | None)

# Rows that are read to identify the columns of a file without a header.
SAMPLE = 20
UPLOADS = "uploads"
THUMBNAILS = "thumbnails"
# Seconds after which a file that belongs to no job is removed, because the process that stored it must have died.
LEFT_FOR = 86_400.0
# Errors after which no job was made for sure. After any other one the commit may have gone through with its answer
# lost, so the file stays, and `sweep` removes it if no job has it.
REFUSALS = (InputError, WrongState, DoesNotExist, ConfigError)
# Bytes of a file that are read at a time.
PORTION = 1024 * 1024


class FileOptions(ReadOptions, frozen=True, kw_only=True):
    """What the sender of a file declares about it. Anything else is detected."""

    mapping: dict[str, str] | None = None  # the column of each field


class AskedJob(TypedDict, total=False):
    """The options of a job that is created from a file."""

    job_type: Required[str]
    file_options: FileOptions | None
    key: str | None  # identifies the request: repeating it with the same file and type of job returns the same job
    ip_address: str | None


class Intake:
    def __init__(
        self, verbs: Verbs, settings: JobSettings, types: Mapping[str, JobType], more: Iterable[FileSource] = ()
    ) -> None:
        self.verbs = verbs
        self.settings = settings
        self.types = types
        self._more = more

    @property
    def sources(self) -> dict[str, FileSource]:
        """Where files can be fetched from, by the scheme of their address."""
        return registry(self._more)

    @cached_property
    def files(self) -> FileStore:
        """Where files are stored; opened on first use."""
        return open_files(self.settings.files_url, self.settings.s3_endpoint)

    def type_named(self, name: str) -> JobType:
        if name not in self.types:
            known = ", ".join(sorted(self.types)) or "none"
            raise InputError("jobType", f"no job type {name!r:.50} is registered here; known types: {known}")
        return self.types[name]

    def knows(self, name: str | None) -> bool:
        return name in self.types

    # -- in

    def refuse_if_off(self) -> None:
        if not self.settings.db_ingest_enabled:
            raise ConfigError("db_ingest_enabled: jobs from files are turned off here")

    def receive(self) -> Writer:
        """Begin to store a file. A file that does not become a job must be deleted again."""
        self.refuse_if_off()
        return self.files.writer(f"{UPLOADS}/{self._ours}{secrets.token_hex(16)}", self.settings.upload_max_bytes)

    @cached_property
    def _ours(self) -> str:
        """The prefix of our file names, because several databases may share one place for files."""
        return f"{sha256(self.verbs.service.secret('files').encode()).hexdigest()[:12]}-"

    def thumbnails(self, job: Job) -> str:
        """Where the thumbnails of the rows of this job are stored."""
        return f"{THUMBNAILS}/{self._ours}{job.id}"

    @property
    def _has_files(self) -> bool:
        """Whether files are stored at all: an app that creates its jobs in code stores none."""
        return "://" in self.settings.files_url or Path(self.settings.files_url).exists()

    def sweep(self) -> int:
        """Remove files that were stored a day ago and did not become a job; returns how many."""
        if not self._has_files:
            return 0
        keys, gone = self.files.aged(UPLOADS, LEFT_FOR), 0
        ours = (key for key in keys if key.startswith(f"{UPLOADS}/{self._ours}"))
        while portion := list(islice(ours, 1_000)):
            for key in self.verbs.files.unnamed(portion):
                self.files.delete(key)
                gone += 1
        return gone

    def create(self, who: Principal, kept: Kept, name: str, **asked: Unpack[AskedJob]) -> Job:
        """Make a job of a received file. If that fails, or was done before, the file is deleted."""
        file = new_file(kept, name, who.owner)
        job, _ = self.made(kept, lambda: self._create(who, file, {}, asked))
        return job

    def _create(self, who: Principal, file: NewFile | None, origin: Mapping[str, Any], asked: AskedJob) -> Job:
        chosen = self.type_named(asked["job_type"])
        return self.verbs.jobs.create(
            who, chosen.task, file, job_type=chosen.name, key=asked.get("key"), ip_address=asked.get("ip_address"),
            options={"said": asked.get("file_options") or FileOptions(), **origin},
            among=[each.task.name for each in self.types.values()],
        )  # fmt: skip

    def made(self, kept: Kept, make: Callable[[], J]) -> tuple[J, bool]:
        """What `make` makes of a file that was received, and whether that is a job of this file, which is kept then."""
        try:
            job = make()
        except REFUSALS:
            self.files.delete(kept.key)
            raise
        is_ours = job is not None and job.file_id is not None and self.verbs.files.of(job).place == kept.key
        if not is_ours:
            self.files.delete(kept.key)
        return job, is_ours

    @cached_property
    def scanner(self) -> Scanner:
        """Scans the sources for new files."""
        from duly.intake.scan import Scanner

        return Scanner(self)

    def order(self, who: Principal, source: str, **asked: Unpack[AskedJob]) -> Job:
        """Make a job of a file at another address, where that is allowed. The file is fetched before it is read.

        An address is `file:name` in the inbox, `s3://…`, `ftp://…` or `ftps://…`. Such a file has no
        owner until it is taken, so only admins and the owner of scanned files may name it.
        """
        self.refuse_if_off()
        if not who.is_admin and who.user_id != self.settings.scan_owner:
            raise NotAllowed(
                "source: only admins and the user in scan_owner may take files from sources; upload the file instead"
            )
        self.type_named(asked["job_type"])
        checked(source, self.settings, self.sources)
        return self._create(who, None, {"source": source}, asked)

    def fetch(self, job: Job, source: str) -> Job:
        """Store the file at this address as the file of this job. A file of the inbox is moved on.

        WrongState when the job was removed meanwhile or has a file already; then nothing is stored.
        """
        with opened(source, self.settings, self.sources) as (seen, portions):
            kept = self.keep(portions)
            file = new_file(kept, seen.name, job.owner)
            fetched, _ = self.made(kept, lambda: self.verbs.scans.fetched(seen, job, file))
            return fetched

    def keep(self, portions: Iterable[bytes]) -> Kept:
        """Store a file that is read from elsewhere."""
        with self.receive() as writer:
            for portion in portions:
                writer.write(portion)
        return kept_by(writer)

    # -- looks

    def preview(
        self,
        who: Principal,
        file: BinaryIO,
        name: str,
        *,
        job_type: str,
        file_options: FileOptions | None = None,
        count: int = 20,
    ) -> FilePreview:
        """What would become of the first rows of a file; nothing is stored."""
        chosen, file_options = self.type_named(job_type), file_options or FileOptions()
        shape, mapping = self.look(file, name, chosen, file_options, who.owner)
        with open_rows(file, name, options=replace(file_options, kind=shape.kind)) as reading:
            first = islice(reading, count)
            rows = tuple(_checked(preview(row, mapping, chosen.fields), row, chosen) for row in first)
        used = shape.columns if chosen.fields is None else mapping.values()
        unused = tuple(column for column in shape.columns if column not in used)
        return FilePreview(
            kind=shape.kind, columns=shape.columns, has_header=shape.has_header, mapping=mapping, unused=unused,
            rows=rows, refused=sum(bool(row.problems) for row in rows),
        )  # fmt: skip

    def look(
        self, file: BinaryIO, name: str, chosen: JobType, file_options: FileOptions, owner: str | None
    ) -> tuple[Shape, dict[str, str]]:
        """The shape of a file, and its column for each field.

        The mapping is the one given, or the last one for such a file, or the most likely one. InputError when the file
        is of a kind that this type of job does not accept, or does not have the columns of the given mapping.
        """
        with open_rows(file, name, options=file_options) as reading:
            shape = reading.shape
            if shape.kind not in chosen.kinds:
                wanted = "images" if "image" in chosen.kinds else "a table"
                raise InputError("file", f"{name} is of kind {shape.kind}; jobs of type {chosen.name} accept {wanted}")
            if chosen.fields is None:
                return shape, {}
            if file_options.mapping is not None:
                return shape, checked_columns(file_options.mapping, shape.columns, chosen.fields)
            if known := self.verbs.files.mapping(owner, chosen.name, fingerprint(shape.columns, shape.has_header)):
                return shape, fitted_columns(known, shape.columns)
            rows = [] if shape.has_header else [row.values for row in islice(reading, SAMPLE)]
            return shape, suggest(shape.columns, chosen.fields, rows, shape.has_header)

    def remember(self, chosen: JobType, shape: Shape, mapping: Mapping[str, str], owner: str | None) -> None:
        """Use this mapping for the next file of this owner and shape."""
        self.verbs.files.keep_mapping(owner, chosen.name, fingerprint(shape.columns, shape.has_header), mapping)


def kept_by(writer: Writer) -> Kept:
    """The file that a writer has stored."""
    assert writer.kept is not None
    return writer.kept


def new_file(kept: Kept, name: str, owner: str | None) -> NewFile:
    """The record of a stored file, under its sender's name for it."""
    return NewFile(shown_name(name), kept.size, type_of(name), kept.sha256, kept.key, owner)


def file_options_of(options: Mapping[str, Any]) -> FileOptions:
    """What the sender declared, from the options of a job."""
    return convert(options.get("said", {}), FileOptions)


def type_of(name: str) -> str:
    """The type of a file by the ending of its name; what it really is, is detected when it is read."""
    return PurePath(shown_name(name)).suffix.lower().removeprefix(".")[:20] or "unknown"


def _checked(shown: PreviewRow, row: FileRow, chosen: JobType) -> PreviewRow:
    """The row with the errors that its task would report when the file is read."""
    if shown.problems:
        return shown
    values = row.values if chosen.fields is None else shown.normal
    try:
        chosen.task.checked_args(values if row.thumbnail is None else {**values, "thumbnail": ""})
    except InputError as error:
        return replace(shown, problems=(str(error),))
    return shown
