"""A way to end calls that wait for the network, from another thread.

The engine gives each handler a leash, in its context, and cuts it when the handler must stop. Then whatever the handler
waits for on the network fails at once, and so does every call that it tries to begin later.
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
                with suppress(OSError):  # the wait has ended by itself
                    end_it()

    @contextmanager
    def holding(self, end_it: Callable[[], object]) -> Iterator[None]:
        """A context around a wait. `end_it` is called to end the wait if the leash is cut."""
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
    """Put what runs in this context on this leash."""
    _leash.set(leash)


@contextmanager
def unleashed() -> Iterator[None]:
    """A context for a call that is let come to its end, because what it asks for happens whether it is heard or not."""
    before = _leash.set(None)
    try:
        yield
    finally:
        _leash.reset(before)


@contextmanager
def held(end_it: Callable[[], object]) -> Iterator[None]:
    """A context around a wait, which `end_it` ends if the handler is stopped."""
    leash = _leash.get()
    if leash is None:
        yield
    else:
        with leash.holding(end_it):
            yield
