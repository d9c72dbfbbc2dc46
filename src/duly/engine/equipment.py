"""The parts of an app that a worker receives, instead of the app itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from duly.core.clock import Clock
from duly.core.model import Line
from duly.core.policy.adapt import SliceBounds
from duly.core.settings import Settings
from duly.core.shown import NewAlert
from duly.store.contract import Store
from duly.store.migrate import Apps
from duly.tasks.task import Task
from duly.telemetry.telemetry import Telemetry

# Find the alerts of plug-ins, by the names of these.
AlertFinders = Mapping[str, Callable[[], Iterable[NewAlert]]]


class Companion(Protocol):
    """Something that starts and stops with a worker that has its task, such as a consumer of a broker's queue."""

    @property
    def task(self) -> Task[..., Any]: ...

    def start(self) -> None: ...

    def rest(self) -> None:
        """Take nothing more in, because the worker is about to stop."""

    def stop(self) -> None:
        """Stop altogether, because what is still running is about to be given to other workers."""

    def ailing(self) -> str | None:
        """What keeps it from working, in a few words; as long as there is something, this process is not ready."""


@dataclass(frozen=True, kw_only=True)
class Equipment:
    settings: Settings
    clock: Clock
    store: Store
    # The folders with the migrations of the plug-ins whose tables have to be there.
    app_migrations: Apps
    alerts: AlertFinders
    telemetry: Telemetry
    # The tasks that this worker runs, by name: those that it was started for, and duly's own.
    tasks: Mapping[str, Task[..., Any]]
    # duly's own tasks. They have slots of their own, so that other work cannot block them.
    system: Mapping[str, Task[..., Any]]
    # All tasks that are registered here, and duly's own: lost items of these can be decided by this worker.
    known: Mapping[str, Task[..., Any]]
    # How much is claimed for a stretch of time, for tasks with a pace.
    slices: SliceBounds
    # What starts and stops with this worker.
    companions: Sequence[Companion]
    # Writes the schedules that the code declares.
    reconcile: Callable[[], None]
    # How a child process that has the same tasks is started; None when no other process can import them.
    child_command: Sequence[str] | None
    # The line that it works off, if it is not there for all.
    only: Line | None = None
