"""Files at other places: one by its address, if the settings allow it, or all files of an allowed place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

from msgspec.structs import replace

from duly.bulk.sources import FILE, Address, FileSource, Found, NotThere, RemoteFiles, parse
from duly.bulk.sources.folder import Folder
from duly.core.errors import InputError
from duly.core.section import without_password
from duly.core.settings import JobSettings
from duly.verbs.files import FileVersion

# The source of the files in the inbox: they keep their versions when they are renamed.
INBOX = "file:"
Known: TypeAlias = Mapping[str, FileSource]  # the sources by their scheme
# Seconds without an answer after which a scanned place counts as down.
PATIENCE = 5.0


def checked(source: str, settings: JobSettings, known: Known) -> Address:
    """The address in this text, if the settings allow it."""
    address = parse(source, known)
    if address.scheme != FILE:
        return _allowed(address, settings)
    if not settings.inbox:
        raise InputError("source", "no inbox is configured; set `inbox` to a folder")
    return address


@contextmanager
def opened(source: str, settings: JobSettings, known: Known) -> Iterator[tuple[FileVersion, Iterator[bytes]]]:
    """The file at this address, and its bytes.

    A file of the inbox is locked while it is read, so that no other process takes it. If the block succeeds, the file
    is moved to the done ones; else it is put back. Raises InputError if there is no such file. If the source cannot be
    reached, or the file changes meanwhile, another error is raised, and a retry may help.
    """
    address = checked(source, settings, known)
    if address.scheme == FILE:
        with _taken(address, settings) as file:
            yield file
        return
    place = known[address.scheme].open(address, settings, None)
    try:
        found = place.find(address.path)
    except NotThere as error:
        raise InputError("source", str(error)) from None
    yield FileVersion(_written(address), found.version, shown_name(found.name)), place.portions(found)


@contextmanager
def _taken(address: Address, settings: JobSettings) -> Iterator[tuple[FileVersion, Iterator[bytes]]]:
    inbox = Inbox(settings)
    found = next((each for each in inbox.look() if each.name == address.name), None)
    taken = None if found is None else inbox.folder.take(found)
    if taken is None:
        raise InputError("source", f"there is no file {address.name!r:.100} in the inbox, or another scan has taken it")
    try:
        yield inbox.seen(taken.found), taken.portions()
    except BaseException:
        taken.release()
        raise
    taken.done()


def _allowed(address: Address, settings: JobSettings) -> Address:
    """The address with the user of the entry that allows it, whose password the settings have.

    An entry allows what is on the same server or in the same bucket, for the same user, and below its folder.
    """
    for entry in _entries(settings):
        is_same = (entry.scheme, entry.hostname, entry.port) == (address.scheme, address.host, address.port)
        is_ours = address.user in (None, entry.username)
        if is_same and is_ours and address.path.removeprefix("/").startswith(_folder(entry)):
            return replace(address, user=entry.username)
    user = f"{address.user}@" if address.user else ""
    raise InputError("source", f"{address.scheme}://{user}{address.host} is not in sources_allowed")


def _entries(settings: JobSettings) -> list[SplitResult]:
    return [urlsplit(entry) for entry in filter(None, map(str.strip, settings.sources_allowed.split(",")))]


def _folder(entry: SplitResult) -> str:
    """The folder of an entry, with a slash at its end; empty for all of a server or bucket."""
    return f"{entry.path.strip('/')}/".removeprefix("/")


def shown_name(name: str) -> str:
    """The name of a file without the folders that it was in, and without what cannot be shown."""
    last = PurePath(name.replace("\\", "/")).name
    return "".join(letter for letter in last if letter.isprintable())[:200] or "file"


def _written(address: Address) -> str:
    """The address as text, the same for the same file however it was written."""
    user = f"{quote(address.user)}@" if address.user else ""
    port = f":{address.port}" if address.port else ""
    return f"{address.scheme}://{user}{address.host}{port}/{quote(address.path.removeprefix('/'))}"


# -- places that are looked through


class Inbox:
    """The folder into which people and programs put files, which are moved on when they are taken."""

    is_settling = True  # files are seen here before they are written to their end

    def __init__(self, settings: JobSettings) -> None:
        self.folder = Folder(Path(settings.inbox))

    def look(self) -> list[Found]:
        self.folder.put_back()  # files that were taken by a process that died
        return self.folder.scan()

    def strange(self) -> list[str]:
        """The names of what is there and is never taken."""
        return self.folder.strange()

    def seen(self, found: Found) -> FileVersion:
        """This version of this file, under the source that it is remembered by."""
        return FileVersion(INBOX, found.version, shown_name(found.name))

    def address(self, found: Found) -> str:
        """Its address, as shown to people."""
        return f"{INBOX}{shown_name(found.name)}"


class Remote:
    """A folder of a bucket or of a server. Files stay there when they have been read."""

    def __init__(self, entry: SplitResult, settings: JobSettings, known: Known) -> None:
        folder = _folder(entry)
        self._address = parse(entry._replace(path=f"/{folder}any").geturl(), known)
        kind = known[self._address.scheme]
        self._source: RemoteFiles = kind.open(self._address, settings, None)
        self._listed: RemoteFiles = kind.open(self._address, settings, PATIENCE)
        self.is_settling = not kind.is_bucket
        self._look_in = folder if kind.is_bucket else f"/{folder}".rstrip("/") or "/"
        self._own = f"{settings.files_url.rstrip('/')}/"  # stored files are never found again

    def look(self) -> list[Found]:
        found = self._listed.scan(self._look_in)
        return [each for each in found if not self.address(each).startswith(self._own)]

    def strange(self) -> list[str]:
        return []

    def seen(self, found: Found) -> FileVersion:
        return FileVersion(self.address(found), found.version, shown_name(found.name))

    def address(self, found: Found) -> str:
        return _written(replace(self._address, path=found.path))

    def portions(self, found: Found) -> Iterator[bytes]:
        return self._source.portions(found)


def places(settings: JobSettings, known: Known) -> Iterator[tuple[str, Callable[[], Inbox | Remote]]]:
    """All that are set up, each with its name, not opened yet: one that cannot be must not keep the others from us."""
    if settings.inbox:
        yield INBOX, partial(Inbox, settings)
    for entry in _entries(settings):
        yield without_password(entry.geturl()), partial(Remote, entry, settings, known)
