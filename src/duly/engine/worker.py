"""A worker: how it starts, runs and is stopped. `wiring` makes its parts, and `drain` says how it stops."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from uuid import uuid4

from duly.engine.drain import LAST_WRITES, Drain
from duly.engine.equipment import Equipment
from duly.engine.wiring import Engine
from duly.store import migrate

log = logging.getLogger("duly.engine")

# Seconds beyond those of draining that another thread waits for the end.
ENDING = 5.0
# Workers that have started live until they are drained, even if nobody else refers to them.
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
        """Work beside whatever else this process does, until the end of the block."""
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
        return engine.flow.pools.ailing()

    # -- stopping

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
                Drain(self._engine, self._equipment, self._must_hurry).run()
                log.info("worker %s stopped", self.name)
                self._is_over.set()
                _started.discard(self)

    def _must_hurry(self) -> bool:
        return self._hurry.is_set() or self._signals > 1
