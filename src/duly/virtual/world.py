"""A world in virtual time: one app, a store and a clock of its own, and the engine without its threads.

`duly.testing` shows users how to test with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from duly.core.clock import ManualClock
from duly.core.errors import DulyError, InputError
from duly.core.model import Failed, Item, Line, Placed
from duly.core.shown import Row
from duly.engine.calls import Caller, Verdicts
from duly.engine.claimer import Claimer
from duly.engine.keeper import Keeper
from duly.engine.metering import metering_of, meters_of, suspects_of
from duly.engine.outages import Outages
from duly.engine.ready_lines import TurnLog
from duly.engine.recurrer import Recurrer
from duly.engine.settler import Settler
from duly.engine.starts import NO_SEATS, Permit, Seats
from duly.engine.work import InFlight, Work
from duly.facade.app import Duly
from duly.store import Store, open_store
from duly.store.migrate import migrate
from duly.tasks.task import Task
from duly.virtual.promises import REMEDY, Promises

T = TypeVar("T")

# Seconds to wait for the database. Nothing else uses it, so a longer wait would be a deadlock.
PATIENCE = 2.0
# Seconds between polls and sweeps: none is needed, because every round looks at everything.
PATIENT = 366 * 86_400.0


@contextmanager
def virtual(app: Duly, start: datetime | None = None) -> Iterator[World]:
    """The app in a world of its own until the end of the block: fresh store, manual clock (default: 2026-01-01 UTC)."""
    with stage(app, start) as (clock, runner):
        yield World(app, clock, runner)


@contextmanager
def stage(app: Duly, start: datetime | None = None) -> Iterator[tuple[ManualClock, asyncio.Runner]]:
    """Give the app a store and a clock of its own until the end of the block."""
    inside = app.internals
    with ExitStack() as stack:
        # A thread that listens for the ends of items may still have the file open.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-testing-", ignore_cleanup_errors=True))
        store = open_store(f"sqlite:///{Path(folder) / 'virtual.db'}?synchronous=off", timeout=PATIENCE)
        stack.callback(store.close)
        stack.callback(inside.endings.close)
        migrate(store, apps=inside.app_migrations)
        clock = ManualClock(start)
        store.is_virtual, store.remedy = True, REMEDY
        before = inside.database.replace(store, clock)
        stack.callback(inside.database.replace, *before)
        promises = Promises(store, lambda: _real(app, before[0]))
        stack.callback(setattr, inside, "borrowing", inside.borrowing)
        stack.callback(promises.close)
        inside.borrowing = promises
        stack.callback(inside.telemetry.outages, lambda _: None)
        runner = asyncio.Runner()
        stack.callback(_apart, runner.close)
        yield clock, runner


def _real(app: Duly, store: Store | None) -> Store:
    """The app's own database, to which connections of callers lead."""
    settings = app.settings
    url = settings.database_url if store is None else store.url
    # A transaction of the caller's may have locked a file for as long as the test wants.
    timeout = PATIENCE if url.startswith("sqlite") else settings.store_timeout_seconds
    return open_store(url, timeout=timeout, pool_size=1, listen=settings.listen)


