"""How many questions this process has under way, and how far apart they start: as many as the provider bears.

What it bears is found out by `duly.bulk.adapt.Pace`: trouble makes it fewer at once, time makes it more. A question
that may not start soon is not waited for: its row comes back later, and the worker has its hands free for other work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from duly import Throttled
from duly.bulk.adapt import Call, Pace, PaceBounds, Trouble

PATIENCE = 2.0  # seconds that a question waits for its turn
LATER = 1.0  # seconds after which a row that had no turn comes back at the earliest


class Passage:
    """A question that is under way. Whoever asks says here how it ended."""

    def __init__(self, started: float, in_flight: int) -> None:
        self.started = started
        self.in_flight = in_flight
        self.trouble: Trouble | None = None
        self.retry_after = 0.0

    @property
    def milliseconds(self) -> int:
        """How long it takes so far."""
        return round(1000 * (time.monotonic() - self.started))


class Turnstile:
    def __init__(self, most: int) -> None:
        self._bounds = PaceBounds(most=float(most))
        self._changed = threading.Condition()
        self._pace = Pace.first(time.monotonic(), self._bounds)
        self._under_way = 0
        self._last = float("-inf")

    @contextmanager
    def turn(self) -> Iterator[Passage]:
        """A context around one question; raises Throttled when it would have to wait for long."""
        with self._changed:
            passage = self._let_in()
        try:
            yield passage
        finally:
            self._left(passage)

    def at_a_time(self) -> int:
        """How many questions are let in at a time by now."""
        return self._pace.concurrency(time.monotonic(), self._bounds)

    def throttle_rate(self) -> float:
        """The share of recent questions that ended in trouble which is a reason to ask less."""
        return self._pace.throttled.get(0.0)

    def _let_in(self) -> Passage:
        give_up = time.monotonic() + PATIENCE
        while True:
            now = time.monotonic()
            starts = max(self._pace.not_before, self._last + self._pace.gap(now, self._bounds))
            has_room = self._under_way < self._pace.concurrency(now, self._bounds)
            if has_room and starts <= now:
                break
            if max(starts, now) >= give_up:
                raise Throttled(max(starts - now, LATER))
            self._changed.wait((starts if has_room else give_up) - now)
        self._under_way += 1
        self._last = now
        return Passage(now, self._under_way)

    def _left(self, passage: Passage) -> None:
        call = Call(
            started=passage.started, ended=time.monotonic(), in_flight=passage.in_flight, trouble=passage.trouble,
            retry_after=passage.retry_after,
        )  # fmt: skip
        with self._changed:
            self._pace = self._pace.after(call, self._bounds)
            self._under_way -= 1
            self._changed.notify_all()
