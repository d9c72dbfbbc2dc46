"""How a worker stops.

It claims nothing more, gives back what has not begun, and goes on with its heartbeats while handlers finish. After
`drain_seconds`, or at once if it has to hurry, it stops the handlers and gives their attempts back. Results that the
database does not take within a few seconds more are logged and dropped: those items will run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from duly.core.errors import StoreUnavailable
from duly.core.model import Released
from duly.core.patience import Patient
from duly.engine.equipment import Equipment
from duly.engine.wiring import Engine
from duly.engine.work import Work

log = logging.getLogger("duly.engine")

# Seconds to wait for the last results to be written, and for each of the other parts to end.
LAST_WRITES, LAST_PART = 2.5, 0.5
# The same for a worker that was asked to stop twice.
IN_A_HURRY = 0.25
# Seconds that stopped handlers have to end before the worker is gone.
STOPPING = 0.3


class Drain:
    def __init__(self, engine: Engine, equipment: Equipment, must_hurry: Callable[[], bool]) -> None:
        self._engine = engine
        self._flow = engine.flow
        self._equipment = equipment
        self._must_hurry = must_hurry

    def run(self) -> None:
        engine, flow, companions = self._engine, self._flow, self._equipment.companions
        seconds = self._equipment.settings.drain_seconds
        for companion in companions:
            companion.rest()
        flow.claimer.stop()
        flow.listener.stop()
        engine.news.stop()
        engine.claims.stop()
        give_up = time.monotonic() + seconds
        self._await(lambda: not engine.claims.is_alive(), 1.0)
        self._give_back(flow.pools.unstarted())
        if len(flow.in_flight):
            log.info("stopping: waiting up to %g s for running handlers", seconds)
        self._await(lambda: not len(flow.in_flight), give_up - time.monotonic())
        for companion in companions:
            companion.stop()  # before their items are given to others
        if companions:
            self._await(lambda: not len(flow.in_flight), 1.0)
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
        flow.store.hasten(False)  # the app may go on without this worker

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
            self._flow.settler.finish(work, [Released()] * len(work.items), stop=True)

    def _write_last_results(self, give_up: float) -> None:
        """Wait for the settler. A slow database gets all the time of the drain, one that is away only a moment."""
        settler, loop = self._flow.settler, self._engine.settles
        self._flow.store.hasten()
        self._flow.keeper_store.hasten()
        begun = time.monotonic()

        def is_over() -> bool:
            loop.wake()
            is_away = loop.trouble is not None and time.monotonic() - begun > LAST_WRITES
            return is_away or not len(settler)

        self._await(is_over, max(give_up - begun, 0) + LAST_WRITES)
        if len(settler):
            log.error("stopping with %d results unwritten: the database is away; they will run again", len(settler))

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
