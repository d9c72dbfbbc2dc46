"""Buckets of S3 and compatible services (MinIO, Ceph), of Google Cloud and of Azure: finds, reads and stores objects.

It needs obstore, and is imported only where the address of a bucket is used.

Credentials come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or from the machine's role.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from duly.bulk.files import PORTION, FileGone, Writer, checked_key
from duly.bulk.sources import BucketError, Changed, Found, NotThere, SourceError

if TYPE_CHECKING:  # which are in its stubs only
    from obstore import ObjectMeta, WritableFile
    from obstore.store import ClientConfig, RetryConfig

Bucket: TypeAlias = S3Store | GCSStore | AzureStore

PART = 8 * PORTION  # of an upload to a bucket; at most two are in memory
MOST = 100_000  # objects that one scan lists


def open_bucket(scheme: str, name: str, s3_endpoint: str = "", timeout: float | None = None) -> Bucket:
    """The bucket of this name. Nothing is sent yet, so that a wrong name or key shows with the first use.

    `timeout`: seconds without an answer after which a call gives up. By default, a large file may take as long as it
    needs, as long as bytes arrive. Only an endpoint that the user names so is called without TLS.
    """
    options: ClientConfig = {"allow_http": True, "timeout": "24h", "read_timeout": "60s", "connect_timeout": "10s"}
    retries: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
    if timeout is not None:
        seconds = timedelta(seconds=timeout)
        options |= {"read_timeout": seconds, "connect_timeout": seconds}
        retries = {"max_retries": 1, "retry_timeout": seconds}
    with bucket_errors(f"opening {scheme}://{name}"):
        if scheme == "gs":
            return GCSStore(name, client_options=options, retry_config=retries)
        if scheme == "az":
            return AzureStore(name, client_options=options, retry_config=retries)
        endpoint = s3_endpoint or None
        return S3Store(name, endpoint=endpoint, client_options=options, retry_config=retries)


@contextmanager
def bucket_errors(what: str) -> Iterator[None]:
    """Raises errors of the library as BucketError, in one line that names the operation."""
    try:
        yield
    except (BaseError, OSError) as error:
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise BucketError(f"{what}: {reason}") from None


class Objects:
    """The objects of one bucket."""

    def __init__(self, store: Bucket) -> None:
        self._store = store

    def scan(self, prefix: str = "") -> Iterator[Found]:
        """The objects below this prefix. Those that stand for folders are left out."""
        count = 0
        with bucket_errors(f"listing {prefix or 'the bucket'}"):
            for portion in obstore.list(self._store, prefix or None, chunk_size=1000):
                for entry in portion:
                    count += 1
                    if count > MOST:
                        raise SourceError(f"{prefix or 'the bucket'} has more than {MOST:,} objects; name a prefix")
                    if not entry["path"].endswith("/") and entry["size"]:
                        yield _found(entry)

    def find(self, path: str) -> Found:
        """One object by its key; NotThere when there is none."""
        with bucket_errors(f"looking for {path}"):
            try:
                entry = obstore.head(self._store, path)
            except FileNotFoundError:
                raise NotThere(f"there is no object {path}") from None
        return _found(entry)

    def portions(self, found: Found) -> Iterator[bytes]:
        """The bytes of exactly this version; Changed when there is another one by now."""
        with bucket_errors(f"reading {found.path}"):
            try:
                answer = obstore.get(self._store, found.path, options={"if_match": found.version})
            except (FileNotFoundError, PreconditionError):
                raise Changed(f"{found.path} is gone or was replaced since it was found") from None
            for portion in answer.stream(min_chunk_size=PORTION):
                yield bytes(portion)


def _found(entry: ObjectMeta) -> Found:
    path = entry["path"]
    return Found(path.rpartition("/")[2], path, entry["size"], entry["e_tag"] or "")


class BucketFiles:
    """The same as `LocalFiles`, below a prefix. A bucket shows an object only when its upload is complete.

    What a crashed writer has uploaded stays hidden there until the bucket's rule for incomplete uploads removes it.
    """

    def __init__(self, bucket: Bucket, prefix: str = "") -> None:
        self._store = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def writer(self, key: str, limit: int | None = None) -> Writer:
        return _BucketWriter(self._store, self._prefix, key, limit)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as local:
            for portion in self.portions(key):
                local.write(portion)
            local.seek(0)
            yield cast(BinaryIO, local)

    def portions(self, key: str) -> Iterator[bytes]:
        with bucket_errors(f"reading {key}"):
            try:
                found = obstore.get(self._store, self._prefix + checked_key(key))
            except FileNotFoundError:
                raise FileGone(f"there is no file {key}") from None
            for portion in found.stream(min_chunk_size=PORTION):
                yield bytes(portion)

    def delete(self, key: str) -> None:
        with bucket_errors(f"deleting {key}"), suppress(FileNotFoundError):
            obstore.delete(self._store, self._prefix + checked_key(key))

    def delete_below(self, folder: str) -> None:
        with bucket_errors(f"deleting {folder}"):
            for portion in obstore.list(self._store, f"{self._prefix}{checked_key(folder)}/", chunk_size=1000):
                with suppress(FileNotFoundError):  # someone else was faster
                    obstore.delete(self._store, [entry["path"] for entry in portion])

    def aged(self, folder: str, seconds: float) -> Iterator[str]:
        begin = f"{self._prefix}{checked_key(folder)}/"
        with bucket_errors(f"listing {folder}"):
            for portion in obstore.list(self._store, begin, chunk_size=1000):
                for entry in portion:
                    name = entry["path"].removeprefix(begin)
                    if "/" not in name and entry["last_modified"].timestamp() < time.time() - seconds:
                        yield f"{folder}/{name}"


class _BucketWriter(Writer):
    def __init__(self, store: Bucket, prefix: str, key: str, limit: int | None) -> None:
        super().__init__(key, limit)
        self._out: WritableFile | None = obstore.open_writer(
            store, prefix + self._key, buffer_size=PART, max_concurrency=1
        )

    def _append(self, data: bytes) -> None:
        assert self._out is not None
        with bucket_errors(f"writing {self._key}"):
            self._out.write(data)

    def _finish(self) -> None:
        assert self._out is not None
        with bucket_errors(f"writing {self._key}"):
            self._out.close()

    def _abandon(self) -> None:
        self._out = None  # an upload that is not completed never becomes an object
