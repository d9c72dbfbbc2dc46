"""What a worker is equipped with: the few things of an app that it needs, and never the app itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from duly.core.clock import Clock
from duly.core.model import Item
from duly.core.settings import Settings
from duly.store.contract import Store
from duly.tasks.task import Task


class Observer(Protocol):
    """Who is told what happens here, for metrics, logs and spans."""

    def observe(self, store: Store) -> Store:
        """The same store, with its claims and settles told."""
        ...

    def is_tracing(self) -> bool:
        """Whether calls of handlers have spans."""
        ...

    def speaks_of(self, task: Task[..., Any]) -> bool:
        """Whether each try of this task has its line in the logs."""
        ...

    def running(self, task: Task[..., Any], items: list[Item], traced: bool) -> AbstractContextManager[None]:
        """Around one call of a handler."""
        ...

    def ran(self, durations: list[tuple[str, float]]) -> None:
        """How long handlers of these tasks took, in seconds."""
        ...

    def summary(self) -> dict[str, Any] | None:
        """What happened since it was last asked; None when nothing did."""
        ...


class Companion(Protocol):
    """Something that lives and dies with a worker of its task, such as a bridge to a broker."""

    @property
    def task(self) -> Task[..., Any]: ...

    def start(self) -> None: ...

    def rest(self) -> None:
        """The worker takes no more; neither must this."""
        ...

    def stop(self) -> None:
        """Do nothing more: what is still under way is about to be given to others."""
        ...

    def ailing(self) -> str | None:
        """What keeps it from its work, in a few words: this process is not ready then, though it may be well."""
        ...


@dataclass(frozen=True, kw_only=True)
class Equipment:
    settings: Settings
    clock: Clock
    store: Store
    observer: Observer
    # The tasks that this worker runs, by name: those that it was asked for, and those of duly's own.
    tasks: Mapping[str, Task[..., Any]]
    # Tasks of duly's own. They have slots that no one else's work can take.
    system: Mapping[str, Task[..., Any]]
    # All tasks that are registered here, and duly's own: what became of their items can be decided here.
    known: Mapping[str, Task[..., Any]]
    # What lives and dies with this worker.
    companions: Sequence[Companion]
    # Writes the schedules that the code declares.
    reconcile: Callable[[], None]
    # How a child process that has the same tasks is started; None when no other process can import them.
    child_command: Sequence[str] | None
