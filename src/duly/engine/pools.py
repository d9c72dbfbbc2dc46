"""Pools run handlers: on an event loop, in threads, or each in a separate process.

A pool takes claimed items, groups them into works (calls of a handler), keeps at most `size` of them running and the
rest waiting, and passes each verdict on. Items that wait here could run in another worker, and are lost with this one,
so no more wait than a pool can start in a tenth of a second. `rows` decides which of them gets the next free slot.

A handler that is stopped loses its slot at once, or, for coroutines, after a moment to clean up. Its result no longer
counts, but its lease stays until the handler has really ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from duly.core.model import ALONE, Failed, Item, Line, Released, Suspects
from duly.engine.calls import Verdicts
from duly.engine.gate import PaceGate
from duly.engine.metering import Probe, meters_of, prefixes_of, suspects_of
from duly.engine.rows import WorkRow, WorkRows
from duly.engine.runaways import Runaways
from duly.engine.starts import NO_SEATS, Permit, Seats, Starts
from duly.engine.work import InFlight, Tasks, Wake, Work

GRACE = 0.5  # seconds that a handler has to end after it was stopped
NAP = 0.25  # seconds after which a slot asks its gate again: a provider that was down may be back
TURN = 0.002  # seconds that a slot runs work after work before it lets others have their turn


@dataclass(frozen=True, kw_only=True)
class PoolContext:
    """What a pool needs of the rest of its worker."""

    # The works and leases of the whole worker.
    in_flight: InFlight
    # Takes the verdicts of a work that has ended, and when; False when there are verdicts for it already.
    finish: Callable[[Work, Verdicts, float | None], bool]
    # Called when the pool has room for more.
    wake_claimer: Wake
    # Runs works in processes of their own, for items that may have crashed a worker; None: they run here.
    isolate: Callable[[list[Work]], None] | None = None
    # When calls under limits may begin.
    starts: Starts = field(default_factory=Starts)
    # What its calls have to pass, if its tasks have a pace.
    gate: PaceGate | None = None
    probe: Probe = lambda _: ()
    # The handlers of the whole worker that run on after they were stopped.
    runaways: Runaways = field(default_factory=Runaways)


class HandlerPool:
    """What all pools have in common: which works wait and run, how fast they end, and how many more to claim."""

    def __init__(self, tasks: Tasks, size: int, most: int, context: PoolContext) -> None:
        self._in_flight = context.in_flight
        self._finish = context.finish
        self._wake_claimer = context.wake_claimer
        self._isolate = context.isolate
        self._runaways = context.runaways
        self._begins_here = True  # False: handlers begin in other processes, which see to their permits
        self.gate = context.gate
        self._widest = size
        self.tasks: Sequence[str] = list(tasks)
        self._counts = threading.Lock()
        self._tasks = tasks
        self.batch = next((task.batch for task in tasks.values() if task.batch), None) or 1
        self.meters = meters_of(list(tasks.values()), context.probe)
        self._starts_of_calls = context.starts
        self._took = 0.0  # seconds that a call takes, of late
        has_one_queue = len({task.queue for task in tasks.values()}) == 1 and not prefixes_of(tasks.values())
        self._rows = WorkRows(size, has_one_queue=has_one_queue)
        self._most = most
        self._begun = 0
        self._ended = 0
        self._called = 0  # works
        self._returned = 0
        self._low = 0
        self._stuck = 0  # items that wait and may not start

    def start(self) -> None:
        """Be ready for works; most pools start what they need with the first of them."""

    def begin(self, items: list[Item], permits: Sequence[Permit] | None = None, seats: Seats = NO_SEATS) -> None:
        self.add(self._accept(items, permits, seats))

    def add(self, works: list[Work]) -> None:
        """Run these works as soon as they may begin and there are slots for them."""
        self._in_flight.hold(works)
        has_permits = bool(works) and works[0].permit is not None
        self.enter(self._starts_of_calls.hold(self, works) if has_permits else works)

    def enter(self, works: list[Work]) -> None:
        """Run these works as soon as there are slots for them."""
        self._rows.add(works)
        self._rouse(len(works))

    def _rouse(self, works: int) -> None:
        """This many more works wait: wake idle slots, or make new ones."""
        raise NotImplementedError

    def abandon(self, work: Work) -> list[Work]:
        """Take out the works that wait behind a handler past its deadline, to be released."""
        return []

    def stalled(self) -> list[Work]:
        """The works that have begun and cannot go on, for long already, so that it is no use to wait for them."""
        return []

    @property
    def size(self) -> int:
        return self._rows.size

    @size.setter
    def size(self, size: int) -> None:
        self._rows.size = size

    @property
    def suspects(self) -> Suspects:
        """How items under suspicion are called here: a call of several needs a process of its own to crash in."""
        return ALONE if self._isolate is None else suspects_of(self._tasks.values())

    def free_calls(self) -> int:
        """How many calls could begin now, or by the time for which calls are granted."""
        return self.size + self._soon() - (self._called - self._returned)

    def _soon(self) -> int:
        """How many more calls than there are slots can begin in the time for which calls are granted."""
        if not self._took:
            return 0
        return min(int(self.size * self._starts_of_calls.ahead / max(self._took, 0.001)), self._most)

    def room(self) -> int:
        """How many items to claim now."""
        if self.gate is not None:
            self.size = min(self._widest, self.gate.width())
        floor = self.size * self.batch
        if self.meters is None:
            target = floor + min(self._rows.all.lookahead(), 2 * self._most)
            self._low = max(floor - self.batch, target // 2)
        else:
            target = floor + self._soon() * self.batch
            self._low = target - self.batch
        self._stuck = self._rows.stuck(self.batch)
        if self._is_busy():
            return 0
        room = min(target - (self._begun - self._ended - self._stuck), self._most)
        if self.meters is not None:
            room = min(room, self.free_calls() * self.batch)
        if self.gate is not None:
            room = min(room, self.gate.claim())
        return room - room % self.batch if room > self.batch else room

    def allowance(self, line: Line) -> int:
        """How many items of this line to claim at most, of those that there is room for."""
        owner = line.owner or None
        return self._allowed(self._rows.wanted(line.queue, owner, self.batch), self._rows.lookahead(line.queue, owner))

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        """How many items of this queue for a new owner, of this owner in a new queue, or of both new."""
        return self._allowed(self._rows.wanted_new(queue, owner, self.batch), self._rows.lookahead_new())

    def busy_queues(self, owner: str) -> Sequence[str]:
        """The queues in which this owner has works here."""
        return self._rows.queues_in_use(owner or None)

    def busy_owners(self) -> Sequence[str]:
        """The owners that have works here."""
        return [owner or "" for owner in self._rows.owners_in_use()]

    def _allowed(self, wanted: int, ahead: int) -> int:
        return max(wanted + (ahead if self.meters is None else self._soon() * self.batch), 0)

    def _is_busy(self) -> bool:
        """Whether enough works wait here, so that no more should be claimed."""
        return self._begun - self._ended - self._stuck > self._low

    def take_stale(self) -> list[Work]:
        """Take out the works that have waited too long, to be released."""
        works = self._rows.take_stale()
        for work in works:
            self._done(work)
        return works

    def unstarted(self) -> list[Work]:
        """Take out all works that have not begun, to be released."""
        return self._rows.take_all()

    def _next(self, row: WorkRow, stop: Callable[[Work], None]) -> Work | None:
        """The next work of this row that is still to be run; None when it has none."""
        while True:
            try:
                work = row.works.popleft()
            except IndexError:
                return None
            work.stop = stop  # before the next check, so that it cannot be taken away in between
            if self._starts(work):
                return work
            self._in_flight.ended(work)  # in case that it was stopped just now
            self._done(work)

    def _starts(self, work: Work) -> bool:
        """Whether this work begins now; not if it was taken away, or comes too late for its limit and is released."""
        work.has_begun = True  # before the look, so that whoever takes it away just now does not give its call back
        if not self._in_flight.holds(work):
            return False
        if self._begins_here and work.permit is not None and not work.permit.begin():
            work.has_begun = False
            self._finish(work, [Released("it could not start in the time of its limit")] * len(work.items), None)
            return False
        work.deadline = time.monotonic() + work.task.deadline
        return True

    def _end(self, work: Work, verdicts: Verdicts) -> float:
        """A handler has ended by itself; returns when."""
        now = time.monotonic()
        if self.meters is not None and work.has_begun:
            took = now - work.deadline + work.task.deadline
            self._took = 0.9 * self._took + 0.1 * took if self._took else took
        if self.gate is not None:
            self._count(self.gate, work, verdicts)
        if not self._finish(work, verdicts, now):
            self._in_flight.ended(work)
        self._done(work)
        return now

    def _end_early(self, work: Work) -> None:
        """A handler is stopped; if it took too long, that counts for the gate, and how it ends then does not."""
        self._in_flight.stopped(work)
        if self.gate is not None:
            is_late = work.deadline <= time.monotonic()
            self._count(self.gate, work, [Failed("", ("TimeoutError",)) if is_late else Released()])

    def _count(self, gate: PaceGate, work: Work, verdicts: Verdicts) -> None:
        """Tell the gate how a call ended, once: it may be stopped from another thread just as it ends by itself."""
        with self._counts:
            if work.is_counted:
                return
            work.is_counted = True
        gate.ended(work.deadline - work.task.deadline, self._rows.all.running, verdicts)

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

    def _accept(self, items: list[Item], permits: Sequence[Permit] | None, seats: Seats) -> list[Work]:
        """The works to run here. Suspects, which may take a process down, are passed on to run in one of their own."""
        self._begun += len(items)
        apart = [item for item in items if item.crashes] if self._isolate is not None else []
        if permits is None:
            works = [Work(self._tasks[item.task], [item]) for item in apart]
            works += self._cut([item for item in items if not item.crashes] if apart else items)
        else:
            works = list(self._granted(items, permits, seats))
        self._called += len(works)
        if apart and self._isolate is not None:
            away = [work for work in works if work.items[0].crashes]
            for work in away:
                work.over = self._over
            self._isolate(away)
            works = [work for work in works if work.over is None]
        return works

    def _granted(self, items: list[Item], permits: Sequence[Permit], seats: Seats) -> Iterator[Work]:
        """The works that these permits are for."""
        rest = iter(items)
        for permit in permits:
            own = list(islice(rest, permit.size))
            work = Work(self._tasks[own[0].task], own)
            work.permit, work.seats = permit, seats
            yield work

    def _done(self, work: Work) -> None:
        """A work has left this pool; the pool that claimed it counts it as over."""
        (work.over or self._over)(work)

    def _over(self, work: Work) -> None:
        """A work that this pool claimed is over, wherever it ran."""
        with self._counts:
            self._ended += len(work.items)
            self._returned += 1
        if not self._is_busy():
            self._wake_claimer()
