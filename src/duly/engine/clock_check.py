"""Measures the database's clock now and then, and wakes all loops when it was set."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from duly.core.clock import JUMP, Clock
from duly.engine.work import Wake

log = logging.getLogger("duly.engine")

EVERY = timedelta(seconds=60)


class ClockCheck:
    def __init__(self, clock: Clock, wake_all: Wake) -> None:
        self._clock = clock
        self._wake_all = wake_all

    def tick(self, now: datetime) -> datetime:
        moved = self._clock.measure()
        if abs(moved) > JUMP:
            log.warning("the database's clock moved by %.1f s", moved)
            self._wake_all()  # loops that sleep until a time of the old clock might sleep too long
        return self._clock.now() + EVERY
