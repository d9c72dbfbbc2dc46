"""All parts of one worker, made in order: each gets what it needs as an argument, and nothing is assigned later.

    store ─notify─▶ listener ─put─▶ inbox ─▶ claimer ─items─▶ pools ─verdicts─▶ settler ─changes─▶ store
                       │              ▲         │               │                │  │
                       │              │         └─leases─▶ in flight ◀──works────┘  │
                       │              └──────────────────── freed calls ────────────┤
                       │                                                            ├─failures─▶ outages ─▶ watch
                       ├─ an item may be cancelled ──▶ keeper                       └─changes──▶ ends ─notify─▶ store
                       ├─ a schedule may have changed ──▶ recurrer
                       └─ a caller waits for an end ──▶ ends

The arrows form circles: the claimer fills pools, pools report to the settler, and the settler reports to the claimer
what a limit has room for. So the things in the middle of the circles are made first: the wake-ups of the loops, the
inbox of the claimer, and what is in flight. Each loop ticks on a thread of its own and sleeps until the time that its
tick returned, or until its wake-up is called:

    claimer   by the inbox, and by pools that have room          recurrer  by the listener
    settler   by verdicts, closed leases and corrections         watch     by outages that start and end
    keeper    by the first lease, and by the listener            starts    by calls that may begin later
    watchdog  by the first lease                                 all       by a database clock that was set
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from duly.core.clock import JUMP
from duly.core.errors import ConfigError
from duly.core.policy.pace import Pace
from duly.engine.calls import Caller
from duly.engine.claimer import Claimer
from duly.engine.coroutines import AsyncPool
from duly.engine.equipment import Equipment
from duly.engine.gate import PaceGate
from duly.engine.historian import Historian
from duly.engine.keeper import Keeper, Watchdog
from duly.engine.loop import Loop, WakeUp
from duly.engine.metering import holds_of, metering_of
from duly.engine.news import ClaimerInbox, Ends, NotificationListener
from duly.engine.outages import Outages
from duly.engine.pools import PoolContext
from duly.engine.processes import ProcessSlot
from duly.engine.pruner import Pruner
from duly.engine.recurrer import Recurrer
from duly.engine.rescuer import LOOK_WITHIN, Detector, Rescuer
from duly.engine.runaways import Runaways
from duly.engine.settler import Settler
from duly.engine.starts import Starts
from duly.engine.threads import ThreadPool, ThreadSlot
from duly.engine.watch import Watch
from duly.engine.work import InFlight, Tasks, Work, nothing
from duly.outbound.http import post_json
from duly.tasks.task import Task

log = logging.getLogger("duly.engine")

# How many sweeps pass between two looks for schedules that no notification announced.
RECUR_EVERY = 6
# With this many unwritten verdicts the database is the bottleneck, and no more is claimed.
BACKLOG = 4_000
# Seconds that a heartbeat waits for its answer at least, however short the time between two is.
BEAT_TIMEOUT = 2.0
CHECK_CLOCK_EVERY = timedelta(seconds=60)
# Slots for duly's own tasks, so that other work cannot block them.
SYSTEM_SLOTS = 2

AnyPool = AsyncPool | ThreadPool


class WakeUps:
    """One for each loop that another part may have to wake."""

    def __init__(self) -> None:
        self.claimer, self.settler, self.keeper, self.watchdog = WakeUp(), WakeUp(), WakeUp(), WakeUp()
        self.recurrer, self.watch, self.starts = WakeUp(), WakeUp(), WakeUp()

    def keepers(self) -> None:
        self.keeper()
        self.watchdog()


class PoolSet:
    """The pools of one worker: which there are, and what is done with all of them together.

    Tasks that are claimed alike share a pool: those with the same kind of handler, batch size, limits and pace. Items
    that may have crashed a worker run in processes of their own, in a pool that claims nothing itself.
    """

    def __init__(self, equipment: Equipment, caller: Caller, context: PoolContext) -> None:
        self._equipment = equipment
        self._caller = caller
        self._gates: dict[Pace, PaceGate] = {}
        tasks = equipment.tasks
        isolated: list[AnyPool] = []
        isolating = context
        if equipment.child_command is not None:
            pool = self._make(tasks, "cpu", 0, False, context)
            isolated, isolating = [pool], replace(context, isolate=pool.add)
        shapes: dict[Any, dict[str, Task[..., Any]]] = {}
        for name, task in tasks.items():
            shape = (task.kind, task.batch or 0, metering_of(task), task.pace, name in equipment.system)
            shapes.setdefault(shape, {})[name] = task
        self.claiming = [
            self._make(
                own, kind, batch, is_system, replace(context if kind == "cpu" else isolating, gate=self._gate(pace))
            )
            for (kind, batch, _, pace, is_system), own in shapes.items()
        ]
        self._all = [*isolated, *self.claiming]

    def _make(self, tasks: Tasks, kind: str, batch: int, is_system: bool, context: PoolContext) -> AnyPool:
        settings, command = self._equipment.settings, self._equipment.child_command
        most = max(settings.claim_most, batch)
        if kind == "async":
            return AsyncPool(tasks, settings.concurrency, most, context, self._caller)
        if kind == "thread":
            size = SYSTEM_SLOTS if is_system else settings.concurrency
            return ThreadPool(tasks, size, most, context, partial(ThreadSlot, self._caller))
        if command is None:
            names = ", ".join(sorted(tasks))
            raise ConfigError(
                f"cpu tasks ({names}) run in processes of their own, which must be able to import this app: bind it"
                ' to a name in a module, outside of functions and of `if __name__ == "__main__"`'
            )
        slots = partial(ProcessSlot, command, self._caller.report)
        return ThreadPool(tasks, settings.cpu_slots, most, context, slots, begins_here=False)

    def _gate(self, pace: Pace | None) -> PaceGate | None:
        """The gate of all tasks with this pace, in whichever pools they run."""
        if pace is None:
            return None
        gate = self._gates.get(pace)
        if gate is None:
            gate = self._gates[pace] = PaceGate(pace, self._equipment.slices)
            self._equipment.telemetry.paced(pace.name, gate.width, gate.throttled)
        return gate

    # -- all of them together

    def gates(self) -> list[PaceGate]:
        return list(self._gates.values())

    def start(self) -> None:
        for pool in self.claiming:
            pool.start()

    def close(self) -> None:
        for pool in self._all:
            pool.close()

    def unstarted(self) -> list[Work]:
        """Take out all works that have not begun, to be released."""
        return [work for pool in self._all for work in pool.unstarted()]

    def stalled(self) -> list[Work]:
        """The works that have begun and cannot go on."""
        return [work for pool in self._all for work in pool.stalled()]

    def stale(self) -> list[Work]:
        """Take out the works that have waited too long for a slot, to be released."""
        return [work for pool in self._all for work in pool.take_stale()]

    def abandon(self, hung: Work) -> list[Work]:
        """Take out the works that wait behind a handler past its deadline, to be released."""
        return [work for pool in self._all if hung.task.name in pool.tasks for work in pool.abandon(hung)]


class Flow:
    """The parts that items pass through, with what they share."""

    def __init__(self, equipment: Equipment, worker: str, wake: WakeUps) -> None:
        settings, telemetry, tasks = equipment.settings, equipment.telemetry, equipment.known
        lease, beat = settings.lease_seconds, settings.beat_seconds
        self.store = telemetry.observe(equipment.store)
        # The keeper has a store of its own, which gives up a silent connection while the leases still last.
        patience = min(settings.store_timeout_seconds, max(beat, BEAT_TIMEOUT))
        self.keeper_store = telemetry.observe(equipment.store.twin(patience))

        # What lies in the middle of the circles.
        self.inbox = ClaimerInbox(equipment.tasks, only=equipment.only, wake=wake.claimer)
        self.in_flight = InFlight(wake_keeper=wake.keepers, wake_settler=wake.settler)
        self.ends = Ends(self.store, counts=equipment.only is not None)
        self.outages = Outages(tasks, wake_settler=wake.settler, wake_watch=wake.watch)
        self.runaways = Runaways(settings.runaways_most, wake_watch=wake.watch)
        telemetry.running_on(self.runaways.by_kind)
        self.starts = Starts(self.store.now, wake=wake.starts)

        # From the end of the flow to its beginning: settle, run, claim, listen.
        has_concurrency_limits = any(limit.per is None for task in equipment.tasks.values() for limit in task.limits)
        self.settler = Settler(
            self.store, tasks, self.in_flight, self.outages, wake=wake.settler, ran=telemetry.ran,
            freed=self.inbox.freed if has_concurrency_limits else nothing, settled=self.ends.settled,
            released=self.inbox.released,
        )  # fmt: skip
        self.keeper = Keeper(self.keeper_store, self.in_flight, lease=lease, beat=beat, wake=wake.keeper)
        caller = Caller(equipment.store, equipment.clock, telemetry, settings, self.keeper.report)
        context = PoolContext(
            in_flight=self.in_flight, finish=self.settler.finish, wake_claimer=wake.claimer, starts=self.starts,
            probe=self.outages.meter, runaways=self.runaways,
        )  # fmt: skip
        self.pools = PoolSet(equipment, caller, context)
        self.claimer = Claimer(
            self.store, self.pools.claiming, self.in_flight, worker,
            lease=lease, poll=settings.poll_seconds, sweep=settings.sweep_seconds, clock=equipment.clock,
            inbox=self.inbox, is_swamped=lambda: len(self.settler) > BACKLOG, starts=self.starts,
        )  # fmt: skip
        self.listener = NotificationListener(
            self.keeper_store, self.inbox, self.ends, check_running=self.keeper.look_soon, wake_recurrer=wake.recurrer
        )


class Engine:
    """The flow, the chores beside it, and the loops that tick them."""

    def __init__(self, equipment: Equipment, worker: str) -> None:
        settings, telemetry = equipment.settings, equipment.telemetry
        self._clock = clock = equipment.clock
        tasks, lease = equipment.known, settings.lease_seconds
        wake = WakeUps()
        self.flow = flow = Flow(equipment, worker, wake)
        telemetry.outages(flow.outages.held_until)

        watchdog = Watchdog(
            flow.in_flight, lease=lease, finish=flow.settler.finish, hung=flow.pools.abandon, stale=flow.pools.stale
        )
        rescuer = Rescuer(
            flow.store, tasks, Detector(lease), sweep=min(settings.sweep_seconds, LOOK_WITHIN * lease),
            worker=worker, in_flight=flow.in_flight, swept=flow.inbox.changed,
        )  # fmt: skip
        recurrer = Recurrer(flow.store, sweep=RECUR_EVERY * settings.sweep_seconds, made=flow.inbox.changed)
        self.watch = Watch(
            flow.store, worker, sorted(tasks.keys() - equipment.system.keys()), settings,
            post=post_json, summary=telemetry.summary, holds=holds_of(tasks), outages=flow.outages,
            runaways=flow.runaways, app_alerts=equipment.alerts, stop_claims=flow.claimer.stop, known=tasks,
        )  # fmt: skip
        self.historian = Historian(flow.store, telemetry, settings, tasks, flow.pools.gates)
        pruner = Pruner(flow.store, settings.keep_seconds, settings.audit_keep_seconds)

        self.claims = Loop("claimer", flow.claimer.tick, clock, wake.claimer)
        self.settles = Loop("settler", flow.settler.tick, clock, wake.settler)
        self.beats = Loop("keeper", flow.keeper.tick, clock, wake.keeper)
        self.news = Loop("news", flow.listener.tick, clock)
        self.chores = [
            Loop("starts", flow.starts.tick, clock, wake.starts),
            Loop("watchdog", watchdog.tick, clock, wake.watchdog),
            Loop("rescuer", rescuer.tick, clock),
            Loop("recurrer", recurrer.tick, clock, wake.recurrer),
            Loop("watch", self.watch.tick, clock, wake.watch),
            Loop("pruner", pruner.tick, clock),
            Loop("history", self.historian.tick, clock),
            Loop("clock", self.check_clock, clock),
        ]

    def check_clock(self, now: datetime) -> datetime:
        """Measure the database's clock. If it was set, loops that sleep until a time of the old clock are woken."""
        moved = self._clock.measure()
        if abs(moved) > JUMP:
            log.warning("the database's clock moved by %.1f s", moved)
            for loop in (self.claims, self.settles, self.beats, *self.chores):
                loop.wake()
        return self._clock.now() + CHECK_CLOCK_EVERY
