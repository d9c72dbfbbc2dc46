"""What verbs stand on: the few things of an app that they need, and never the app itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duly.core.clock import Clock
from duly.core.decide import Rules
from duly.core.settings import JobSettings
from duly.store.contract import Store
from duly.tasks.task import Task
from duly.verbs.masks import Masks


@dataclass(frozen=True, kw_only=True)
class Ground:
    # The store and the clock are made when they are first used, so they are asked for each time.
    open_store: Callable[[], Store]
    open_clock: Callable[[], Clock]
    # The same store, with what is done there counted for the metrics.
    observed: Callable[[], Store]
    # A task that is registered here, by its name; others raise UnknownTask.
    task_named: Callable[[str], Task[..., Any]]
    # By which rules items of a task are decided about: also of one that is not registered here.
    rules_of: Callable[[str], Rules]
    # Whether a task that is registered here puts its items into this queue.
    is_task_queue: Callable[[str], bool]
    # Depths of queues are remembered for a moment; whoever opens or shuts a queue has them looked up anew.
    forget_depths: Callable[[], None]
    # What is hidden in the audit log.
    masks: Masks
    # How much jobs may be.
    job_settings: JobSettings

    @property
    def store(self) -> Store:
        return self.open_store()

    @property
    def clock(self) -> Clock:
        return self.open_clock()

    def now(self) -> datetime:
        return self.clock.now()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[Any]:
        """The transaction that this connection is in; without one, a transaction of its own."""
        if connection is not None:
            yield connection
        else:
            with self.store.transaction() as own:
                yield own
