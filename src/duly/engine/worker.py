"""The wiring of a worker: which thread runs which tick, and how it all comes to rest.

    news ─▶ claimer ─▶ pools ─▶ settler ─▶ store          keeper, rescuer, pruner and clock beside them

Stopping: claim nothing more and give back what has not begun; keep beating while handlers finish; after
`drain_seconds`, or at once when asked a second time, stop the handlers and give their attempts back.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from duly.engine.calls import Caller
from duly.engine.claimer import Claimer
from duly.engine.keeper import Guard, Keeper
from duly.engine.loop import Loop
from duly.engine.metering import metering_of
from duly.engine.pools import AsyncPool, Slot, ThreadPool
from duly.engine.processes import ProcessSlot
from duly.engine.pruner import Pruner
from duly.engine.recurrer import Recurrer
from duly.engine.rescuer import Rescuer
from duly.engine.settler import Settler
from duly.engine.watch import Watch
from duly.engine.work import Hands, Work
from duly.errors import ConfigError, StoreUnavailable
from duly.model import Released
from duly.outbound.http import post_json
from duly.store import migrate
from duly.store.base import News
from duly.task import Task

if TYPE_CHECKING:
    from duly.app import Duly

log = logging.getLogger("duly.engine")

MEASURE_EVERY = timedelta(seconds=60)
# Sweeps between two looks for schedules that nobody told of.
RECUR_EVERY = 6
# With this many verdicts unwritten, the database is the bottleneck: claim no more.
BACKLOG = 4_000
# Slots for tasks of our own, which no one else's work can take.
SYSTEM_SLOTS = 2
# Seconds that handlers have to end at the very last.
STOPPING = 0.3


class Worker:
    def __init__(self, app: Duly, tasks: Iterable[str] | None = None) -> None:
        self.app = app
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        settings, self._clock = app.settings, app.clock
        chosen = {name: app.task_named(name) for name in tasks} if tasks is not None else dict(app.tasks)
        if not chosen:
            raise ConfigError("this app has no tasks: register some with @app.task before starting a worker")
        chosen = {**app.system, **chosen}
        self._tasks = chosen
        self._hands = Hands()
        # The keeper has a store, and so a connection, of its own.
        self._keeper_store = app.observed(app.store.twin())
        self._store = app.observed(app.store)
        self._settler = Settler(self._store, app.all_tasks, self._hands)
        self._keeper = Keeper(self._keeper_store, self._hands, lease=settings.lease_seconds, beat=settings.beat_seconds)
        self._guard = Guard(
            self._hands, lease=settings.lease_seconds, finish=self._settler.finish, hung=self._replace_hung
        )
        self._caller = Caller(app, self._keeper.report)
        self._every_pool: list[AsyncPool | ThreadPool] = []  # also the one that claims nothing itself
        self._pools = self._make_pools(chosen)
        self._claimer = Claimer(
            self._store,
            self._pools,
            self._hands,
            self.name,
            lease=settings.lease_seconds,
            poll=settings.poll_seconds,
            sweep=settings.sweep_seconds,
            fresh_now=self._clock.now,
            is_swamped=lambda: len(self._settler) > BACKLOG,
        )
        self._rescuer = Rescuer(
            self._store, app.all_tasks, self._clock, sweep=settings.sweep_seconds,
            settle_down=settings.lease_seconds + MEASURE_EVERY.total_seconds(),
            swept=lambda: self._claimer.hear(None),
        )  # fmt: skip
        self._recurrer = Recurrer(
            self._store, sweep=RECUR_EVERY * settings.sweep_seconds, made=lambda: self._claimer.hear(None)
        )
        self._recurs = Loop("recurrer", self._recurrer.tick, self._clock)
        self._recur_heard = 0.0
        self._watcher = Watch(
            self._store, self.name, sorted(app.tasks), settings, post=post_json, summary=app.telemetry.summary
        )
        self._pruner = Pruner(self._store, settings.keep_seconds)
        self._claims = Loop("claimer", self._claimer.tick, self._clock)
        self._settles = Loop("settler", self._settler.tick, self._clock)
        self._beats = Loop("keeper", self._keeper.tick, self._clock)
        self._guards = Loop("guard", self._watch_works, self._clock)
        self._hands.filled = self._watch_over
        self._hands.emptied = self._settler.close
        self._chores = [
            self._guards,
            Loop("rescuer", self._rescuer.tick, self._clock),
            self._recurs,
            Loop("watch", self._watcher.tick, self._clock),
            Loop("pruner", self._pruner.tick, self._clock),
            Loop("clock", self._measure, self._clock),
        ]
        self._settler.wants = self._settles.wake
        self._settler.ran = app.telemetry.ran
        self._claimer.heard = self._claims.wake
        self._companions = [each for each in app.companions if each.task.name in chosen]
        self._signals = 0
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._watch_stop = threading.Event()

    # -- life

    def start(self) -> None:
        migrate.check(self.app.store)
        self._clock.now()
        self.app.schedules.reconcile()
        for companion in self._companions:  # before anything is claimed that needs them
            companion.start()
        for pool in self._pools:
            pool.start()
        for loop in (self._beats, self._settles, self._claims, *self._chores):
            loop.start()
        threading.Thread(
            target=self._keeper_store.watch, args=(self._hear, self._watch_stop), name="duly-watch", daemon=True
        ).start()
        log.info("worker %s started", self.name, extra={"worker": self.name, "tasks": sorted(self._tasks)})

    def run(self) -> None:
        """Start, work until SIGTERM or SIGINT (or `stop`), come to rest. Call it from the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        self.start()
        while not (self._signals or self._stop.is_set()):
            time.sleep(0.1)
        self.drain()

    def _on_signal(self, *_: object) -> None:
        # Nothing but a count: whatever takes a lock here could wait for the very thread that it interrupted.
        self._signals += 1

    def ailing(self) -> str | None:
        """What is wrong with this worker, in a few words; None when it can do its work."""
        loops = (self._claims, self._settles, self._beats, *self._chores)
        dead = [loop.name for loop in loops if not loop.is_alive()]
        if dead:
            return f"not running: {', '.join(dead)}"
        for pool in self._every_pool:
            if trouble := pool.ailing():
                return trouble
        return None

    def stop(self) -> None:
        """Ask the worker to come to rest; a second time: at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def drain(self) -> None:
        """Come to rest: let handlers finish, then give back what did not."""
        for companion in self._companions:
            companion.rest()
        self._claimer.stop()
        self._watch_stop.set()
        self._claims.stop()
        self._claims.join(5)
        self._give_back([work for pool in self._every_pool for work in pool.unstarted()])
        give_up = time.monotonic() + self.app.settings.drain_seconds
        if len(self._hands):
            log.info("stopping: waiting up to %g s for running handlers", self.app.settings.drain_seconds)
        while len(self._hands) and time.monotonic() < give_up and not (self._hurry.is_set() or self._signals > 1):
            time.sleep(0.02)
        for companion in self._companions:
            companion.stop()  # before their work is given to others
        settled = time.monotonic() + 1
        while self._companions and len(self._hands) and time.monotonic() < settled:
            time.sleep(0.02)
        left = self._hands.works()
        if left:
            log.warning("stopping: giving back %d attempts that did not finish", sum(len(w.items) for w in left))
            self._give_back(left)
        over = time.monotonic() + STOPPING
        while self._hands.is_anyone_stopping() and time.monotonic() < over:
            time.sleep(0.02)  # who ends at once takes his lease along
        self._settle_rest()
        for loop in (self._beats, self._settles, *self._chores):
            loop.stop()
        for pool in self._every_pool:
            pool.close()
        for loop in (self._beats, self._settles, *self._chores):
            loop.join(5)
        try:
            self._watcher.leave(self._clock.now())
        except StoreUnavailable:
            log.warning("could not sign off: the database is away")
        self._keeper_store.close()
        log.info("worker %s stopped", self.name)

    def _hear(self, news: News) -> None:
        """Something happened elsewhere. A new plan is told like anything else that is not one item."""
        self._claimer.hear(news)
        if news is None:
            self._keeper.look_soon()
            self._beats.wake()
        if news is None and time.monotonic() - self._recur_heard > 1:
            self._recur_heard = time.monotonic()
            self._recurs.wake()

    def _give_back(self, works: list[Work]) -> None:
        for work in works:
            self._settler.finish(work, [Released()] * len(work.items), stop=True)

    def _settle_rest(self) -> None:
        give_up = time.monotonic() + self.app.settings.store_timeout_seconds
        while len(self._settler) and time.monotonic() < give_up:
            self._settles.wake()
            time.sleep(0.005)
        if len(self._settler):
            log.error(
                "stopping with %d results unwritten: the database is away; they will run again", len(self._settler)
            )

    def _replace_hung(self, work: Work) -> None:
        for pool in self._every_pool:
            if work.task.name in pool.tasks:
                self._give_back(pool.abandon(work))

    def _watch_works(self, now: datetime) -> datetime:
        for pool in self._every_pool:
            self._give_back(pool.take_stale())
        return self._guard.tick(now)

    def _measure(self, now: datetime) -> datetime:
        moved = self._clock.measure()
        if abs(moved) > 1:
            log.warning("the database's clock moved by %.1f s; rescues wait until leases are renewed", moved)
        return now + MEASURE_EVERY

    # -- pools

    def _make_pools(self, tasks: dict[str, Task[..., Any]]) -> list[AsyncPool | ThreadPool]:
        """One pool per kind of handler, batch size and limits, so that one's room says nothing about another's."""
        settings = self.app.settings
        queues = frozenset(task.queue for task in self.app.all_tasks.values())
        shapes: dict[Any, dict[str, Task[..., Any]]] = {}
        for name, task in tasks.items():
            shape = (task.kind, task.batch or 0, metering_of(task), name in self.app.system)
            shapes.setdefault(shape, {})[name] = task
        pools: list[AsyncPool | ThreadPool] = []
        for (kind, batch, _, is_ours), own in shapes.items():
            most = max(settings.claim_most, batch)
            if kind == "async":
                pools.append(
                    AsyncPool(
                        own, queues, settings.concurrency, most,
                        caller=self._caller, hands=self._hands, finish=self._settler.finish, wants=self._more,
                    )
                )  # fmt: skip
            else:
                size = settings.cpu_slots if kind == "cpu" else SYSTEM_SLOTS if is_ours else settings.concurrency
                pools.append(self._threads(own, queues, kind == "cpu", size, most))
        if self.app.spec is not None:
            apart = self._threads(tasks, frozenset(), True, settings.cpu_slots, settings.claim_most)
            for pool in pools:
                if not (isinstance(pool, ThreadPool) and pool.apart):
                    pool.isolate = apart.add
            self._every_pool.append(apart)
        self._every_pool.extend(pools)
        return pools

    def _threads(
        self, tasks: dict[str, Task[..., Any]], queues: frozenset[str], apart: bool, size: int, most: int
    ) -> ThreadPool:
        spec = self.app.spec
        if apart and spec is None:
            names = ", ".join(sorted(tasks))
            raise ConfigError(
                f"cpu tasks ({names}) run in processes of their own, which must be able to import this app: bind it"
                ' to a name in a module, outside of functions and of `if __name__ == "__main__"`'
            )

        def slot() -> Any:
            return ProcessSlot(spec, self._keeper.report) if apart and spec else Slot(self._caller)

        return ThreadPool(
            tasks, queues, size, most,
            slots=slot, apart=apart, hands=self._hands, finish=self._settler.finish, wants=self._more,
        )  # fmt: skip

    def _watch_over(self) -> None:
        self._beats.wake()
        self._guards.wake()

    def _more(self) -> None:
        self._claims.wake()
