"""Sources of files: a folder, a bucket, an FTP server.

A source lists what there is (`Found`, with a version that changes when the content does) and streams one of them.
Which versions have been taken before is for the caller to remember. A file that may still be growing is left alone:
`Steady` lets a version pass only once it has been the same for a while.

    registry  the addresses of files, and which scheme of them is opened how; plug-ins add their own
    folder    picks a file up by renaming it, so that one of several scanners gets it; done and failed folders
    ftp       FTP and FTPS

`bulk.buckets` has the objects of a bucket below a prefix. Exactly the version that was listed is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from duly.core.errors import DulyError

# What programs call a file that they are still writing.
UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".download", ".swp")


class SourceError(DulyError):
    """The source rejected the request or cannot be reached; a retry may help."""


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
