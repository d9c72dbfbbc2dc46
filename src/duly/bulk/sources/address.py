"""The address of a file: `s3://bucket/key`, `ftp://user@host/path`, `file:name`, or with the scheme of a plug-in.

An address names a file and holds no secrets. It may come from anybody, so the settings decide which buckets, servers
and folders may be read, and with which password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from duly.core.errors import InputError

FILE = "file"  # the scheme of files of the inbox


class Address(Struct, frozen=True):
    scheme: str
    host: str  # the bucket, or the server; empty for a file of the inbox
    path: str  # the key of an object, a path from the root of a server, or the name of a file of the inbox
    user: str | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @classmethod
    def parse(cls, text: str, schemes: Mapping[str, bool]) -> Self:
        """The address in this text; InputError when it is none. `schemes`: the known ones, and which are buckets."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise InputError("source", "is not an address") from None  # quoted, it might show a password
        scheme, path = parts.scheme, unquote(parts.path)
        if scheme not in schemes and scheme != FILE:
            known = ", ".join((*schemes, FILE))
            raise InputError("source", f"the scheme {scheme!r:.50} is not known; known schemes: {known}")
        if parts.password is not None:
            raise InputError("source", "must not hold a password; passwords belong into the settings")
        if scheme != FILE and not parts.hostname:
            raise InputError("source", f"{text!r:.100} names no {'bucket' if schemes[scheme] else 'server'}")
        if scheme == FILE and (parts.netloc or "/" in path):
            raise InputError("source", f"{text!r:.100} must be the name of a file in the inbox: file:products.csv")
        if parts.query or parts.fragment or not path.isprintable() or ".." in path.split("/"):
            raise InputError("source", f"{text!r:.100} is not a plain path without ..")
        path = path.removeprefix("/") if schemes.get(scheme) else path
        if not path.rpartition("/")[2]:
            raise InputError("source", f"{text!r:.100} names no file")
        return cls(scheme, parts.hostname or "", path, parts.username, port)
