"""Ask a question that may hang, and wait only so long: probes and scrapes must answer while the database does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from duly.errors import StoreUnavailable
from duly.forks import renew_in_children

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
            if question is None:
                question = self._open = Future()
                threading.Thread(target=self._answer, args=(question,), name="duly-ask", daemon=True).start()
        wait([question], self._seconds)
        if not question.done():
            raise StoreUnavailable(f"the database did not answer within {self._seconds:g} s")
        return question.result()

    def _answer(self, question: Future[T]) -> None:
        try:
            answer = self._ask()
        except BaseException as error:
            question.set_exception(error)
        else:
            question.set_result(answer)
        finally:
            with self._lock:
                self._open = None
