"""Objects of a bucket, below a prefix: of S3 and what speaks its protocol, of Google Cloud and of Azure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.bulk.s3 import PORTION, s3_errors
from duly.bulk.sources.found import Changed, Found, NotThere, SourceError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

MOST = 100_000  # objects that one scan lists


class Objects:
    """The objects of one bucket."""

    def __init__(self, store: S3Store | GCSStore | AzureStore) -> None:
        self._store = store

    def scan(self, prefix: str = "") -> Iterator[Found]:
        """The objects below this prefix. Those that stand for folders are left out."""
        import obstore

        count = 0
        with s3_errors(f"listing {prefix or 'the bucket'}"):
            for portion in obstore.list(self._store, prefix or None, chunk_size=1000):
                for entry in portion:
                    count += 1
                    if count > MOST:
                        raise SourceError(f"{prefix or 'the bucket'} has more than {MOST:,} objects; name a prefix")
                    path = entry["path"]
                    if not path.endswith("/") and entry["size"]:
                        yield Found(path.rpartition("/")[2], path, entry["size"], _version(entry["e_tag"]))

    def find(self, path: str) -> Found:
        """One object by its key; NotThere when there is none."""
        import obstore

        with s3_errors(f"looking for {path}"):
            try:
                entry = obstore.head(self._store, path)
            except FileNotFoundError:
                raise NotThere(f"there is no object {path}") from None
        return Found(path.rpartition("/")[2], path, entry["size"], _version(entry["e_tag"]))

    def portions(self, found: Found) -> Iterator[bytes]:
        """The bytes of exactly this version; Changed when there is another one by now."""
        import obstore
        from obstore.exceptions import PreconditionError

        with s3_errors(f"reading {found.path}"):
            try:
                answer = obstore.get(self._store, found.path, options={"if_match": found.version})
            except (FileNotFoundError, PreconditionError):
                raise Changed(f"{found.path} is gone or was replaced since it was found") from None
            for portion in answer.stream(min_chunk_size=PORTION):
                yield bytes(portion)


def _version(tag: str | None) -> str:
    return tag or ""
