"""Handlers that are plain functions: in threads, or each in a child process of its thread."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from duly.engine.calls import Caller, Verdicts, breakdown
from duly.engine.pools import GRACE, TURN, HandlerPool, PoolContext
from duly.engine.processes import ProcessSlot
from duly.engine.rows import WorkRow
from duly.engine.work import Tasks, Work
from duly.outbound.interrupt import Interrupter, use_interrupter

log = logging.getLogger("duly.engine")


class ThreadPool(HandlerPool):
    """Plain handlers. Each slot is a thread, which may pass its works on to a child process."""

    def __init__(
        self, tasks: Tasks, size: int, most: int, context: PoolContext, slots: Callable[[], ThreadSlot | ProcessSlot]
    ) -> None:
        super().__init__(tasks, size, most, context)
        self._slots = slots
        self._lock = threading.Condition()
        self._threads = 0
        self._running: set[Work] = set()
        self._left: dict[Work, float] = {}  # when each was stopped, of works whose threads continue
        self._leaked: set[Work] = set()  # those of them that did not end within `GRACE`
        self._idle = 0
        self._closed = False
        self._shut = threading.Event()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._shut.set()
            self._lock.notify_all()

    def _rouse(self, works: int) -> None:
        with self._lock:
            for _ in range(min(len(self._rows) - self._idle, self.size - self._threads)):
                self._spawn()
            self._lock.notify(works)

    def _spawn(self) -> None:
        threading.Thread(target=self._serve, name="duly-slot", daemon=True).start()
        self._threads += 1

    def ailing(self) -> str | None:
        if len(self._leaked) > self.size:
            return f"threads that run on for handlers that were stopped: {len(self._leaked)}"
        return None

    def take_stale(self) -> list[Work]:
        """Also logs the threads that could not be stopped: it is called now and then."""
        with self._lock:
            leaked = [work for work, at in self._left.items() if time.monotonic() - at > GRACE]
            for work in leaked:
                del self._left[work]
                self._leaked.add(work)
        for work in leaked:
            log.warning(
                "%s %s was stopped, but its thread cannot be and runs on; %d such threads",
                work.task.label, work.items[0].id, len(self._leaked),
            )  # fmt: skip
        return super().take_stale()

    def _serve(self) -> None:
        slot = self._slots()
        stop = partial(self._stop, slot)
        try:
            while (row := self._enter()) is not None:
                now = time.monotonic()
                ran, until = 0, now + TURN
                while now < until and self._passes() and (work := self._next(row, stop)) is not None:
                    try:
                        verdicts = slot.call(work)
                    except BaseException as error:
                        verdicts = [breakdown(error)] * len(work.items)
                    if not self._returns(work):
                        return
                    ran += len(work.items)
                    now = self._end(work, verdicts)
                self._rows.leave(row, ran)
                if self.gate is not None and not ran:  # the waiting works were released while the gate was shut
                    self._wake_claimer()
        finally:
            slot.close()

    def _passes(self) -> bool:
        """Wait until the gate lets a call begin; False when the pool is closed meanwhile."""
        while self.gate is not None and (wait := self.gate.turn()) > 0:
            if self._shut.wait(wait):
                return False
        return True

    def _returns(self, work: Work) -> bool:
        """A handler has ended; False when another thread has taken the place of this one."""
        with self._lock:
            if work in self._running:
                self._running.discard(work)
                return True
            self._left.pop(work, None)
            self._leaked.discard(work)
        self._in_flight.ended(work)
        return False

    def _stop(self, slot: ThreadSlot | ProcessSlot, work: Work) -> None:
        """Stop a handler. A thread cannot be stopped, so another one takes its place at once."""
        self._end_early(work)
        if isinstance(slot, ProcessSlot):
            slot.stop(work)
            return
        with self._lock:
            if work not in self._running:  # it has just ended
                return
            self._running.discard(work)
            self._left[work] = time.monotonic()
            self._leave(work)
            self._threads -= 1
            self._spawn()
        slot.stop(work)
        self._done(work)

    def _enter(self) -> WorkRow | None:
        """Wait for a row that may use this slot; None when the pool is closed."""
        with self._lock:
            while (row := self._rows.enter(time.monotonic())) is None:
                if self._closed:
                    return None
                if self._rows:  # nothing of what waits may start: there is room for something else
                    self._wake_claimer()
                self._idle += 1
                self._lock.wait()
                self._idle -= 1
        return row

    def _starts(self, work: Work) -> bool:
        with self._lock:  # so that a stop comes before this, or finds it running
            if is_started := super()._starts(work):
                self._running.add(work)
            return is_started


class ThreadSlot:
    """Calls plain handlers in the thread of the slot, each in a new context."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._interrupter = Interrupter()
        self._context = contextvars.Context()
        self._context.run(use_interrupter, self._interrupter)

    def call(self, work: Work) -> Verdicts:
        return self._context.copy().run(self._caller.call, work.task, work.items)

    def stop(self, work: Work) -> None:
        """End what the handler waits for on the network. The thread itself cannot be stopped; its result is refused."""
        self._interrupter.interrupt()

    def close(self) -> None:
        pass
