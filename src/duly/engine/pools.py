"""Where handlers run: on an event loop, in threads, or each in a process of its own.

A pool takes claimed items, groups them into works (calls of a handler), keeps at most `size` of them running and the
rest waiting, and passes each verdict on. Items that wait here could run in another worker, and are lost with this one,
so no more wait than a pool can start in a tenth of a second. `rows` decides which of them gets the next free slot.

A handler that is stopped loses its slot at once, or, for coroutines, after a moment to clean up. Its result no longer
counts, but its lease stays until the handler has really ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from duly.core.model import Failed, Item, Line, Released
from duly.engine.calls import Caller, Verdicts, breakdown, failure
from duly.engine.metering import meters_of, prefixes_of
from duly.engine.processes import ProcessSlot
from duly.engine.rows import AHEAD, WorkRow, WorkRows
from duly.engine.work import Hands, Work
from duly.outbound.leash import Leash, put_on
from duly.tasks.task import Task

log = logging.getLogger("duly.engine")

LAST_WORDS = 1.0  # seconds for coroutines to clean up when the worker ends
ANSWERS = 0.5  # seconds within which an event loop that is not blocked answers
GRACE = 0.5  # seconds that a handler has to end after it was stopped
TURN = 0.002  # seconds that a slot runs work after work before it lets the event loop do other things

Finish = Callable[[Work, Verdicts, float | None], bool]


class _Ready:
    """What all pools have in common: which works wait and run, how fast they end, and how many more to claim."""

    _hands: Hands
    _finish: Finish

    def __init__(self, tasks: Mapping[str, Task[..., Any]], size: int, most: int) -> None:
        self.tasks: Sequence[str] = list(tasks)
        self.isolate: Callable[[list[Work]], None] | None = None
        self._counts = threading.Lock()
        self._tasks = tasks
        self._queues = frozenset(task.queue for task in tasks.values())
        self.batch = next((task.batch for task in tasks.values() if task.batch), None) or 1
        self.meters = meters_of(list(tasks.values()))
        # How many seconds' worth of work may wait here; calls under a limit must begin within the limit's slack.
        self._patience = AHEAD if self.meters is None else min(self.meters.patience(), AHEAD)
        self._prefixes = prefixes_of(tasks.values())
        self._rows = WorkRows(size, has_one_queue=len(self._queues) == 1 and not self._prefixes)
        self._most = most
        self._begun = 0
        self._ended = 0
        self._called = 0  # works
        self._returned = 0
        self._wants: Callable[[], None] = lambda: None
        self._low = 0
        self._stuck = 0  # items that wait and may not start

    @property
    def size(self) -> int:
        return self._rows.size

    @size.setter
    def size(self, size: int) -> None:
        self._rows.size = size

    def free_calls(self) -> int:
        """How many calls could begin now, or very soon if calls end quickly."""
        return self.size + self._soon() // self.batch - (self._called - self._returned)

    def _soon(self) -> int:
        """How many items end in the time that a granted call may wait."""
        return int(self._rows.all.lookahead() * self._patience / AHEAD)

    def room(self) -> int:
        """How many items to claim now."""
        floor = self.size * self.batch
        target = floor + min(self._rows.all.lookahead(), 2 * self._most)
        self._low = max(floor - self.batch, target // 2)
        self._stuck = self._rows.stuck(self.batch)
        if self._is_busy():
            return 0
        room = min(target - (self._begun - self._ended - self._stuck), self._most)
        if self.meters is not None:  # calls under a limit must begin soon
            room = min(room, self.free_calls() * self.batch)
        return room - room % self.batch if room > self.batch else room

    def allowance(self, line: Line) -> int:
        """How many items of this line to claim at most, of those that there is room for."""
        owner = line.owner or None
        wanted = self._rows.wanted(line.queue, owner, self.batch)
        ahead = self._rows.lookahead(line.queue, owner)
        return max(wanted + int(ahead * self._patience / AHEAD), 0)

    def _is_busy(self) -> bool:
        """Whether so much waits here that no more should be claimed."""
        return self._begun - self._ended - self._stuck > self._low

    def take_stale(self) -> list[Work]:
        """Take out the works that have waited too long, to be given back."""
        works = self._rows.take_stale()
        for work in works:
            self._done(work)
        return works

    def unstarted(self) -> list[Work]:
        """Take out all works that have not begun, to be given back."""
        return self._rows.take_all()

    def _leave(self, work: Work) -> None:
        """Free the slot of this work."""
        if work.row is not None:
            self._rows.leave(work.row)

    def _cut(self, items: list[Item]) -> Iterator[Work]:
        """Group items into works: one item each, or batches of the same task. A suspect is always alone."""
        batches: dict[str, list[Item]] = {}
        for item in items:
            task = self._tasks[item.task]
            if not task.batch or item.crashes:
                yield Work(task, [item])
                continue
            batch = batches.setdefault(item.task, [])
            batch.append(item)
            if len(batch) == task.batch:
                yield Work(task, batches.pop(item.task))
        for name, batch in batches.items():
            yield Work(self._tasks[name], batch)

    def _accept(self, items: list[Item], calls: int | None, start_by: float) -> list[Work]:
        """The works to run here. Suspects, which may take a process down, are passed on to run in one of their own."""
        self._begun += len(items)
        apart = [item for item in items if item.crashes] if self.isolate is not None else []
        suspects = [Work(self._tasks[item.task], [item], over=self._over) for item in apart]
        works = list(self._cut([item for item in items if not item.crashes] if apart else items))
        self._called += len(suspects) + len(works)
        for work in (*suspects, *works):
            work.start_by = start_by
        if calls is not None and len(suspects) + len(works) > calls:  # there are more calls than were granted
            surplus = [*suspects[calls:], *works[max(calls - len(suspects), 0) :]]
            self._hands.hold(surplus)
            for work in surplus:
                self._finish(work, [Released()] * len(work.items), None)
                self._over(work)
            suspects, works = suspects[:calls], works[: max(calls - len(suspects), 0)]
        if suspects and self.isolate is not None:
            self.isolate(suspects)
        return works

    def _is_too_late(self, work: Work) -> bool:
        """Whether it can no longer begin in time for its limit; if so, it is given back."""
        if time.monotonic() <= work.start_by:
            return False
        self._finish(work, [Released()] * len(work.items), None)
        return True

    def _done(self, work: Work) -> None:
        """A work has left this pool; the pool that claimed it is told."""
        (work.over or self._over)(work)

    def _over(self, work: Work) -> None:
        """A work that this pool claimed is over, wherever it ran."""
        with self._counts:
            self._ended += len(work.items)
            self._returned += 1
        if not self._is_busy():
            self._wants()


class AsyncPool(_Ready):
    """Coroutines, on an event loop in a thread of its own.

    Each slot is one long-lived asyncio task that runs work after work, because a task per item would cost more than a
    small handler. Every work has a context of its own, so context variables do not leak from one to the next.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        size: int,
        most: int,
        *,
        caller: Caller,
        hands: Hands,
        finish: Finish,
        wants: Callable[[], None],
    ) -> None:
        super().__init__(tasks, size, most)
        self._caller = caller
        self._hands = hands
        self._finish = finish
        self._wants = wants
        self._slots: list[asyncio.Task[None]] = []
        self._current: dict[asyncio.Task[None], Work] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._deaf: set[asyncio.Task[None]] = set()  # slots whose handlers go on although they were cancelled
        self._closed = False
        self._answered: threading.Event | None = None  # the open question to a loop that did not answer in time
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="duly-async", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * LAST_WORDS)

    def begin(self, items: list[Item], calls: int | None = None, start_by: float = float("inf")) -> None:
        works = self._accept(items, calls, start_by)
        self._hands.hold(works)
        self._rows.add(works)
        self._loop.call_soon_threadsafe(self._start_on, len(works))

    def room(self) -> int:
        return 0 if self.is_blocked() else super().room()

    def is_blocked(self) -> bool:
        """Whether a handler blocks the whole loop, past its deadline."""
        return self._answered is not None and not self._answered.is_set()

    def abandon(self, work: Work) -> list[Work]:
        """A handler is past its deadline. If it blocks the loop itself, give back the works that wait behind it."""
        if not self.is_blocked():
            answered = threading.Event()
            self._loop.call_soon_threadsafe(answered.set)
            if answered.wait(ANSWERS):
                return []
            self._answered = answered
        waiting = self.unstarted()
        for each in waiting:
            self._over(each)
        return waiting

    def ailing(self) -> str | None:
        if self.is_blocked():
            return "an async handler blocks the event loop past its deadline"
        if self._deaf:
            return f"async handlers that ignore their cancellation: {len(self._deaf)}"
        return None

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
                self._wants()
            self._idle.append(nothing := self._loop.create_future())
            await nothing
            return
        until, ran, works = now + TURN, 0, row.works
        while now < until and not self._closed:
            try:
                work = works.popleft()
            except IndexError:
                break
            work.stop = self._stop_soon  # before the question below, so that nobody can take it away in between
            if not self._hands.holds(work) or self._is_too_late(work):  # it was taken away before it began
                self._over(work)
                continue
            self._current[me] = work
            work.deadline = now + work.task.deadline
            try:
                value = await _Apart(self._caller.begin(work.task, work.items))
                verdicts = self._caller.judge(work.task, work.items, value)
            except Exception as error:
                verdicts = [failure(error)] * len(work.items)
            except asyncio.CancelledError:
                verdicts = [Failed("the handler was cancelled", ("asyncio.CancelledError",))] * len(work.items)
            except BaseException as error:
                verdicts = [breakdown(error)] * len(work.items)
            while me.cancelling():  # also if the handler swallowed it, so that the next work is not cancelled
                me.uncancel()
            if self._current.pop(me, None) is None:  # it took so long that its slot was replaced
                self._hands.ended(work)
                return
            now = time.monotonic()
            ran += len(work.items)
            if not self._finish(work, verdicts, now):
                self._hands.ended(work)
            self._over(work)
        self._rows.leave(row, ran)
        await asyncio.sleep(0)

    def _stop_soon(self, work: Work) -> None:
        self._hands.stopped(work)
        self._loop.call_soon_threadsafe(self._stop, work)

    def _stop(self, work: Work) -> None:
        for slot, current in self._current.items():
            if current is work:  # otherwise it has ended, and its slot runs another
                slot.cancel()
                self._loop.call_later(GRACE, self._replace, slot, work)

    def _replace(self, slot: asyncio.Task[None], work: Work) -> None:
        """Give the slot of a cancelled handler to another work, even if the handler does not end."""
        if self._current.get(slot) is not work:
            return
        log.warning("%s %s ignores its cancellation and runs on", work.task.label, work.items[0].id)
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


