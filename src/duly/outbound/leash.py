"""A way to end calls that wait for the network, from another thread.

Whoever runs a handler gives it a leash (in its context) and cuts it when the handler must stop: what it waits for then
fails at once, and so does what it tries to begin after that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar


class Leash:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._breaks: list[Callable[[], object]] = []
        self._is_cut = False

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for end_it in self._breaks:
                with suppress(OSError):  # it has ended by itself
                    end_it()

    @contextmanager
    def holding(self, end_it: Callable[[], object]) -> Iterator[None]:
        """A wait that `end_it` ends."""
        with self._lock:
            if self._is_cut:
                raise ConnectionAbortedError("this call was stopped")
            self._breaks.append(end_it)
        try:
            yield
        finally:
            with self._lock:
                self._breaks.remove(end_it)


_leash: ContextVar[Leash | None] = ContextVar("duly_leash", default=None)


def put_on(leash: Leash) -> None:
    """Hold what happens in this context by this leash."""
    _leash.set(leash)


@contextmanager
def held(end_it: Callable[[], object]) -> Iterator[None]:
    """A wait that ends when whoever runs this handler stops it."""
    leash = _leash.get()
    if leash is None:
        yield
    else:
        with leash.holding(end_it):
            yield