def _apart(act: Callable[..., T], *given: Any) -> T:
    """Do this outside of an event loop: if the test itself is async, in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return act(*given)
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(act, *given).result()


class World:
    """Virtual time for one app: `run` what is due, or `advance` and run all that falls due on the way."""

    most = 10_000  # more attempts in one `run` mean that a task puts itself without end

    def __init__(self, app: Duly, clock: ManualClock, runner: asyncio.Runner) -> None:
        self.app = app
        self.clock = clock
        self._in_flight = InFlight()
        self._store = self._observed(app)
        inside = app.internals
        self.outages = Outages(inside.all_tasks)
        inside.telemetry.outages(self.outages.held_until)
        self._settler = Settler(self._store, inside.all_tasks, self._in_flight, self.outages)
        lease, beat = app.settings.lease_seconds, app.settings.beat_seconds
        self._keeper = Keeper(self._store, self._in_flight, lease=lease, beat=beat)
        self._caller = Caller(inside.store, clock, inside.telemetry, app.settings, self._keeper.report)
        self._runner = runner
        self._recurrer = Recurrer(self._store, sweep=app.settings.sweep_seconds)
        self._held: datetime | None = None  # when a limit has room again
        self._turn_log = TurnLog()
        self._attempts = 0
        self._begun = 0
        app.schedules.reconcile()

    # -- time

    def run(self) -> int:
        """Run everything that is due now, and what that makes due now; returns the number of attempts."""
        self._begun = self._attempts
        while self._recur() or self._round():
            pass
        return self._attempts - self._begun

    def advance(self, seconds: float | timedelta = 0.0, **parts: float) -> int:
        """Advance by this much time and run what falls due at its exact time; returns the number of attempts.

        `parts` are timedelta's: `world.advance(hours=1, minutes=30)`.
        """
        by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return self.run_until(self.clock.now() + by + timedelta(**parts))

    def run_until(self, moment: datetime) -> int:
        """Move on to this time, running what falls due at its exact time; returns the number of attempts."""
        if moment.tzinfo is None:
            raise InputError("moment", f"has no time zone: {moment.isoformat()}")
        if moment < self.clock.now():
            raise InputError("moment", f"{moment.isoformat()} is in the past: it is {self.clock.now().isoformat()}")
        attempts = self.run()
        while (due_at := self._next()) is not None and due_at <= moment:
            self.clock.set(due_at)
            attempts += self.run()
        self.clock.set(max(moment, self.clock.now()))  # a handler may have moved the clock further
        return attempts

    def _next(self) -> datetime | None:
        """When something happens next. Due items that were not run wait for a limit, or their task is unknown."""
        times = [self._store.glance(self.clock.now(), 1)[1], self._recurrer.next_at(), self._held]
        return min((time for time in times if time is not None and time > self.clock.now()), default=None)

    # -- looks

    def items(self, **filters: Any) -> list[Row]:
        """Items, newest first; filters are those of `app.read.page`: state, task, queue, key, before, most."""
        self._take()
        return self.app.read.page(**filters)

    def item(self, which: int | Placed[Any]) -> Row:
        self._take()
        return self.app.read.item(which.id if isinstance(which, Placed) else which)

    # -- the engine, without its threads

    def _observed(self, app: Duly) -> Store:
        return app.internals.telemetry.observe(app.internals.store)

    def free_calls(self) -> int:
        """How many calls may begin now."""
        return 1

    @property
    def _promises(self) -> Promises | None:
        """What callers put in transactions of their own; None if the app works on its own database."""
        promises = self.app.internals.borrowing
        return promises if isinstance(promises, Promises) else None

    def _take(self) -> None:
        if (promises := self._promises) is not None:
            promises.take()

    def _recur(self) -> bool:
        """Make the items of schedules that are due now; returns whether there were any."""
        now = self.clock.now()
        return self._recurrer.tick(now) <= now

    def _round(self) -> int:
        """Claim until nothing is left. Each round has a new claimer, because there are no other workers to wait for."""
        self._take()
        before = self._attempts
        shapes: dict[Any, list[Task[..., Any]]] = {}
        for task in self.app.internals.all_tasks.values():
            shapes.setdefault((task.batch or 1, metering_of(task)), []).append(task)
        pools = [_Inline(self, tasks) for tasks in shapes.values()]
        settings = self.app.settings
        claimer = Claimer(
            self._store, pools, self._in_flight, "virtual",
            lease=settings.lease_seconds, poll=settings.poll_seconds, sweep=PATIENT,
            clock=self.clock, turn_log=self._turn_log,
        )  # fmt: skip
        claimer.tick(self.clock.now())
        self._held = claimer.held_until(self.clock.now())
        return self._attempts - before

    def _do(self, work: Work) -> None:
        self._begin(work)
        self._finish(work, self._call(work.task, work.items))

    def _begin(self, work: Work) -> None:
        work.has_begun = True
        self._attempts += len(work.items)
        if self._attempts - self._begun > self.most:
            raise DulyError(
                f"{self.most:,} attempts and still something is due: does a task put itself, or snooze for 0 s?"
            )
        self._in_flight.hold([work])
        if (promises := self._promises) is not None:
            promises.prepare()

    def _finish(self, work: Work, verdicts: Verdicts) -> None:
        self._keeper.write_reports()  # not before, because the handler may have held a transaction open
        self._settler.finish(work, verdicts)
        self._settler.tick(self.clock.now())

    def _call(self, task: Task[..., Any], items: list[Item]) -> Verdicts:
        try:
            if task.is_async:
                return _apart(self._runner.run, self._caller.acall(task, items))
            return contextvars.Context().run(self._caller.call, task, items)
        except (SystemExit, asyncio.CancelledError) as error:  # a failure of the handler, as in a worker
            return [Failed(f"{type(error).__name__}: {error}", (type(error).__name__,))] * len(items)


class _Inline:
    """A pool that takes one item or one batch, and has run it when `begin` returns."""

    def __init__(self, world: World, tasks: list[Task[..., Any]]) -> None:
        self._world = world
        self._named = {task.name: task for task in tasks}
        self.batch = tasks[0].batch or 1
        self.meters = meters_of(tasks, world.outages.meter)
        self.tasks: Sequence[str] = list(self._named)
        self.suspects = suspects_of(tasks)

    def allowance(self, _: Line) -> int:
        return self.room()

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        return self.room()

    def busy_queues(self, owner: str) -> Sequence[str]:
        return ()

    def busy_owners(self) -> Sequence[str]:
        return ()

    def room(self) -> int:
        return self.batch * self.free_calls()

    def free_calls(self) -> int:
        return min(self._world.free_calls(), 1)

    def begin(self, items: list[Item], permits: Sequence[Permit] | None = None, seats: Seats = NO_SEATS) -> None:
        if permits is not None:
            rest = iter(items)
            for permit in permits:
                own = list(islice(rest, permit.size))
                self._world._do(Work(self._named[own[0].task], own))
            return
        by_task: dict[str, list[Item]] = {}
        for item in items:
            by_task.setdefault(item.task, []).append(item)
        for name, same in by_task.items():
            for place in range(0, len(same), self.batch):
                self._world._do(Work(self._named[name], same[place : place + self.batch]))
