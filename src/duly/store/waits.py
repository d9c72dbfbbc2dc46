"""How long this process has waited for database connections: for metrics, and to choose the size of writes."""

from __future__ import annotations

import threading

from duly.core.forks import renew_in_children


class ConnectionWaits:
    def __init__(self) -> None:
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._own = threading.local()
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self._own.seconds = self.own + seconds
        with self._lock:
            self.count += 1
            self.seconds += seconds

    @property
    def own(self) -> float:
        """The seconds of the current thread."""
        seconds: float = getattr(self._own, "seconds", 0.0)
        return seconds


WAITS = ConnectionWaits()
