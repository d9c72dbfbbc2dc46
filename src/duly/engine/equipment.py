"""What a worker is given: the few things of an app that it needs, and not the app itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from duly.core.clock import Clock
from duly.core.model import Item, Line
from duly.core.policy.adapt import SliceBounds
from duly.core.policy.outage import Source
from duly.core.settings import Settings
from duly.core.shown import Measured, NewAlert
from duly.store.contract import Store
from duly.store.migrate import Apps
from duly.tasks.task import Task

# Find the alerts of plug-ins, by the names of these.
AlertFinders = Mapping[str, Callable[[], Iterable[NewAlert]]]


class Observer(Protocol):
    """What a worker reports of its work, for metrics, logs and spans."""

    def observe(self, store: Store) -> Store:
        """The same store, with its claims and settles counted."""

    def is_tracing(self) -> bool:
        """Whether calls of handlers have spans."""

    def speaks_of(self, task: Task[..., Any]) -> bool:
        """Whether each try of this task is logged."""

    def running(self, task: Task[..., Any], items: list[Item], traced: bool) -> AbstractContextManager[None]:
        """A context around one call of a handler."""

    def caught(self, item: Item, error: BaseException) -> None:
        """What ended the running try of this item."""

    def ran(self, durations: list[tuple[str, float]]) -> None:
        """How long handlers of these tasks took, in seconds."""

    def paced(self, provider: str, calls: Callable[[], int], throttled: Callable[[], float]) -> None:
        """Functions that return how many concurrent calls a provider gets, and what share of them it refused lately."""

    def outages(self, held_until: Callable[[Source], datetime | None]) -> None:
        """A function that returns until when items had to wait for a source that was down: they are not late."""

    def lately(self) -> list[Measured]:
        """What happened to each task since the last call."""

    def ended_lately(self) -> Counter[tuple[int, str]]:
        """How many rows of each job, and of which task, have ended since the last call."""

    def summary(self) -> dict[str, Any] | None:
        """What happened since the last call; None when nothing did."""


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
    observer: Observer
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