class ThreadPool(_Ready):
    """Plain handlers. Each slot is a thread, which may pass its works on to a child process."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        size: int,
        most: int,
        *,
        slots: Callable[[], ThreadSlot | ProcessSlot],
        apart: bool,
        hands: Hands,
        finish: Finish,
        wants: Callable[[], None],
    ) -> None:
        super().__init__(tasks, size, most)
        self._wants = wants
        self._slots = slots
        self.apart = apart  # its slots are processes
        self._hands = hands
        self._finish = finish
        self._lock = threading.Condition()
        self._threads = 0
        self._running: set[Work] = set()
        self._left: dict[Work, float] = {}  # when each was stopped, of works whose threads go on
        self._leaked: set[Work] = set()  # those of them that did not end within `GRACE`
        self._idle = 0
        self._closed = False

    def start(self) -> None:
        """Nothing to do: threads start when there is work for them."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def begin(self, items: list[Item], calls: int | None = None, start_by: float = float("inf")) -> None:
        self.add(self._accept(items, calls, start_by))

    def add(self, works: list[Work]) -> None:
        self._hands.hold(works)
        with self._lock:
            self._rows.add(works)
            for _ in range(min(len(self._rows) - self._idle, self.size - self._threads)):
                self._spawn()
            self._lock.notify(len(works))

    def _spawn(self) -> None:
        threading.Thread(target=self._serve, name="duly-slot", daemon=True).start()
        self._threads += 1

    def abandon(self, work: Work) -> list[Work]:
        """Nothing to do for a handler past its deadline: another thread took its place when it was stopped."""
        return []

    def take_stale(self) -> list[Work]:
        self._tell_of_leaks()
        return super().take_stale()

    def ailing(self) -> str | None:
        if len(self._leaked) > self.size:
            return f"threads that run on for handlers that were stopped: {len(self._leaked)}"
        return None

    def _tell_of_leaks(self) -> None:
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

    def _serve(self) -> None:
        slot = self._slots()
        stop = partial(self._stop, slot)
        try:
            while (row := self._enter()) is not None:
                now = time.monotonic()
                ran, until = 0, now + TURN
                while now < until and (work := self._next(row, stop)) is not None:
                    try:
                        verdicts = slot.call(work)
                    except BaseException as error:
                        verdicts = [breakdown(error)] * len(work.items)
                    if not self._returns(work):
                        return
                    now = time.monotonic()
                    ran += len(work.items)
                    if not self._finish(work, verdicts, now):
                        self._hands.ended(work)
                    self._done(work)
                self._rows.leave(row, ran)
        finally:
            slot.close()

    def _returns(self, work: Work) -> bool:
        """A handler has ended; False when another thread has taken the place of this one."""
        with self._lock:
            if work in self._running:
                self._running.discard(work)
                return True
            self._left.pop(work, None)
            self._leaked.discard(work)
        self._hands.ended(work)
        return False

    def _stop(self, slot: ThreadSlot | ProcessSlot, work: Work) -> None:
        """Stop a handler. A thread cannot be stopped, so another one takes its place at once."""
        self._hands.stopped(work)
        if self.apart:
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
                    self._wants()
                self._idle += 1
                self._lock.wait()
                self._idle -= 1
        return row

    def _next(self, row: WorkRow, stop: Callable[[Work], None]) -> Work | None:
        """The next work of this row that is still to be run."""
        while True:
            with self._lock:
                try:
                    work = row.works.popleft()
                except IndexError:
                    return None
                work.stop = stop  # before the next question, so that nobody can take it away in between
                now = time.monotonic()
                if self._hands.holds(work) and now <= work.start_by:
                    work.deadline = now + work.task.deadline
                    self._running.add(work)
                    return work
            if self._hands.holds(work):
                self._is_too_late(work)
            self._done(work)


class ThreadSlot:
    """Calls plain handlers in the thread of the slot, each in a new context."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._leash = Leash()
        self._context = contextvars.Context()
        self._context.run(put_on, self._leash)

    def call(self, work: Work) -> Verdicts:
        return self._context.copy().run(self._caller.call, work.task, work.items)

    def stop(self, work: Work) -> None:
        """End what the handler waits for on the network. The thread itself cannot be stopped; its result is refused."""
        self._leash.cut()

    def close(self) -> None:
        pass
