"""What verbs stand on: the few things of an app that they need, and never the app itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duly.store.contract import Store


@dataclass(frozen=True, kw_only=True)
class Ground:
    # The store and the clock are made when they are first used, so they are asked for each time.
    open_store: Callable[[], Store]
    now: Callable[[], datetime]
    # Whether a task that is registered here puts its items into this queue.
    is_task_queue: Callable[[str], bool]
    # Depths of queues are remembered for a moment; whoever opens or shuts a queue has them looked up anew.
    forget_depths: Callable[[], None]

    @property
    def store(self) -> Store:
        return self.open_store()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[Any]:
        """The transaction that this connection is in; without one, a transaction of its own."""
        if connection is not None:
            yield connection
        else:
            with self.store.transaction() as own:
                yield own
