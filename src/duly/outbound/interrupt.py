"""Interrupts calls that wait for the network, from another thread.

The engine gives each handler an interrupter, in its context, and uses it when the handler must stop. Then every network
wait of the handler fails at once, and so does every call that it tries to begin later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar


class Interrupter:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], object]] = []
        self._is_interrupted = False

    def interrupt(self) -> None:
        with self._lock:
            self._is_interrupted = True
            for end_wait in self._ends:
                with suppress(OSError):  # the wait has ended by itself
                    end_wait()

    @contextmanager
    def covers(self, end_wait: Callable[[], object]) -> Iterator[None]:
        """A context around a wait, which `end_wait` ends."""
        with self._lock:
            if self._is_interrupted:
                raise ConnectionAbortedError("this call was stopped")
            self._ends.append(end_wait)
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end_wait)


_current: ContextVar[Interrupter | None] = ContextVar("duly_interrupter", default=None)


def use_interrupter(interrupter: Interrupter) -> None:
    """Let this interrupter end the network waits of what runs in the current context."""
    _current.set(interrupter)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A context for a call that must not be interrupted, because what it asks for happens anyway."""
    before = _current.set(None)
    try:
        yield
    finally:
        _current.reset(before)


def interruptible(end_wait: Callable[[], object]) -> AbstractContextManager[None]:
    """A context around a wait, which `end_wait` ends if the handler is stopped."""
    interrupter = _current.get()
    return nullcontext() if interrupter is None else interrupter.covers(end_wait)
