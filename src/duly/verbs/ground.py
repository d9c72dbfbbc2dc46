"""What verbs are given: the few things of an app that they need, and not the app itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duly.core.clock import Clock
from duly.core.decide import Rules
from duly.core.settings import JobSettings
from duly.core.shown import Measure
from duly.store.contract import Store
from duly.store.waits import WAITS
from duly.tasks.task import Task
from duly.verbs.masks import Masks


@dataclass(frozen=True, kw_only=True)
class Ground:
    # Functions, because the store and the clock are made when they are first used.
    open_store: Callable[[], Store]
    open_clock: Callable[[], Clock]
    # The same store, with its claims and settles counted for the metrics.
    observed: Callable[[], Store]
    # A task that is registered here, by its name; others raise UnknownTask.
    task_named: Callable[[str], Task[..., Any]]
    # The rules by which items of a task are decided; also of a task that is not registered here.
    rules_of: Callable[[str], Rules]
    # Whether a task that is registered here puts its items into this queue.
    is_task_queue: Callable[[str], bool]
    # Forget the known depths of queues, because a queue was paused or resumed.
    forget_depths: Callable[[], None]
    # Something about jobs was measured, of the job or list of this name: seconds, or a number of rows.
    measured: Callable[[Measure, str, float], None]
    # Hides secret values in the audit log.
    masks: Masks
    # How long short steps of history are kept, in seconds.
    history_seconds: float
    # How much jobs may be.
    job_settings: JobSettings

    @property
    def store(self) -> Store:
        return self.open_store()

    @property
    def clock(self) -> Clock:
        return self.open_clock()

    def waited(self) -> float:
        """How many seconds the current thread has waited for connections to the database."""
        return WAITS.own

    def now(self) -> datetime:
        return self.clock.now()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[Any]:
        """The transaction of this connection; without one, a new transaction."""
        if connection is not None:
            yield connection
        else:
            with self.store.transaction() as own:
                yield own
