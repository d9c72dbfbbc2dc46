"""Handlers that are coroutines, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Coroutine, Generator
from typing import Any

from duly.core.model import Failed
from duly.engine.calls import Caller, breakdown
from duly.engine.pools import GRACE, NAP, TURN, HandlerPool, PoolContext
from duly.engine.work import Tasks, Work

LAST_WORDS = 1.0  # seconds for coroutines to clean up when the worker ends
ANSWERS = 0.5  # seconds within which an event loop that is not blocked answers, if the machine is not busy
BLOCKED = 5.0  # seconds after which one that has not answered is reported as blocked


class AsyncPool(HandlerPool):
    """Runs coroutines, each slot being one long-lived asyncio task that runs work after work.

    A task per item would cost more than a small handler. Every work has a context of its own, so context variables do
    not leak from one to the next.
    """

    def __init__(self, tasks: Tasks, size: int, most: int, context: PoolContext, caller: Caller) -> None:
        super().__init__(tasks, size, most, context)
        self._caller = caller
        self._slots: list[asyncio.Task[None]] = []
        self._current: dict[asyncio.Task[None], Work] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._deaf: set[asyncio.Task[None]] = set()  # slots whose handlers continue although they were cancelled
        self._closed = False
        self._answered: threading.Event | None = None  # the open question to a loop that did not answer in time
        self._asked_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="duly-async", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * LAST_WORDS)

    def _rouse(self, works: int) -> None:
        self._loop.call_soon_threadsafe(self._start_on, works)

    def room(self) -> int:
        return 0 if self.is_blocked() else super().room()

    def is_blocked(self) -> bool:
        """Whether a handler blocks the whole loop, past its deadline."""
        return self._answered is not None and not self._answered.is_set()

    def abandon(self, work: Work) -> list[Work]:
        """A handler is past its deadline. If it blocks the loop itself, release the works that wait behind it."""
        if not self.is_blocked():
            answered, asked_at = threading.Event(), time.monotonic()
            self._loop.call_soon_threadsafe(answered.set)
            if answered.wait(ANSWERS):
                return []
            self._answered, self._asked_at = answered, asked_at
        waiting = self.unstarted()
        for each in waiting:
            self._over(each)
        return waiting

    def stalled(self) -> list[Work]:
        """Those whose coroutines wait for a loop that another one blocks."""
        if not self._is_blocked_for_long():
            return []
        return [work for work in list(self._current.values()) if self._in_flight.holds(work)]

    def _is_blocked_for_long(self) -> bool:
        return self.is_blocked() and time.monotonic() - self._asked_at > BLOCKED

    def take_stale(self) -> list[Work]:
        """Also looks whether the loop is blocked for long, or turns again: it is called now and then."""
        if not self.is_blocked():
            self._runaways.unblock(self)
        elif self._is_blocked_for_long():
            self._runaways.block(self)
        return super().take_stale()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        slots = [*self._slots, *self._deaf]
        for slot in slots:
            slot.cancel()
        if slots:
            self._loop.run_until_complete(asyncio.wait(slots, timeout=LAST_WORDS))
        self._loop.close()

    def _start_on(self, works: int) -> None:
        for _ in range(works):
            if self._idle:
                sleeper = self._idle.pop()
                if not sleeper.done():
                    sleeper.set_result(None)
            elif len(self._slots) < self.size:
                self._slots.append(self._loop.create_task(self._serve()))
            else:
                break

    async def _serve(self) -> None:
        """One slot: run work after work, and let other coroutines run in between."""
        me = asyncio.current_task()
        assert me is not None
        while not self._closed and me not in self._deaf:
            try:
                await self._take_turn(me)
            except asyncio.CancelledError:  # the cancellation of a work that has already ended
                while me.cancelling():
                    me.uncancel()
        self._deaf.discard(me)

    async def _take_turn(self, me: asyncio.Task[None]) -> None:
        now = time.monotonic()
        row = self._rows.enter(now)
        if row is None:
            if self._rows:  # nothing of what waits may start: there is room for something else
                self._wake_claimer()
            self._idle.append(nothing := self._loop.create_future())
            await nothing
            return
        until, ran = now + TURN, 0
        while now < until and not self._closed:
            while self.gate is not None and row.works and (wait := self.gate.turn()) > 0:
                await asyncio.sleep(min(wait, NAP))
                now = time.monotonic()
            if (work := self._next(row, self._stop_soon)) is None:
                if self.gate is not None:  # the waiting works were released while the gate was shut
                    self._wake_claimer()
                break
            self._current[me] = work
            try:
                value = await _Apart(self._caller.begin(work.task, work.items))
                verdicts = self._caller.judge(work.task, work.items, value)
            except Exception as error:
                verdicts = self._caller.failed(work.items, error)
            except asyncio.CancelledError:
                verdicts = [Failed("the handler was cancelled", ("asyncio.CancelledError",))] * len(work.items)
            except BaseException as error:
                self._caller.caught(work.items, error)
                verdicts = [breakdown(error)] * len(work.items)
            while me.cancelling():  # also if the handler swallowed it, so that the next work is not cancelled
                me.uncancel()
            self._runaways.remove(work)
            if self._current.pop(me, None) is None:  # it took so long that its slot was replaced
                self._in_flight.ended(work)
                return
            ran += len(work.items)
            now = self._end(work, verdicts)
        self._rows.leave(row, ran)
        await asyncio.sleep(0)

    def _stop_soon(self, work: Work) -> None:
        self._end_early(work)
        self._loop.call_soon_threadsafe(self._stop, work)

    def _stop(self, work: Work) -> None:
        for slot, current in self._current.items():
            if current is work:  # otherwise it has ended, and its slot runs another
                slot.cancel()
                self._loop.call_later(GRACE, self._replace, slot, work)

    def _replace(self, slot: asyncio.Task[None], work: Work) -> None:
        """Give the slot of a cancelled handler to another work, unless too many run on already."""
        if self._current.get(slot) is not work:
            return
        is_replaced = self._runaways.has_room()
        self._runaways.add(work)
        if not is_replaced:
            return
        del self._current[slot]
        self._slots.remove(slot)
        self._deaf.add(slot)
        self._leave(work)
        self._over(work)
        self._start_on(1)


class _Apart:
    """Awaits a coroutine in a context of its own, inside the task that awaits it."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        run, step = contextvars.copy_context().run, self._coroutine.send
        value: Any = None
        while True:
            try:
                waits_for = run(step, value)
            except StopIteration as end:
                return end.value
            try:
                value, step = (yield waits_for), self._coroutine.send
            except BaseException as error:
                value, step = error, self._coroutine.throw
