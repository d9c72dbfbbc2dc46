"""Queues: pause and resume them."""

from __future__ import annotations

from typing import Any

from duly.tasks.checks import checked_name
from duly.verbs.context import VerbGroup
from duly.verbs.who import Principal


class Queues(VerbGroup):
    def pause(self, who: Principal, queue: str, connection: Any = None) -> str | None:
        """Start nothing more of this queue until it is resumed; what runs goes on.

        Returns a note when nothing has this name yet: it is paused all the same, for what comes.
        """
        name, store = checked_name("queue", queue), self._store
        with self._context.joining(connection) as connection:
            store.pause(name, self._now(), connection)
            self._audit.note(who, "queue.paused", f"queue:{name}", {}, connection)
            is_there = self._context.is_task_queue(name) or store.read("is_queue", {"queue": name}, connection)[0][0]
        self._context.forget_depths()
        return None if is_there else f"nothing has the name {name} yet: what comes under it will wait"

    def resume(self, who: Principal, queue: str, connection: Any = None) -> None:
        """Open a paused queue again."""
        name = checked_name("queue", queue)
        with self._context.joining(connection) as connection:
            self._store.resume(name, connection)
            self._audit.note(who, "queue.resumed", f"queue:{name}", {}, connection)
        self._context.forget_depths()
