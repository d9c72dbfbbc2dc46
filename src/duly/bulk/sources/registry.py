"""Sources of files by the scheme of their address: `s3://`, `gs://`, `az://`, `ftp://`, `ftps://`.

A plug-in adds schemes of its own (`Plugin.sources`). `file:` is not here: it names files of the inbox, which are moved
when they are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from duly.bulk.buckets import BUCKETS, Objects, open_bucket
from duly.bulk.sources import Found
from duly.core.errors import ConfigError, InputError
from duly.core.settings import JobSettings

FILE = "file"  # the scheme of files of the inbox


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
    return Objects(open_bucket(address.scheme, address.host, settings.s3_endpoint, timeout))


def _ftp(address: Address, settings: JobSettings, timeout: float | None) -> RemoteFiles:
    from duly.bulk.sources.ftp import TIMEOUT, FtpSettings, FtpSource

    return FtpSource(
        FtpSettings(
            host=address.host, port=address.port or 21, user=address.user or "anonymous",
            password=settings.ftp_password, uses_tls=address.scheme == "ftps",
            timeout=TIMEOUT if timeout is None else timeout,
        )
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
