"""A folder into which people and programs put files.

    inbox/                 what is dropped here is found
    inbox/.taken/…         what a scanner is working on: renamed there, under a lock that its process holds
    inbox/done/            what has been read
    inbox/failed/          what could not be, each with a note beside it

Renaming is atomic and the lock is taken before it, so of several scanners exactly one gets a file, and a file whose
scanner died is seen by its free lock and put back. Only plain files of the folder itself are taken: links, devices and
folders are not followed, opened or entered, and the handle that is read is the one that was checked. The version of a
file stays the same wherever it is moved, so a file that is put back is known again, whatever its name is then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from duly.bulk.sources import Changed, Found, SourceError, is_unfinished
from duly.core.errors import InputError

TAKEN, DONE, FAILED = ".taken", "done", "failed"
PORTION = 1024 * 1024


class Folder:
    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError("folder", f"{root} is not a folder")
        self._root = root.resolve()
        for name in (TAKEN, DONE, FAILED):
            _made(self._root / name)

    def scan(self) -> list[Found]:
        """The plain files, by name, without hidden and unfinished ones."""
        found = []
        with os.scandir(self._root) as entries:
            for entry in entries:
                if is_unfinished(entry.name):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another scanner was faster
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.append(Found(entry.name, entry.name, status.st_size, _version(status)))
        return sorted(found, key=lambda each: each.name)

    def strange(self) -> list[str]:
        """The names of what is there but is never taken, because it is a link or a device; folders are left out."""
        with os.scandir(self._root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not is_unfinished(entry.name)
                and not entry.is_file(follow_symlinks=False)
                and not entry.is_dir(follow_symlinks=False)
            )

    def take(self, found: Found) -> Taken | None:
        """Take this version of the file; None when it is gone, has changed, or another scanner has it."""
        handle = self._locked(self._root / _plain(found.name))
        if handle is None:
            return None
        try:
            if _version(os.fstat(handle)) != found.version:
                os.close(handle)
                return None
            place = self._root / TAKEN / f"{secrets.token_hex(4)}-{found.name}"
            (self._root / found.name).rename(place)
            if not _is_same(os.fstat(handle), place):  # another file took the name just before
                _move(place, self._root, found.name)
                os.close(handle)
                return None
        except OSError as error:
            os.close(handle)
            raise SourceError(f"{found.name} could not be taken: {error.strerror}") from None
        return Taken(self._root, found, place, handle)

    def put_back(self) -> list[str]:
        """Put files back whose scanner died before it was done with them; their names."""
        names = []
        for left in sorted((self._root / TAKEN).iterdir()):
            handle = self._locked(left)
            if handle is None:
                continue
            name = left.name.partition("-")[2]
            _move(left, self._root, name)
            os.close(handle)
            names.append(name)
        return names

    def _locked(self, path: Path) -> int | None:
        """A handle on the plain file of this name, locked; None if it does not exist or another process holds it."""
        try:
            handle = _opened(path)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.fstat(handle)
            if stat.S_ISREG(ours.st_mode) and _is_same(ours, path):
                return handle
        except OSError:
            pass
        os.close(handle)
        return None


class Taken:
    """A file that is ours until it is done, failed or released; its lock goes with the process."""

    def __init__(self, root: Path, found: Found, place: Path, handle: int) -> None:
        self.found = found
        self._root = root
        self._place = place
        self._file: BinaryIO = os.fdopen(handle, "rb")

    def portions(self) -> Iterator[bytes]:
        """Its bytes; raises Changed at the end if the file was written to meanwhile."""
        self._file.seek(0)
        while portion := self._file.read(PORTION):
            yield portion
        if _version(os.fstat(self._file.fileno())) != self.found.version:
            raise Changed(f"{self.found.name} was written to while it was read")

    def done(self) -> Path:
        """Move it to the files that have been read."""
        return self._moved(self._root / DONE)

    def failed(self, reason: str) -> Path:
        """Move it to the files that could not be read, with a note of the reason."""
        place = self._moved(self._root / FAILED)
        _note(place.with_name(f"{place.name}.reason.txt"), f"{reason}\n")
        return place

    def release(self) -> Path:
        """Put it back, to be found again."""
        return self._moved(self._root)

    def _moved(self, folder: Path) -> Path:
        try:
            return _move(self._place, folder, self.found.name)
        except OSError as error:
            raise SourceError(f"{self.found.name} could not be moved to {folder.name}: {error.strerror}") from None
        finally:
            self._file.close()


def _made(folder: Path) -> None:
    """Make this folder if it is not there. A link in its place would lead files to where its writer wants them."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise SourceError(f"{folder.name} in the inbox is not a folder but a link or a file; remove it")


def _note(path: Path, text: str) -> None:
    """Write a new file. An existing file or link of this name is not ours, and is neither followed nor changed."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def _opened(path: Path) -> int:
    # Without O_NONBLOCK, opening a pipe that took the file's name would wait for ever.
    how = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | how)  # over NFS, an exclusive lock needs write access
    except PermissionError:
        return os.open(path, os.O_RDONLY | how)


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _plain(name: str) -> str:
    """A name is a name: nothing in it leads out of the folder."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise InputError("name", f"{name!r:.100} is not the name of a file")
    return name


def _is_same(ours: os.stat_result, path: Path) -> bool:
    there = path.stat(follow_symlinks=False)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _move(path: Path, folder: Path, name: str) -> Path:
    """Move a file there under this name, or one like it, without ever replacing another file."""
    number = 1
    while True:
        place = folder / (name if number == 1 else f"{Path(name).stem}-{number}{Path(name).suffix}")
        number += 1
        if os.path.lexists(place):
            continue
        try:
            os.link(path, place, follow_symlinks=False)  # which, unlike a rename, fails if there is one by now
        except FileExistsError:
            continue
        except OSError:  # not every file system has links
            path.rename(place)
        else:
            path.unlink()
        return place
