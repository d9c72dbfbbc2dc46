"""What writers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self


class Out(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object: ...


class Export(Protocol):
    """A file that is being written. As a context manager it is closed, unless an error leaves it unfinished."""

    @property
    def cut(self) -> int:
        """How many cells had to be cut, because the format has no room for them."""
        ...

    def write(self, row: Sequence[Any]) -> None:
        """One row, with a value for each header; the values are what JSON can say."""
        ...

    def close(self) -> None:
        """Write what makes the file whole. `out` stays open."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Finishing:
    """The part of an Export that is the same for all of them."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
