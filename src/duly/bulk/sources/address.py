"""Where a file is, as one line of text: `s3://bucket/key`, `ftp://user@host/path`, `ftps://…`, `file:name`.

An address names a file and holds no secrets. Which buckets, hosts and folders may be asked, and with which password,
is for whoever reads it to say: it may have been written by a stranger.
"""

from __future__ import annotations

from typing import Literal, cast, get_args
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from duly.core.errors import InputError

Kind = Literal["s3", "ftp", "ftps", "file"]


class Address(Struct, frozen=True):
    kind: Kind
    host: str  # the bucket, or the server; empty for a file
    path: str  # the key of an object, a path from the root of a server, or the name of a file in the inbox
    user: str | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def parse(text: str) -> Address:
    """The address that this says; InputError when it says none."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError("source", "is not an address") from None  # quoted, it might show a password
    if parts.scheme not in get_args(Kind):
        raise InputError("source", f"{parts.scheme!r:.50} is not known; an address begins with s3, ftp, ftps or file")
    if parts.password is not None:
        raise InputError("source", "must not hold a password; passwords belong into the settings")
    path = unquote(parts.path)
    if parts.scheme != "file" and not parts.hostname:
        raise InputError("source", f"{text!r:.100} names no {'bucket' if parts.scheme == 's3' else 'server'}")
    if parts.scheme == "file" and (parts.netloc or "/" in path):
        raise InputError("source", f"{text!r:.100} must be the name of a file in the inbox, as in file:products.csv")
    if parts.query or parts.fragment or not path.isprintable() or ".." in path.split("/"):
        raise InputError("source", f"{text!r:.100} is not a plain path without ..")
    path = path.removeprefix("/") if parts.scheme == "s3" else path
    if not path.rpartition("/")[2]:
        raise InputError("source", f"{text!r:.100} names no file")
    return Address(cast(Kind, parts.scheme), parts.hostname or "", path, parts.username, port)
