"""The one loop: calls `tick(now)`, which returns when to come back, until it is stopped.

If the database is away, the tick is called again after a growing pause of at most a second, so that work goes on soon
after it is back. Any other error is logged and treated in the same way, so no error ends a loop. A trouble that goes on
is logged every 30 seconds. Tests and simulations call ticks themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from duly.core.clock import Clock
from duly.core.errors import StoreUnavailable

log = logging.getLogger("duly.engine")

Tick = Callable[[datetime], datetime]

_PAUSES = (0.1, 0.2, 0.5, 1.0)
LOG_EVERY = 30.0  # seconds between two log lines about the same trouble


class WakeUp(threading.Event):
    """Wakes one loop when it is called, from any thread. It is made before the loop, for all parts that may call it."""

    def __call__(self) -> None:
        if not self.is_set():  # setting an event takes a lock
            self.set()


class Loop:
    def __init__(self, name: str, tick: Tick, clock: Clock, wake: WakeUp | None = None) -> None:
        self._tick = tick
        self._clock = clock
        self.name = name
        self.trouble: Exception | None = None  # why the last tick failed
        self._failing_since = 0.0
        self._logged_at = -LOG_EVERY
        self._ticking_since: float | None = None
        self.wake = wake or WakeUp()  # ends the pause before the next tick
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"duly-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self.wake.set()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def stands_still_for(self) -> float:
        """For how many seconds it has made no progress: inside one tick, or failing though the database is there."""
        began = self._ticking_since
        in_tick = 0.0 if began is None else time.monotonic() - began
        is_broken = self.trouble is not None and not isinstance(self.trouble, StoreUnavailable)
        return max(in_tick, time.monotonic() - self._failing_since if is_broken else 0.0)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self.wake.clear()
            self._ticking_since = time.monotonic()
            try:
                pause = (self._tick(self._clock.now()) - self._clock.now()).total_seconds()
            except Exception as error:
                self._ticking_since = None
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                self._log(error)
                self._stop.wait(pause)
                continue
            self._ticking_since = None
            if failures:
                log.info("%s continues after %.1f s", self.name, time.monotonic() - self._failing_since)
                failures, self.trouble, self._logged_at = 0, None, -LOG_EVERY
            if pause > 0:
                self.wake.wait(pause)

    def _log(self, error: Exception) -> None:
        now = time.monotonic()
        if self.trouble is None:
            self._failing_since = now
        is_known = type(error) is type(self.trouble)
        self.trouble = error
        if is_known and now - self._logged_at < LOG_EVERY:
            return
        self._logged_at = now
        if isinstance(error, StoreUnavailable):
            log.warning("%s waits for the database: %s", self.name, error)
        else:
            log.error("%s failed and continues", self.name, exc_info=error)
