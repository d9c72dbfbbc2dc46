"""Sources of files: a folder, a bucket, an FTP server.

A source lists what there is (`Found`, with a version that changes when the content does) and streams one of them.
Which versions have been taken before is for the caller to remember. A file that may still be growing is left alone:
`Steady` lets a version pass only once it has been the same for a while.

    folder    picks a file up by renaming it, so that one of several scanners gets it; done and failed folders
    ftp       FTP and FTPS

`bulk.buckets` has the objects of a bucket below a prefix. Exactly the version that was listed is read.

The scheme of an address says how its place is opened: `s3://`, `gs://`, `az://`, `ftp://`, `ftps://`. A plug-in adds
schemes of its own (`Plugin.sources`). `file:` is none of them: it names files of the inbox, which are moved when they
are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from duly.core.errors import ConfigError, DulyError, InputError
from duly.core.settings import JobSettings

FILE = "file"  # the scheme of files of the inbox
BUCKETS = ("s3", "gs", "az")  # schemes of the addresses of buckets
# What programs call a file that they are still writing.
UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".download", ".swp")


class SourceError(DulyError):
    """The source rejected the request or cannot be reached; a retry may help."""


class BucketError(DulyError):
    """The bucket refused, or could not be reached; trying again may help."""


class NotThere(SourceError):
    """The source answers, but does not have this file or folder."""


class Changed(SourceError):
    """The file became another one while it was read: what was read of it must not be used."""


class Found(Struct, frozen=True):
    """A file of a source. The same name with another version is another file."""

    name: str
    path: str  # by which the source knows it
    size: int
    version: str


def is_unfinished(name: str) -> bool:
    """Whether this is what programs call a file that they hide, or have not written to its end."""
    return name.startswith((".", "~")) or name.lower().endswith(UNFINISHED)


class Steady(Struct, frozen=True):
    """Since when each version has been seen as it is. Pure: what was seen and the time are handed in.

    Times of modification are not asked: copies keep those of their originals while they are still being written.
    """

    settle: float = 5.0  # seconds
    since: Mapping[tuple[str, str], float] = {}

    def after(self, seen: Iterable[Found], now: float) -> Steady:
        """The same, after a look at everything that is there."""
        keys = {(found.path, found.version) for found in seen}
        return Steady(self.settle, {key: self.since.get(key, now) for key in keys})

    def is_ready(self, found: Found, now: float) -> bool:
        return now - self.since.get((found.path, found.version), now) >= self.settle


class Address(Struct, frozen=True):
    """The address of a file: `s3://bucket/key`, `ftp://user@host/path`, `file:name`, or with the scheme of a plug-in.

    An address names a file and holds no secrets. It may come from any user, so the settings decide which buckets,
    servers and folders may be read, and with which password.
    """

    scheme: str
    host: str  # the bucket, or the server; empty for a file of the inbox
    path: str  # the key of an object, a path from the root of a server, or the name of a file of the inbox
    user: str | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class RemoteFiles(Protocol):
    """The files of one server or bucket. A connection is made when a method is called."""

    def scan(self, folder: str) -> Iterable[Found]:
        """The files in this folder. In a bucket: all objects below this prefix."""

    def find(self, path: str) -> Found:
        """One file by its path; NotThere when there is none."""

    def portions(self, found: Found) -> Iterator[bytes]:
        """The bytes of this version of the file; Changed when there is another one by now."""


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A scheme of addresses, and how to open the place that such an address names.

    `open` is called with the address, the settings of jobs, and the number of seconds without an answer after which it
    has to give up; None: its own default.
    """

    scheme: str
    open: Callable[[Address, JobSettings, float | None], RemoteFiles]
    # In a bucket, paths have no slash in front, and an object is listed only when it is complete. Elsewhere a file may
    # still be written when it is listed, so a scan waits until it stays unchanged.
    is_bucket: bool = False


def _bucket(address: Address, settings: JobSettings, timeout: float | None) -> RemoteFiles:
    from duly.bulk.buckets import Objects, open_bucket

    return Objects(open_bucket(address.scheme, address.host, settings.s3_endpoint, timeout))


def _ftp(address: Address, settings: JobSettings, timeout: float | None) -> RemoteFiles:
    from duly.bulk.sources.ftp import TIMEOUT, FtpSource

    return FtpSource(
        host=address.host, port=address.port or 21, user=address.user or "anonymous", password=settings.ftp_password,
        uses_tls=address.scheme == "ftps", timeout=TIMEOUT if timeout is None else timeout,
    )  # fmt: skip


SOURCES = (
    *(FileSource(scheme=scheme, open=_bucket, is_bucket=True) for scheme in BUCKETS),
    FileSource(scheme="ftp", open=_ftp),
    FileSource(scheme="ftps", open=_ftp),
)


def registry(more: Iterable[FileSource] = ()) -> dict[str, FileSource]:
    """All sources by their scheme: those of the core, and those of plug-ins."""
    known: dict[str, FileSource] = {}
    for source in (*SOURCES, *more):
        if source.scheme in known or source.scheme == FILE:
            raise ConfigError(f"apps: two sources of files have the scheme {source.scheme}")
        known[source.scheme] = source
    return known


def parse(text: str, known: Mapping[str, FileSource]) -> Address:
    """The address in this text; InputError when it is none, or its scheme is not known."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError("source", "is not an address") from None  # quoted, it might show a password
    scheme, path = parts.scheme, unquote(parts.path)
    if scheme not in known and scheme != FILE:
        schemes = ", ".join((*known, FILE))
        raise InputError("source", f"the scheme {scheme!r:.50} is not known; known schemes: {schemes}")
    is_bucket = scheme != FILE and known[scheme].is_bucket
    if parts.password is not None:
        raise InputError("source", "must not hold a password; passwords belong into the settings")
    if scheme != FILE and not parts.hostname:
        raise InputError("source", f"{text!r:.100} names no {'bucket' if is_bucket else 'server'}")
    if scheme == FILE and (parts.netloc or "/" in path):
        raise InputError("source", f"{text!r:.100} must be the name of a file in the inbox: file:products.csv")
    if parts.query or parts.fragment or not path.isprintable() or ".." in path.split("/"):
        raise InputError("source", f"{text!r:.100} is not a plain path without ..")
    path = path.removeprefix("/") if is_bucket else path
    if not path.rpartition("/")[2]:
        raise InputError("source", f"{text!r:.100} names no file")
    return Address(scheme, parts.hostname or "", path, parts.username, port)
