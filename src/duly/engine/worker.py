"""A worker: which thread runs which tick, and how all of them are stopped.

    news ─▶ claimer ─▶ pools ─▶ settler ─▶ store          keeper, rescuer, pruner and clock beside them

To stop, it claims nothing more, gives back what has not begun, and goes on with its heartbeats while handlers finish.
After `drain_seconds`, or at once when asked a second time, it stops the handlers and gives their attempts back. Results
that the database does not take within a few seconds more are logged and dropped: those items will run again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from duly.core.clock import JUMP
from duly.core.errors import ConfigError, StoreUnavailable
from duly.core.model import Change, Released
from duly.core.patience import Patient
from duly.core.policy.adapt import Pace
from duly.engine.calls import Caller
from duly.engine.claimer import Claimer
from duly.engine.coroutines import AsyncPool
from duly.engine.detector import LOOK_WITHIN, Detector
from duly.engine.equipment import Equipment
from duly.engine.gate import Gate
from duly.engine.historian import Historian
from duly.engine.keeper import Keeper, Watchdog
from duly.engine.loop import Loop
from duly.engine.metering import holds_of, metering_of
from duly.engine.outages import Outages
from duly.engine.pools import Ties
from duly.engine.processes import ProcessSlot
from duly.engine.pruner import Pruner
from duly.engine.recurrer import Recurrer
from duly.engine.rescuer import Rescuer
from duly.engine.settler import Settler
from duly.engine.threads import ThreadPool, ThreadSlot
from duly.engine.watch import Watch
from duly.engine.work import Hands, Work
from duly.outbound.http import post_json
from duly.store import migrate
from duly.store.contract import AWAITED, News
from duly.tasks.task import Task

log = logging.getLogger("duly.engine")

MEASURE_EVERY = timedelta(seconds=60)
# How many sweeps pass between two looks for schedules that no news told of.
RECUR_EVERY = 6
# With this many unwritten verdicts the database is the bottleneck, and no more is claimed.
BACKLOG = 4_000
# Seconds that a stopping worker waits for its last results to be written, and for each of its other parts to end.
LAST_WRITES, LAST_PART = 2.5, 0.5
# The same for a worker that was asked to stop twice.
IN_A_HURRY = 0.25
# Seconds that a heartbeat waits for its answer at least, however short the time between two is.
BEAT_TIMEOUT = 2.0
# Slots for duly's own tasks, so that other work cannot block them.
SYSTEM_SLOTS = 2
# Seconds for which it tells of ends of items after someone asked for that.
AWAITED_FOR = 30.0
# Seconds beyond those of draining that it is waited for in another thread.
ENDING = 5.0
# Seconds that stopped handlers have to end before the worker is gone.
STOPPING = 0.3


class Worker:
    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        settings, observer, self._clock = equipment.settings, equipment.observer, equipment.clock
        self._hands = Hands()
        # The keeper has a store of its own, which gives up a silent connection while the leases still last.
        patience = min(settings.store_timeout_seconds, max(settings.beat_seconds, BEAT_TIMEOUT))
        self._keeper_store = observer.observe(equipment.store.twin(patience))
        self._store = observer.observe(equipment.store)
        self._outages = Outages(equipment.known)
        self._settler = Settler(self._store, equipment.known, self._hands, self._outages)
        self._keeper = Keeper(self._keeper_store, self._hands, lease=settings.lease_seconds, beat=settings.beat_seconds)
        self._watchdog = Watchdog(
            self._hands, lease=settings.lease_seconds, finish=self._settler.finish, hung=self._replace_hung
        )
        self._caller = Caller(equipment.store, self._clock, observer, settings, self._keeper.report)
        self._gates: dict[Pace, Gate] = {}
        self._every_pool: list[AsyncPool | ThreadPool] = []  # with the one for suspects, which claims nothing itself
        self._pools = self._make_pools()
        self._claimer = Claimer(
            self._store,
            self._pools,
            self._hands,
            self.name,
            lease=settings.lease_seconds,
            poll=settings.poll_seconds,
            sweep=settings.sweep_seconds,
            clock=self._clock,
            is_swamped=lambda: len(self._settler) > BACKLOG,
            only=equipment.only,
        )
        self._rescuer = Rescuer(
            self._store, equipment.known, Detector(settings.lease_seconds),
            sweep=min(settings.sweep_seconds, LOOK_WITHIN * settings.lease_seconds),
            worker=self.name, hands=self._hands, swept=lambda: self._claimer.hear(None),
        )  # fmt: skip
        self._recurrer = Recurrer(
            self._store, sweep=RECUR_EVERY * settings.sweep_seconds, made=lambda: self._claimer.hear(None)
        )
        self._recurs = Loop("recurrer", self._recurrer.tick, self._clock)
        self._recur_heard = 0.0
        self._watcher = Watch(
            self._store,
            self.name,
            sorted(equipment.known.keys() - equipment.system.keys()),
            settings,
            post=post_json,
            summary=observer.summary,
            holds=holds_of(equipment.known),
            outages=self._outages,
        )
        self._pruner = Pruner(self._store, settings.keep_seconds, settings.audit_keep_seconds)
        self._historian = Historian(
            self._store, observer, settings, equipment.known, lambda: list(self._gates.values())
        )
        self._claims = Loop("claimer", self._claimer.tick, self._clock)
        self._settles = Loop("settler", self._settler.tick, self._clock)
        self._beats = Loop("keeper", self._keeper.tick, self._clock)
        self._watchdog_loop = Loop("watchdog", self._watch_works, self._clock)
        self._watch = Loop("watch", self._watcher.tick, self._clock)
        self._news = Loop("news", self._listen, self._clock)
        self._hands.filled = self._watch_over
        self._hands.emptied = self._settler.close
        self._chores = [
            self._watchdog_loop,
            Loop("rescuer", self._rescuer.tick, self._clock),
            self._recurs,
            self._watch,
            Loop("pruner", self._pruner.tick, self._clock),
            Loop("history", self._historian.tick, self._clock),
            Loop("clock", self._measure, self._clock),
        ]
        self._settler.wants = self._settles.wake
        self._settler.ran = observer.ran
        self._outages.owes = self._settles.wake
        self._outages.tells = self._watch.wake
        observer.outages(self._outages.held_until)
        self._settler.settled = self._after_settling
        self.ended: Counter[str] = Counter()  # how rows of jobs ended here, where it works off a single line
        self._awaited_until = 0.0
        if any(pool.meters is not None and pool.meters.are_concurrent for pool in self._pools):
            self._settler.freed = self._claimer.freed
        self._claimer.heard = self._claims.wake
        self._signals = 0
        self._is_waiting = False
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._listen_stop = threading.Event()
        self._is_started = False
        self._starting = threading.Lock()
        self._runs_in: threading.Thread | None = None  # the thread that `run` was called in, which will drain it
        self._has_run = threading.Event()  # that thread has left `run`
        self._ending = threading.Lock()
        self._is_over = threading.Event()

    # -- life

    def __enter__(self) -> Worker:
        """Work beside whatever else this process does, until the end of the block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Work in threads of its own from now on, until `close`. Nothing happens if it was asked to stop before."""
        with self._starting:
            if not self._stop.is_set():
                self._start()
        if self._stop.is_set():  # asked meanwhile, maybe by someone who does not wait for the end
            self.drain()

    def _start(self) -> None:
        self._is_waiting = True
        migrate.check(self._equipment.store)
        self._is_waiting = False
        self._clock.now()
        self._equipment.reconcile()
        if any(task.source is not None for task in self._equipment.tasks.values()):
            self._watcher.learn()  # before anything is claimed that a source which is down would fail
        self._is_started = True
        for companion in self._equipment.companions:  # before items that need them are claimed
            companion.start()
        for pool in self._pools:
            pool.start()
        for loop in (self._beats, self._settles, self._claims, *self._chores):
            loop.start()
        self._news.start()
        log.info("worker %s started", self.name, extra={"worker": self.name, "tasks": sorted(self._equipment.tasks)})

    def run(self) -> None:
        """Start, work until SIGTERM, SIGINT or `stop`, and drain. Call it from the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        self._runs_in = threading.current_thread()
        try:
            self.start()
            while not (self._signals or self._stop.is_set()):
                time.sleep(0.1)
            self.drain()
        finally:
            self._has_run.set()

    def _on_signal(self, *_: object) -> None:
        # Only count: a signal handler that takes a lock could wait for the very thread that it interrupted.
        self._signals += 1
        if self._is_waiting:  # it waits for a database that is away, so nothing has begun that would have to end
            raise SystemExit(0)

    @property
    def is_over(self) -> bool:
        """Whether it worked once and has stopped."""
        return self._is_over.is_set()

    def ailing(self) -> str | None:
        """What is wrong with this worker, in a few words; None when it can do its work."""
        loops = (self._claims, self._settles, self._beats, self._news, *self._chores)
        dead = [loop.name for loop in loops if not loop.is_alive()]
        if dead:
            return f"not running: {', '.join(dead)}"
        most = 2 * self._equipment.settings.store_timeout_seconds + LAST_WRITES
        still = [loop.name for loop in (self._claims, self._settles, self._beats) if loop.stands_still_for() > most]
        if still:
            return f"the work stands still for more than {most:g} s: {', '.join(still)}"
        for pool in self._every_pool:
            if trouble := pool.ailing():
                return trouble
        return None

    def stop(self) -> None:
        """Ask the worker to stop; a second call asks it not to wait for its handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def ask_to_stop(self) -> None:
        """Ask the worker to stop if nobody has yet; unlike `stop`, it never asks it to hurry."""
        self._stop.set()

    def close(self) -> None:
        """Stop, wherever it runs, and return when that is done; nothing happens if it has not started or is over."""
        self.ask_to_stop()
        with self._starting:
            pass  # a start under way is over now, and none comes after it
        if self._runs_in not in (None, threading.current_thread()):
            # As long as draining takes at most; if `run` ended before it could drain, that is done here.
            self._has_run.wait(self._equipment.settings.drain_seconds + LAST_WRITES + ENDING)
        self.drain()

    def drain(self) -> None:
        """Stop: let handlers finish, then stop the others and give their items back. A second call waits for that.

        Nothing happens if it has not started.
        """
        with self._ending:
            if self._is_started and not self._is_over.is_set():
                self._drain()
                self._is_over.set()

    def _drain(self) -> None:
        for companion in self._equipment.companions:
            companion.rest()
        self._claimer.stop()
        self._listen_stop.set()
        self._news.stop()
        self._claims.stop()
        give_up = time.monotonic() + self._equipment.settings.drain_seconds
        self._await(lambda: not self._claims.is_alive(), 1.0)
        self._give_back([work for pool in self._every_pool for work in pool.unstarted()])
        if len(self._hands):
            log.info("stopping: waiting up to %g s for running handlers", self._equipment.settings.drain_seconds)
        self._await(lambda: not len(self._hands), give_up - time.monotonic())
        for companion in self._equipment.companions:
            companion.stop()  # before their items are given to others
        if self._equipment.companions:
            self._await(lambda: not len(self._hands), 1.0)
        left = self._hands.works()
        if left:
            log.warning("stopping: giving back %d attempts that did not finish", sum(len(w.items) for w in left))
            self._give_back(left)
        over = time.monotonic() + STOPPING
        while self._hands.is_anyone_stopping() and time.monotonic() < over:
            time.sleep(0.02)  # handlers that end at once get their leases closed
        self._settle_rest(give_up)
        loops = (self._beats, self._settles, *self._chores)
        for loop in loops:
            loop.stop()
        for pool in self._every_pool:
            pool.close()
        self._await(lambda: not any(loop.is_alive() for loop in loops), LAST_PART)
        self._sign_off()
        self._keeper_store.close()
        self._store.hasten(False)  # the app may go on without this worker
        log.info("worker %s stopped", self.name)

    def _await(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait until this is so, for so many seconds at most, and hardly at all when asked to stop a second time."""
        begun = time.monotonic()
        while not is_over():
            passed = time.monotonic() - begun
            if passed >= seconds or (passed >= IN_A_HURRY and (self._hurry.is_set() or self._signals > 1)):
                return
            time.sleep(0.01)

    def _sign_off(self) -> None:
        """Write that this worker has ended and what it did last, if the database takes it in a moment."""

        def leave() -> None:
            now = self._clock.now()
            self._watcher.leave(now)
            self._historian.write(now)

        try:
            Patient(leave, IN_A_HURRY if self._signals > 1 else LAST_PART)()
        except StoreUnavailable:
            log.warning("could not sign off: the database is away")

    def _listen(self, now: datetime) -> datetime:
        """Listen for news until told to stop. An error ends it, and the loop starts it again."""
        self._keeper_store.listen(self._hear, self._listen_stop)
        return now

    def _hear(self, news: News) -> None:
        """Take news. If it tells of no particular item, a schedule or a running item may have been changed."""
        if news == AWAITED:
            self._awaited_until = time.monotonic() + AWAITED_FOR
            return
        self._claimer.hear(news)
        if news is None:
            self._keeper.look_soon()
            self._beats.wake()
        if news is None and time.monotonic() - self._recur_heard > 1:
            self._recur_heard = time.monotonic()
            self._recurs.wake()

    def _after_settling(self, changes: list[Change]) -> None:
        if self._equipment.only is not None:
            self.ended.update(
                change.status
                for change in changes
                if change.status is not None and (change.finished_at is not None or change.tried is not None)
            )
        if time.monotonic() < self._awaited_until:
            self._store.tell_of_ends()

    def _give_back(self, works: list[Work]) -> None:
        for work in works:
            self._settler.finish(work, [Released()] * len(work.items), stop=True)

    def _settle_rest(self, give_up: float) -> None:
        """Have the last results written. A slow database gets all the time of the drain, one that is away a moment."""
        self._store.hasten()
        self._keeper_store.hasten()
        begun = time.monotonic()

        def is_over() -> bool:
            self._settles.wake()
            is_away = self._settles.trouble is not None and time.monotonic() - begun > LAST_WRITES
            return is_away or not len(self._settler)

        self._await(is_over, max(give_up - begun, 0) + LAST_WRITES)
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
        return self._watchdog.tick(now)

    def _measure(self, now: datetime) -> datetime:
        moved = self._clock.measure()
        if abs(moved) > JUMP:
            log.warning("the database's clock moved by %.1f s", moved)
            # Loops that sleep until a time of the old clock might sleep too long.
            for loop in (self._claims, self._settles, self._beats, *self._chores):
                loop.wake()
        return self._clock.now() + MEASURE_EVERY

    # -- pools

    def _make_pools(self) -> list[AsyncPool | ThreadPool]:
        """One pool for each combination of kind of handler, batch size, limits and pace, as these are claimed alike."""
        settings, tasks = self._equipment.settings, self._equipment.tasks
        shapes: dict[Any, dict[str, Task[..., Any]]] = {}
        for name, task in tasks.items():
            shape = (task.kind, task.batch or 0, metering_of(task), task.pace, name in self._equipment.system)
            shapes.setdefault(shape, {})[name] = task
        pools: list[AsyncPool | ThreadPool] = []
        for (kind, batch, _, pace, is_ours), own in shapes.items():
            most = max(settings.claim_most, batch)
            ties = self._ties(pace)
            if kind == "async":
                pools.append(AsyncPool(own, settings.concurrency, most, ties, self._caller))
            else:
                size = settings.cpu_slots if kind == "cpu" else SYSTEM_SLOTS if is_ours else settings.concurrency
                pools.append(self._threads(own, kind == "cpu", size, most, ties))
        if self._equipment.child_command is not None:
            apart = self._threads(tasks, True, settings.cpu_slots, settings.claim_most, self._ties())
            for pool in pools:
                if not (isinstance(pool, ThreadPool) and pool.apart):
                    pool.isolate = apart.add
            self._every_pool.append(apart)
        self._every_pool.extend(pools)
        return pools

    def _threads(
        self, tasks: Mapping[str, Task[..., Any]], apart: bool, size: int, most: int, ties: Ties
    ) -> ThreadPool:
        command = self._equipment.child_command
        if apart and command is None:
            names = ", ".join(sorted(tasks))
            raise ConfigError(
                f"cpu tasks ({names}) run in processes of their own, which must be able to import this app: bind it"
                ' to a name in a module, outside of functions and of `if __name__ == "__main__"`'
            )

        def slot() -> Any:
            return ProcessSlot(command, self._keeper.report) if apart and command else ThreadSlot(self._caller)

        return ThreadPool(tasks, size, most, ties, slots=slot, apart=apart)

    def _ties(self, pace: Pace | None = None) -> Ties:
        gate = None if pace is None else self._gate_for(pace)
        return Ties(
            hands=self._hands, finish=self._settler.finish, wants=self._more, gate=gate, probe=self._outages.meter
        )

    def _gate_for(self, pace: Pace) -> Gate:
        """The gate of all tasks with this pace, in whichever pools they run."""
        gate = self._gates.get(pace)
        if gate is None:
            gate = self._gates[pace] = Gate(pace, self._equipment.slices)
            self._equipment.observer.paced(pace.name, gate.width, gate.throttled)
        return gate

    def _watch_over(self) -> None:
        self._beats.wake()
        self._watchdog_loop.wake()

    def _more(self) -> None:
        self._claims.wake()
