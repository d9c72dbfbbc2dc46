"""Handlers that are plain functions: in threads, or each in a child process of its thread."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from functools import partial

from duly.engine.calls import Caller, Verdicts, breakdown
from duly.engine.pools import GRACE, NAP, TURN, HandlerPool, PoolContext
from duly.engine.processes import ProcessSlot
from duly.engine.rows import WorkRow
from duly.engine.work import Tasks, Work
from duly.outbound.interrupt import Interrupter, use_interrupter


class ThreadPool(HandlerPool):
    """Plain handlers. Each slot is a thread, which may pass its works on to a child process."""

    def __init__(
        self,
        tasks: Tasks,
        size: int,
        most: int,
        context: PoolContext,
        slots: Callable[[], ThreadSlot | ProcessSlot],
        *,
        begins_here: bool = True,
    ) -> None:
        super().__init__(tasks, size, most, context)
        self._begins_here = begins_here
        self._slots = slots
        self._lock = threading.Condition()
        self._threads = 0
        self._running: set[Work] = set()
        self._left: dict[Work, float] = {}  # when each was stopped, of works whose threads may end within `GRACE`
        self._kept: set[Work] = set()  # works that were stopped and keep their slots until they end
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

    def take_stale(self) -> list[Work]:
        """Also reports the threads that run on although their handlers were stopped: it is called now and then."""
        with self._lock:
            for work in [work for work, at in self._left.items() if time.monotonic() - at > GRACE]:
                del self._left[work]
                self._runaways.add(work)
        return super().take_stale()

    def _serve(self) -> None:
        slot = self._slots()
        stop = partial(self._stop, slot)
        try:
            while (row := self._enter()) is not None:
                now = time.monotonic()
                ran, until = 0, now + TURN
                while now < until and self._passes(row) and (work := self._next(row, stop)) is not None:
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

    def _passes(self, row: WorkRow) -> bool:
        """Wait until the gate lets a call begin, or nothing waits for it; False when the pool is closed meanwhile."""
        while self.gate is not None and row.works and (wait := self.gate.turn()) > 0:
            if self._shut.wait(min(wait, NAP)):
                return False
        return True

    def _returns(self, work: Work) -> bool:
        """A handler has ended; False when another thread has taken the place of this one."""
        with self._lock:
            if work in self._running:
                self._running.discard(work)
                return True
            self._left.pop(work, None)
            self._runaways.remove(work)
            if was_kept := work in self._kept:
                self._kept.discard(work)
                self._replace(work)
        self._in_flight.ended(work)
        if was_kept:
            self._done(work)
        return False

    def _stop(self, slot: ThreadSlot | ProcessSlot, work: Work) -> None:
        """Stop a handler. A thread cannot be stopped, so another one takes its place, unless too many run on."""
        self._end_early(work)
        if isinstance(slot, ProcessSlot):
            slot.stop(work)
            return
        with self._lock:
            if work not in self._running:  # it has just ended
                return
            self._running.discard(work)
            self._left[work] = time.monotonic()
            if is_replaced := self._runaways.has_room(len(self._left)):
                self._replace(work)
            else:
                self._kept.add(work)
        slot.stop(work)
        if is_replaced:
            self._done(work)

    def _replace(self, work: Work) -> None:
        """Another thread takes the place of the one that this work is in. Call it with the lock."""
        self._leave(work)
        self._threads -= 1
        self._spawn()

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
