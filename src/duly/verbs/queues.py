"""Queues and limits: people pause queues and change limits while everything runs."""

from __future__ import annotations

from typing import Any

from duly.core.errors import InputError
from duly.core.policy.limits import parse_limit
from duly.tasks.checks import checked_name
from duly.verbs.context import Principal, VerbGroup


class Queues(VerbGroup):
    def pause(self, who: Principal, queue: str, connection: Any = None) -> str | None:
        """Start no more items of this queue until it is resumed; running items continue.

        Returns a note if there is no such queue yet: it is paused anyway, for later items.
        """
        name, store = checked_name("queue", queue), self._store
        with self._noted(who, "queue.paused", f"queue:{name}", connection=connection) as connection:
            store.pause(name, self._now(), connection)
            is_of_task = any(task.queue == name for task in self._context.tasks().values())
            is_there = is_of_task or store.read("is_queue", {"queue": name}, connection)[0][0]
        self._context.depths.forget()
        return None if is_there else f"there is no queue {name} yet: items put into it will wait"

    def resume(self, who: Principal, queue: str, connection: Any = None) -> None:
        """Open a paused queue again."""
        name = checked_name("queue", queue)
        with self._noted(who, "queue.resumed", f"queue:{name}", connection=connection) as connection:
            self._store.resume(name, connection)
        self._context.depths.forget()

    def set_limit(self, who: Principal, name: str, limit: str | None, connection: Any = None) -> None:
        """Allow this much from now on, over the whole fleet: `2/1m`, `4`, or None for the value in code."""
        try:
            most, per = (None, None) if limit is None else parse_limit(limit)
        except ValueError as error:
            raise InputError("limit", str(error)) from None
        given = {"name": checked_name("limit", name), "most": most, "per": per}
        with self._noted(who, "limit.set", f"limit:{name}", {"limit": limit}, connection) as connection:
            self._store.write("set_meter", given, connection)
