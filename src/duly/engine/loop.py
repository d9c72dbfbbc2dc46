"""The one loop: calls `tick(now)`, which returns when to come back, until told to stop.

A tick that finds the database away is called again after a growing pause; any other error is logged and does the same,
so one bad moment never ends a chore. Tests and simulations call ticks themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from duly.clock import Clock
from duly.errors import StoreUnavailable

log = logging.getLogger("duly.engine")

Tick = Callable[[datetime], datetime]

_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Loop:
    def __init__(self, name: str, tick: Tick, clock: Clock) -> None:
        self._tick = tick
        self._clock = clock
        self.name = name
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"duly-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """Tick soon, whatever the last tick said."""
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause = (self._tick(self._clock.now()) - self._clock.now()).total_seconds()
                failures = 0
            except Exception as error:
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                if isinstance(error, StoreUnavailable):
                    log.warning("%s waits %.1f s: %s", self.name, pause, error)
                else:
                    log.exception("%s failed, goes on in %.1f s", self.name, pause)
                self._stop.wait(pause)
                continue
            if pause > 0:
                self._wake.wait(pause)
