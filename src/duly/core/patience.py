"""Ask a question that may hang, and wait only so long: probes and scrapes must answer while the database does not."""

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
    """`ask`, with patience for so many seconds. A question that is still open is not asked a second time."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """With no question open: one of before a fork is answered in the parent."""
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


# An answer is good for so many times the seconds that it took: asking costs one part in fifty of the time at most.
WORTH = 50
# What takes less is asked each time, so that where there is little the answer is of this moment.
CHEAP = 0.025


class Thrifty(Patient[T]):
    """The same for an answer that may be dear: kept for a while by what it cost, and given while the next is late."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        super().__init__(self._timed, seconds)
        self._dear = ask
        self._kept: tuple[T, float] | None = None  # and until when it is good
        self._changes = 0

    def __call__(self) -> T:
        kept = self._kept
        return kept[0] if kept is not None and time.monotonic() < kept[1] else super().__call__()

    def forget(self) -> None:
        """Something changed that whoever asks next wants to see."""
        self._changes += 1
        self._kept = None

    def _timed(self) -> T:
        begun, changes = time.monotonic(), self._changes
        answer = self._dear()
        ended = time.monotonic()
        cost = ended - begun
        self._kept = (answer, ended + WORTH * cost if cost > CHEAP and changes == self._changes else ended)
        return answer

    def _late(self) -> T:
        return self._kept[0] if self._kept is not None else super()._late()
