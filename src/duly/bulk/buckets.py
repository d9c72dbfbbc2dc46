"""Opens buckets of S3 and compatible services (MinIO, Ceph), of Google Cloud and of Azure. Finds their objects.

Credentials come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or from the machine's role.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from duly.bulk.sources import Changed, Found, NotThere, SourceError
from duly.core.errors import DulyError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

    Bucket: TypeAlias = S3Store | GCSStore | AzureStore

BUCKETS = ("s3", "gs", "az")  # schemes of their addresses
PORTION = 1024 * 1024
MOST = 100_000  # objects that one scan lists


class BucketError(DulyError):
    """The bucket refused, or could not be reached; trying again may help."""


def open_bucket(scheme: str, name: str, s3_endpoint: str = "", timeout: float | None = None) -> Bucket:
    """The bucket of this name. Nothing is sent yet, so that a wrong name or key shows with the first use.

    `timeout`: seconds without an answer after which a call gives up. By default, a large file may take as long as it
    needs, as long as bytes arrive. Only an endpoint that the user names so is called without TLS.
    """
    from obstore.store import AzureStore, GCSStore, S3Store

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
    from obstore.exceptions import BaseError

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
        import obstore

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
        import obstore

        with bucket_errors(f"looking for {path}"):
            try:
                entry = obstore.head(self._store, path)
            except FileNotFoundError:
                raise NotThere(f"there is no object {path}") from None
        return _found(entry)

    def portions(self, found: Found) -> Iterator[bytes]:
        """The bytes of exactly this version; Changed when there is another one by now."""
        import obstore
        from obstore.exceptions import PreconditionError

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
