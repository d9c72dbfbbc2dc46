"""What writers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self


class Out(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object: ...


class Export:
    """A file that is being written. As a context manager it is closed, unless an error leaves it unfinished."""

    cut = 0  # cells that had to be cut, because the format has no room for them

    def write(self, row: Sequence[Any]) -> None:
        """One row, with a value for each header; the values are what JSON can say."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what makes the file whole. `out` stays open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
