"""Objects of a bucket, below a prefix: of S3 and what speaks its protocol, of Google Cloud and of Azure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.bulk.buckets import PORTION, bucket_errors
from duly.bulk.sources import Changed, Found, NotThere, SourceError

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from duly.bulk.buckets import Bucket

MOST = 100_000  # objects that one scan lists


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
