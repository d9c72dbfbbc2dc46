"""A file that lies elsewhere, by its address, if the settings allow to ask there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from duly.bulk.s3 import S3Error, S3Settings
from duly.bulk.sources import Found, SourceError
from duly.bulk.sources.address import Address, parse
from duly.bulk.sources.folder import Folder
from duly.bulk.sources.ftp import FtpSettings, FtpSource
from duly.bulk.sources.s3 import S3Source
from duly.core.errors import InputError
from duly.core.settings import JobSettings


def checked(source: str, settings: JobSettings) -> Address:
    """The address that this is, if the settings allow to ask there."""
    address = parse(source)
    if address.kind == "file" and not settings.inbox:
        raise InputError("source", "there is no inbox here; the setting inbox names the folder")
    if address.kind != "file" and not _is_allowed(address, settings):
        raise InputError("source", f"{address.kind}://{address.host} is not among sources_allowed")
    return address


@contextmanager
def opened(source: str, settings: JobSettings) -> Iterator[tuple[Found, Iterator[bytes]]]:
    """The file that this address means, and its bytes.

    A file of the inbox is taken while it is read, so that nobody else takes it, and is among those that are done once
    the block has ended well; else it is put back.
    """
    address = checked(source, settings)
    if address.kind == "file":
        with _taken(address, settings) as file:
            yield file
        return
    try:
        place = _place(address, settings)
        found = place.find(address.path)
        yield found, place.portions(found)
    except (SourceError, S3Error) as error:
        raise InputError("source", str(error)) from None


@contextmanager
def _taken(address: Address, settings: JobSettings) -> Iterator[tuple[Found, Iterator[bytes]]]:
    folder = Folder(Path(settings.inbox))
    folder.put_back()  # what someone had taken who died over it
    found = next((each for each in folder.scan() if each.name == address.name), None)
    taken = None if found is None else folder.take(found)
    if taken is None:
        raise InputError("source", f"there is no file {address.name!r:.100} in the inbox, or someone else has taken it")
    try:
        yield taken.found, taken.portions()
    except BaseException:
        taken.release()
        raise
    taken.done()


def _place(address: Address, settings: JobSettings) -> S3Source | FtpSource:
    if address.kind == "s3":
        return S3Source(S3Settings(bucket=address.host, endpoint=settings.s3_endpoint or None))
    return FtpSource(
        FtpSettings(
            host=address.host, port=address.port or 21, user=address.user or "anonymous",
            password=settings.ftp_password, uses_tls=address.kind == "ftps",
        )
    )  # fmt: skip


def _is_allowed(address: Address, settings: JobSettings) -> bool:
    """Whether an entry of the list is the same server or bucket, and a folder that the file is below."""
    for entry in filter(None, map(str.strip, settings.sources_allowed.split(","))):
        allowed = urlsplit(entry)
        folder = f"{allowed.path.strip('/')}/".removeprefix("/")
        is_same = (allowed.scheme, allowed.hostname, allowed.port) == (address.kind, address.host, address.port)
        if is_same and address.path.removeprefix("/").startswith(folder):
            return True
    return False
