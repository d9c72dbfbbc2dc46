"""Finds duplicate rows of a file, without keeping the rows.

Each row leaves eight bytes of a hash and its number. They are dealt out over buckets by their hash, on disk where they
are many, and at the end each bucket is looked through by itself: memory stays as small for ten million rows as for ten
thousand. Two different rows are taken for the same with a chance of one in a million at ten million rows.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

BUCKETS = 64
IN_MEMORY = 2_048  # numbers of a bucket that wait before they are written


class Duplicates(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self._buckets: list[array[int]] = [array("Q") for _ in range(BUCKETS)]
        self._files: list[IO[bytes] | None] = [None] * BUCKETS

    def add(self, number: int, key: str) -> None:
        """Row `number` has this `key`."""
        hashed = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        bucket = self._buckets[hashed % BUCKETS]
        bucket.append(hashed)
        bucket.append(number)
        if len(bucket) >= IN_MEMORY:
            self._write(hashed % BUCKETS)

    def found(self) -> Iterator[tuple[int, int]]:
        """Each row with the key of an earlier one, with the first such row; in no particular order."""
        for index in range(BUCKETS):
            first: dict[int, int] = {}
            for hashed, number in self._pairs(index):
                if hashed in first:
                    yield number, first[hashed]
                else:
                    first[hashed] = number

    def _write(self, index: int) -> None:
        file = self._files[index] or self.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self._files[index] = file
        file.write(self._buckets[index].tobytes())
        del self._buckets[index][:]

    def _pairs(self, index: int) -> Iterator[tuple[int, int]]:
        """The hash and the number of each row of a bucket, in the order in which they came."""
        file = self._files[index]
        if file is not None:
            file.seek(0)
            while raw := file.read(16 * IN_MEMORY):
                yield from _by_two(array("Q", raw))
            file.seek(0, 2)
        yield from _by_two(self._buckets[index])


def _by_two(numbers: array[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
