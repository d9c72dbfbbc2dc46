"""What verbs are given: the few things of an app that they need, and not the app itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.core.clock import Clock
from duly.core.decide import Rules
from duly.core.settings import JobSettings
from duly.core.shown import Depth, Measure
from duly.store.contract import Store
from duly.store.waits import WAITS
from duly.tasks.task import Task
from duly.verbs.masks import Masks
from duly.verbs.read import Read

if TYPE_CHECKING:
    from duly.verbs import Verbs
    from duly.verbs.audit import Audit
    from duly.verbs.who import Principal

NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class VerbContext:
    # Functions, because the store and the clock are created on first use.
    open_store: Callable[[], Store]
    open_clock: Callable[[], Clock]
    # The same store, with its claims and settles counted for the metrics.
    observed: Callable[[], Store]
    # A task that is registered here, by name. Other names raise UnknownTask.
    task_named: Callable[[str], Task[..., Any]]
    # The rules that decide the items of a task, also of a task that is not registered here.
    rules_of: Callable[[str], Rules]
    # Whether a task that is registered here puts its items into this queue.
    is_task_queue: Callable[[str], bool]
    # Drop the cached depths of queues, because a queue was paused or resumed.
    forget_depths: Callable[[], None]
    # Report a measurement about jobs, for the job or list of this name: seconds, or a number of rows.
    measured: Callable[[Measure, str, float], None]
    # Hides secret values in the audit log.
    masks: Masks
    # The depths of the queues, as last read.
    depths: Callable[[], Sequence[Depth]]
    # The tasks that are registered here, by name.
    tasks: Callable[[], Mapping[str, Task[..., Any]]]
    # Seconds after which an item is late, and after which a silent worker is considered gone.
    late_seconds: float
    silence_seconds: float
    # Seconds for which short steps of history are kept.
    history_seconds: float
    # Limits on jobs.
    job_settings: JobSettings

    @property
    def store(self) -> Store:
        return self.open_store()

    @property
    def read(self) -> Read:
        return Read(self.open_store(), self.open_clock())

    def waited(self) -> float:
        """Seconds that the current thread has waited for connections to the database."""
        return WAITS.own

    def now(self) -> datetime:
        return self.open_clock().now()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[Any]:
        """The transaction of this connection; without one, a new transaction."""
        if connection is not None:
            yield connection
        else:
            with self.store.transaction() as own:
                yield own


class VerbGroup:
    """The verbs of one noun. The groups of other nouns are in `_peers`."""

    def __init__(self, verbs: Verbs) -> None:
        self._peers = verbs
        self._context = verbs.context

    @property
    def _store(self) -> Store:
        return self._context.store

    @property
    def _read(self) -> Read:
        return self._context.read

    @property
    def _audit(self) -> Audit:
        return self._peers.audit

    def _now(self) -> datetime:
        return self._context.now()

    @contextmanager
    def _noted(
        self, who: Principal, action: str, subject: str, details: Mapping[str, Any] = NONE, connection: Any = None
    ) -> Iterator[Any]:
        """A transaction, or a part of that of `connection`, which ends with this line of the audit log."""
        with self._context.joining(connection) as connection:
            yield connection
            self._audit.note(who, action, subject, details, connection)
