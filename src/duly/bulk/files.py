"""Where uploaded files are stored: a local folder, or a bucket of S3, Google Cloud or Azure.

A file is written portion by portion, hashed on the way, and exists as a whole or not at all. It can be read in
portions, or as a seekable local file, which the readers of tables need.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from duly.bulk.sources import BUCKETS
from duly.core.errors import ConfigError, DulyError, InputError

if TYPE_CHECKING:
    from duly.bulk.buckets import BucketFiles

_KEY = re.compile(r"(?=.{1,500}\Z)[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
INCOMING = ".incoming"  # where a local file is written before it has its name; no key begins with a dot
PORTION = 1024 * 1024


class FileGone(DulyError, LookupError):
    """There is no such file, or no longer."""


class Kept(Struct, frozen=True):
    """A file that was written."""

    key: str
    size: int
    sha256: str


class Writer:
    """A file that is being written. As a context manager it is stored at the end, unless there was an error."""

    def __init__(self, key: str, limit: int | None) -> None:
        self._key = checked_key(key)
        self._limit = limit
        self._digest = hashlib.sha256()
        self._size = 0
        self.kept: Kept | None = None

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._limit is not None and self._size > self._limit:
            raise InputError("file", f"has more than {self._limit:,} bytes")
        self._digest.update(data)
        self._append(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._abandon()
            return
        self._finish()
        self.kept = Kept(self._key, self._size, self._digest.hexdigest())

    def _append(self, data: bytes) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError


def open_files(where: str, s3_endpoint: str = "") -> FileStore:
    """The place that the setting files_url names: a folder, or a bucket such as `s3://bucket/prefix`."""
    if "://" not in where:
        folder = LocalFiles(Path(where))
        folder.sweep()  # of what a crash left half written
        return folder
    parts = urlsplit(where)
    if parts.scheme not in BUCKETS:
        known = ", ".join(f"{scheme}://" for scheme in BUCKETS)
        raise ConfigError(f"files_url: {where!r:.100} is neither a folder nor a bucket ({known})")
    if not parts.hostname:
        raise ConfigError(f"files_url: {where} names no bucket")
    from duly.bulk.buckets import BucketFiles, open_bucket  # needs obstore, which a folder does not

    return BucketFiles(open_bucket(parts.scheme, parts.hostname, s3_endpoint), parts.path)


def checked_key(key: str) -> str:
    """A key is a path of plain names: nothing in it can lead anywhere else."""
    if not _KEY.fullmatch(key):
        raise InputError("key", f"{key!r:.100} is not a path of letters, digits, dots, dashes and underscores")
    return key


class LocalFiles:
    """Files below a folder. A file is written aside, synced to disk, and then renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        (root / INCOMING).mkdir(parents=True, exist_ok=True)

    def writer(self, key: str, limit: int | None = None) -> Writer:
        """Begin to write a file of at most `limit` bytes. One of the same name is replaced when this one is whole."""
        return _LocalWriter(self._root, key, limit)

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """The file, on this machine and seekable; FileGone when there is none."""
        try:
            return (self._root / checked_key(key)).open("rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise FileGone(f"there is no file {key}") from None

    def portions(self, key: str) -> Iterator[bytes]:
        """The bytes of the file, a portion at a time; FileGone when there is none."""
        with self.open(key) as file:
            while portion := file.read(PORTION):
                yield portion

    def delete(self, key: str) -> None:
        """Delete the file, if it exists."""
        (self._root / checked_key(key)).unlink(missing_ok=True)

    def delete_below(self, folder: str) -> None:
        """Remove all files in this folder and in those below it; nothing happens when there is none."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root / checked_key(folder))

    def aged(self, folder: str, seconds: float) -> Iterator[str]:
        """The keys in this folder, but not in those below it, of files that were written longer ago than this."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / checked_key(folder)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # someone else was faster
                    if entry.is_file() and entry.stat().st_mtime < time.time() - seconds:
                        yield f"{folder}/{entry.name}"

    def sweep(self, older_than: float = 86_400.0) -> int:
        """Remove what crashed writers left behind this many seconds ago; returns how many files."""
        gone = 0
        for left in (self._root / INCOMING).iterdir():
            with contextlib.suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - older_than:
                    left.unlink()
                    gone += 1
        return gone


class _LocalWriter(Writer):
    def __init__(self, root: Path, key: str, limit: int | None) -> None:
        super().__init__(key, limit)
        self._place = root / self._key
        self._aside = root / INCOMING / secrets.token_hex(16)
        self._file = self._aside.open("xb")

    def _append(self, data: bytes) -> None:
        self._file.write(data)

    def _finish(self) -> None:
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._aside.replace(self._place)
            _sync_folder(self._place.parent)
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        self._file.close()
        self._aside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A name survives a power cut only once its folder is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FileStore: TypeAlias = "LocalFiles | BucketFiles"
