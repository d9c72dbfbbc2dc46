"""Asks something that may hang, such as the database, with a time limit: probes and scrapes must answer anyway."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from duly.core.errors import StoreUnavailable
from duly.core.forks import renew_in_children

T = TypeVar("T")


class Patient(Generic[T]):
    """Calls `ask` in a thread and waits at most `seconds` for its answer. While a call is open, no other is made."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Begin with no open question: one that was asked before a fork is answered in the parent."""
        self._open: Future[T] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> T:
        with self._lock:
            question = self._open
            if question is None or question.done():
                question = self._open = Future()
                threading.Thread(target=self._answer, args=(question,), name="duly-ask", daemon=True).start()
        wait([question], self._seconds)
        return question.result() if question.done() else self._late()

    def _late(self) -> T:
        raise StoreUnavailable(f"the database did not answer within {self._seconds:g} s")

    def _answer(self, question: Future[T]) -> None:
        try:
            answer = self._ask()
        except BaseException as error:
            question.set_exception(error)
        else:
            question.set_result(answer)


# An answer is cached for this many times the seconds that it took, so queries take at most 2 % of the time.
WORTH = 50
# An answer that takes fewer seconds than this is not kept: in a small database it is always up to date.
CHEAP = 0.025


class Thrifty(Patient[T]):
    """The same for a costly question: its answer is kept for a while, and given again if the next one is late.

    It is kept for `least` seconds, and for longer if it cost much.
    """

    def __init__(self, ask: Callable[[], T], seconds: float, least: float = 0.0) -> None:
        super().__init__(self._timed, seconds)
        self._dear = ask
        self._least = least
        self._kept: tuple[T, float] | None = None  # the last answer, and until when it is given
        self._changes = 0

    def __call__(self) -> T:
        kept = self._kept
        return kept[0] if kept is not None and time.monotonic() < kept[1] else super().__call__()

    def forget(self) -> None:
        """Drop the cached answer: the next call must query again."""
        self._changes += 1
        self._kept = None

    def _timed(self) -> T:
        begun, changes = time.monotonic(), self._changes
        answer = self._dear()
        ended = time.monotonic()
        cost = ended - begun
        worth = max(WORTH * cost if cost > CHEAP else 0.0, self._least)
        self._kept = (answer, ended + (worth if changes == self._changes else 0.0))
        return answer

    def _late(self) -> T:
        return self._kept[0] if self._kept is not None else super()._late()
