"""The pools of one worker, and operations on all of them together.

Tasks that are claimed alike share a pool: those with the same kind of handler, batch size, limits and pace. Items that
may have crashed a worker run in processes of their own, in a pool that claims nothing itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from duly.core.errors import ConfigError
from duly.core.policy.pace import Pace
from duly.engine.calls import Caller
from duly.engine.coroutines import AsyncPool
from duly.engine.equipment import Equipment
from duly.engine.gate import PaceGate
from duly.engine.metering import metering_of
from duly.engine.pools import PoolContext
from duly.engine.processes import ProcessSlot
from duly.engine.threads import ThreadPool, ThreadSlot
from duly.engine.work import Tasks, Work
from duly.tasks.task import Task

# Slots for duly's own tasks, so that other work cannot block them.
SYSTEM_SLOTS = 2

AnyPool = AsyncPool | ThreadPool


class PoolSet:
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
        return ThreadPool(tasks, settings.cpu_slots, most, context, partial(ProcessSlot, command, self._caller.report))

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

    def stale(self) -> list[Work]:
        """Take out the works that have waited too long for a slot, to be released."""
        return [work for pool in self._all for work in pool.take_stale()]

    def abandon(self, hung: Work) -> list[Work]:
        """Take out the works that wait behind a handler past its deadline, to be released."""
        return [work for pool in self._all if hung.task.name in pool.tasks for work in pool.abandon(hung)]

    def ailing(self) -> str | None:
        """What is wrong with one of them, in a few words; None when all work."""
        return next((trouble for pool in self._all if (trouble := pool.ailing())), None)
