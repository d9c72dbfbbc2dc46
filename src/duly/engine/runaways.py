"""Handlers that run on although they were stopped: they are counted, reported and bounded.

A thread cannot be stopped, and a coroutine may ignore its cancellation. Such a handler loses its slot to a new one, so
that others can run, until there are too many of them. From then on they keep their slots, so that a process never has
more than that many besides its slots. Only a new process ends them: `duly worker` replaces itself, and a worker inside
another program reports that it cannot.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from duly.engine.work import Wake, Work, nothing

log = logging.getLogger("duly.engine")

BLOCKED = "an async handler blocks the event loop past its deadline"
EMBEDDED = "this worker does not own its process and cannot replace itself; restart that program"
REPLACED = "this worker finishes its other work and starts anew"


class Runaways:
    """The handlers of one worker that run on. `most` of them may; 0: any number. It is used by several threads."""

    def __init__(self, most: int = 0, wake_watch: Wake = nothing) -> None:
        self.most = most
        self.is_replaced = False  # whether the worker ends, and starts anew, once there are too many
        self._works: set[Work] = set()
        self._blocked: set[object] = set()
        self._lock = threading.Lock()
        self._wake_watch = wake_watch

    def __len__(self) -> int:
        return len(self._works) + len(self._blocked)

    def __contains__(self, work: Work) -> bool:
        return work in self._works

    def has_room(self, more: int = 1) -> bool:
        """Whether this many more handlers may run on beside new ones."""
        return not self.most or len(self._works) + more <= self.most

    def add(self, work: Work) -> None:
        with self._lock:
            self._works.add(work)
            count = len(self._works)
        log.warning(
            "%s %s was stopped but runs on; %d such handlers", work.task.label, work.items[0].id, count
        )  # fmt: skip
        if count == self.most:
            self._report()

    def remove(self, work: Work) -> None:
        with self._lock:
            self._works.discard(work)

    def block(self, pool: object) -> None:
        """A handler blocks the event loop of this pool, so none of its other handlers can run."""
        if pool not in self._blocked:
            self._blocked.add(pool)
            self._report()

    def unblock(self, pool: object) -> None:
        self._blocked.discard(pool)

    def by_kind(self) -> dict[str, int]:
        """How many of each kind of handler run on."""
        with self._lock:
            counts = Counter("async" if work.task.is_async else "thread" for work in self._works)
        counts["async"] += len(self._blocked)
        return {kind: counts[kind] for kind in ("async", "thread")}

    def trouble(self) -> str | None:
        """Why this process should be replaced, in a few words; None while it need not be."""
        if self._blocked:
            return BLOCKED
        if self.most and len(self._works) >= self.most:
            counts = ", ".join(f"{count} {kind}" for kind, count in self.by_kind().items() if count)
            return f"handlers that run on after they were stopped: {counts}"
        return None

    def _report(self) -> None:
        log.error("%s; %s", self.trouble(), REPLACED if self.is_replaced else EMBEDDED)
        self._wake_watch()
