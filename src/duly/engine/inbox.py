"""What other threads report to the claimer. It is made before the claimer, for the parts that report.

A put makes a new head, the end of a call makes room under a limit, and anything else is a reason to look around.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from duly.core.model import Head, Item, Line
from duly.engine.work import Wake, nothing


class ClaimerInbox:
    """`wake` is called after each report that concerns the tasks of this worker, or its only line if it has one."""

    def __init__(self, tasks: Collection[str], *, only: Line | None = None, wake: Wake = nothing) -> None:
        self._tasks = tasks
        self._only = only
        self._wake = wake
        self.reports: deque[Head | Line] = deque()
        self.look = True  # whether something changed, so that the claimer has to survey the lines again

    def accepts(self, line: Line) -> bool:
        return line.task in self._tasks and self._only in (None, line)

    def put(self, head: Head) -> None:
        """Report a put that made a new head."""
        if self.accepts(head.line):
            self.reports.append(head)
            self._wake()

    def freed(self, items: Iterable[Item]) -> None:
        """Report that calls of these items have ended, which makes room under limits on concurrent calls."""
        self.reports.extend(line for line in {item.line for item in items} if line.task in self._tasks)
        self._wake()

    def changed(self) -> None:
        """Report that something else changed, so that the lines are surveyed soon."""
        self.look = True
        self._wake()
