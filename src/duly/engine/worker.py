"""A worker: how it starts, runs and stops. `wiring` makes its parts.

When it stops, it claims nothing more, gives back what has not begun, and goes on with its heartbeats while handlers
finish. After `drain_seconds`, or at once if it has to hurry or none of them can go on, it stops the handlers and gives
their attempts back.
Results that the database does not take within a few seconds more are logged and dropped: those items will run again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from uuid import uuid4

from duly.core.errors import StoreUnavailable
from duly.core.model import Released
from duly.core.patience import Patient
from duly.engine.equipment import Equipment
from duly.engine.wiring import Engine
from duly.engine.work import Work
from duly.store import migrate

log = logging.getLogger("duly.engine")

# Seconds to wait for the last results to be written, and for each of the other parts to end.
LAST_WRITES, LAST_PART = 2.5, 0.5
# The same for a worker that was asked to stop twice.
IN_A_HURRY = 0.25
# Seconds that stopped handlers have to end before the worker is gone.
STOPPING = 0.3
# Seconds beyond those of draining that another thread waits for the end.
ENDING = 5.0
# Started workers, kept until they are drained, even if there is no other reference to them.
_started: set[Worker] = set()


class Worker:
    def __init__(self, equipment: Equipment) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._equipment = equipment
        self._engine = Engine(equipment, self.name)
        self._signals = 0
        self._is_waiting = False
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._is_started = False
        self._starting = threading.Lock()
        self._runs_in: threading.Thread | None = None  # the thread that `run` was called in, which will drain it
        self._has_run = threading.Event()  # that thread has left `run`
        self._ending = threading.Lock()
        self._is_over = threading.Event()

    def __enter__(self) -> Worker:
        """Work in the background of this process, until the end of the block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- starting and running

    def start(self) -> None:
        """Work in threads of its own from now on, until `close`. Nothing happens if it was asked to stop before."""
        with self._starting:
            if not self._stop.is_set():
                self._start()
        if self._stop.is_set():  # asked meanwhile, perhaps by a caller that does not wait for the end
            self.drain()

    def _start(self) -> None:
        engine, equipment = self._engine, self._equipment
        self._is_waiting = True
        migrate.check(equipment.store, equipment.app_migrations)
        self._is_waiting = False
        equipment.clock.now()
        equipment.reconcile()
        if any(task.source is not None for task in equipment.tasks.values()):
            engine.watch.learn()  # before anything is claimed that a source which is down would fail
        self._is_started = True
        _started.add(self)
        for companion in equipment.companions:  # before items that need them are claimed
            companion.start()
        engine.flow.pools.start()
        for loop in (engine.beats, engine.settles, engine.claims, *engine.chores, engine.news):
            loop.start()
        log.info("worker %s started", self.name, extra={"worker": self.name, "tasks": sorted(equipment.tasks)})

    def run(self, *, is_replaced: bool = False) -> str | None:
        """Start, work until SIGTERM, SIGINT or `stop`, and drain. Call it from the main thread.

        With `is_replaced` it also ends when too many handlers run on after they were stopped. Then it returns why, and
        its caller replaces this process.
        """
        runaways, trouble = self._engine.flow.runaways, None
        runaways.is_replaced = is_replaced
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        self._runs_in = threading.current_thread()
        try:
            self.start()
            while not (self._signals or self._stop.is_set() or trouble):
                time.sleep(0.1)
                trouble = runaways.trouble() if is_replaced else None
            self.drain()
        finally:
            self._has_run.set()
        return None if self._signals or self._stop.is_set() else trouble

    def _on_signal(self, *_: object) -> None:
        # Only count: a signal handler that takes a lock could wait for the very thread that it interrupted.
        self._signals += 1
        if self._is_waiting:  # it waits for an unreachable database, so nothing has begun that would have to end
            raise SystemExit(0)

    # -- looks

    @property
    def is_over(self) -> bool:
        """Whether it worked once and has stopped."""
        return self._is_over.is_set()

    @property
    def ended(self) -> Counter[str]:
        """How rows of jobs ended here, by status, if it works on a single line."""
        return self._engine.flow.ends.by_status

    def ailing(self) -> str | None:
        """What is wrong with this worker, in a few words; None when it can do its work."""
        engine = self._engine
        vital = (engine.claims, engine.settles, engine.beats)
        dead = [loop.name for loop in (*vital, engine.news, *engine.chores) if not loop.is_alive()]
        if dead:
            return f"not running: {', '.join(dead)}"
        most = 2 * self._equipment.settings.store_timeout_seconds + LAST_WRITES
        still = [loop.name for loop in vital if loop.stands_still_for() > most]
        if still:
            return f"no progress for more than {most:g} s: {', '.join(still)}"
        return engine.flow.runaways.trouble()

    # -- stopping

    def stop(self) -> None:
        """Ask the worker to stop; a second call asks it not to wait for its handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def ask_to_stop(self) -> None:
        """Ask the worker to stop. Unlike a second `stop`, a second call does not ask it to hurry."""
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
                self._stop_parts()
                log.info("worker %s stopped", self.name)
                self._is_over.set()
                _started.discard(self)

    def _must_hurry(self) -> bool:
        return self._hurry.is_set() or self._signals > 1

    def _stop_parts(self) -> None:
        engine, flow, companions = self._engine, self._engine.flow, self._equipment.companions
        seconds = self._equipment.settings.drain_seconds
        for companion in companions:
            companion.rest()
        flow.claimer.stop()
        flow.listener.stop()
        engine.news.stop()
        engine.claims.stop()
        give_up = time.monotonic() + seconds
        self._await(lambda: not engine.claims.is_alive(), 1.0)
        self._give_back([*flow.starts.take_all(), *flow.pools.unstarted()])
        if len(flow.in_flight):
            log.info("stopping: waiting up to %g s for running handlers", seconds)
        self._await(self._has_finished, give_up - time.monotonic())
        for companion in companions:
            companion.stop()  # before their items are given to others
        if companions:
            self._await(self._has_finished, 1.0)
        if left := flow.in_flight.works():
            log.warning("stopping: giving back %d attempts that did not finish", sum(len(w.items) for w in left))
            self._give_back(left)
        # Handlers that end at once get their leases closed.
        self._await(lambda: not flow.in_flight.is_anyone_stopping(), STOPPING)
        self._write_last_results(give_up)
        loops = (engine.beats, engine.settles, *engine.chores)
        for loop in loops:
            loop.stop()
        flow.pools.close()
        self._await(lambda: not any(loop.is_alive() for loop in loops), LAST_PART)
        self._sign_off()
        flow.keeper_store.close()
        flow.store.hasten(False)  # the app may continue without this worker

    def _has_finished(self) -> bool:
        """Whether no handlers run but those that cannot go on, because another one blocks their event loop."""
        running = len(self._engine.flow.in_flight)
        return not running or running <= len(self._engine.flow.pools.stalled())

    def _await(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait until this is true, for at most this many seconds, and hardly at all in a hurry."""
        begun = time.monotonic()
        while not is_over():
            passed = time.monotonic() - begun
            if passed >= seconds or (passed >= IN_A_HURRY and self._must_hurry()):
                return
            time.sleep(0.01)

    def _give_back(self, works: Iterable[Work]) -> None:
        for work in works:
            self._engine.flow.settler.finish(work, [Released("its worker stopped")] * len(work.items), stop=True)

    def _write_last_results(self, give_up: float) -> None:
        """Wait for the settler. A slow database gets all the time of the drain, an unreachable one only a moment."""
        flow, loop = self._engine.flow, self._engine.settles
        flow.store.hasten()
        flow.keeper_store.hasten()
        begun = time.monotonic()

        def is_over() -> bool:
            loop.wake()
            is_away = loop.trouble is not None and time.monotonic() - begun > LAST_WRITES
            return is_away or not len(flow.settler)

        self._await(is_over, max(give_up - begun, 0) + LAST_WRITES)
        if len(flow.settler):
            log.error(
                "stopping with %d results unwritten: the database is away; they will run again", len(flow.settler)
            )

    def _sign_off(self) -> None:
        """Write that this worker has ended and what it did last, if the database takes it in a moment."""

        def leave() -> None:
            now = self._equipment.clock.now()
            self._engine.watch.leave(now)
            self._engine.historian.write(now)

        try:
            Patient(leave, IN_A_HURRY if self._must_hurry() else LAST_PART)()
        except StoreUnavailable:
            log.warning("could not sign off: the database is away")
