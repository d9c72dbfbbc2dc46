"""Holds back what depends on a source that is down, blames nobody for it, and goes on when it is back.

That a source is down is an alert, which is a row: it outlives this process, all workers learn of it within half a
minute, and one of them tells of it. When the source is back, the row stands until what had to wait is done; then the
watch deletes it. Probes are counted by a meter, which all workers share.

What failed before anybody could know is taken back as far as this process remembers it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct

from duly.core.decide import excuse
from duly.core.model import Change, Done, Failed, Fingerprint, Item, Meter, NotFound, Outcome
from duly.core.policy.outage import Failure, Source, cause_of, common_cause
from duly.tasks.task import Task

# An item, how its try ended, and what that makes of it.
End = tuple[Item, Outcome, Change]

PREFIX = "source:"
# How many failures since the last success are remembered, for each try that a source needs to be down.
REMEMBERED = 20
FOREVER = datetime.max.replace(tzinfo=UTC)


class News(Struct, frozen=True):
    """What is to be written about a source: that it is down, or that it is back."""

    message: str
    details: dict[str, Any]
    is_back: bool = False


class Blamed(NamedTuple):
    """An item as it was in its first failed try since the last success, and what its last failure makes of it."""

    item: Item
    change: Change
    cause: str


class Streak:
    """The failures of one source since its last success."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._most = REMEMBERED * source.tries
        self._failures: deque[Failure] = deque(maxlen=self._most)
        self._blamed: dict[int, Blamed] = {}
        self._calls = 0

    def add(self, failed: Sequence[tuple[Item, Failed, Change]]) -> str | None:
        """Take note of the failures of one call; returns the cause for which nearly everything fails, if there is."""
        self._calls += 1
        for item, verdict, change in failed:
            subject = item.id if item.schedule_id is None else -item.schedule_id
            cause = cause_of(verdict)
            told = [each for each in self._failures if each.subject == subject]
            is_new = not item.failures_in_a_row or any(each.is_new for each in told)
            is_last = change.state == "failed"
            self._failures.append(Failure(subject, self._calls, cause, is_new=is_new, is_last=is_last))
            before = self._blamed.pop(item.id, None)
            first = item if before is None or before.cause != cause else before.item
            self._blamed[item.id] = Blamed(first, change, cause)
        while len(self._blamed) > self._most:
            del self._blamed[next(iter(self._blamed))]
        return common_cause(self._source, self._failures)

    def blamed_for(self, cause: str) -> list[Blamed]:
        return [each for each in self._blamed.values() if each.cause == cause]


class Outages:
    """What this process knows of the sources of its tasks. It is asked and told from several threads."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]] | None = None) -> None:
        self._tasks = {} if tasks is None else tasks
        self._lock = threading.Lock()
        self._streaks: dict[Source, Streak] = {}
        self._down: dict[str, str] = {}  # the sources that are down, each with its cause
        self._back_at: dict[str, datetime] = {}  # when those that had been down were back
        self._news: dict[str, News] = {}  # what the watch has not written yet
        self._owed: deque[tuple[Source, Blamed]] = deque()  # failures that are to be taken back
        # Items whose failures were taken back, as they were before: some may have been running again by then.
        self._innocent: dict[str, dict[int, Item]] = {}
        self.tells: Callable[[], None] = lambda: None  # there is something that should be written at once
        self.owes: Callable[[], None] = lambda: None  # there are failures to be taken back

    @property
    def owed(self) -> int:
        """How many failures are to be taken back."""
        return len(self._owed)

    # -- what claims ask

    def is_down(self, source: Source) -> bool:
        return source.name in self._down

    def meter(self, source: Source) -> tuple[Meter, ...]:
        """What a claim needs room on: while the source is down, for one call at a time."""
        return (Meter(f"{PREFIX}{source.name}", 1, per=source.probe),) if self.is_down(source) else ()

    def held_until(self, source: Source) -> datetime | None:
        """Until when what depends on this source had to wait, as far as it is known here."""
        return FOREVER if self.is_down(source) else self._back_at.get(source.name)

    # -- what ends of tries mean

    def judge(self, source: Source, ends: Sequence[End], now: datetime) -> list[Change]:
        """The changes that the ends of one call make. While the source is down, failures are given back instead."""
        with self._lock:
            failed = [(item, verdict, change) for item, verdict, change in ends if isinstance(verdict, Failed)]
            changes = [change for _, _, change in ends]
            if any(isinstance(verdict, Done | Fingerprint | NotFound) for _, verdict, _ in ends):
                self._succeeded(source, now)
            elif source.name in self._down:
                if failed and source.name in self._news:
                    self.tells()  # a probe failed too, so it is more than a hiccup
                return self._given_back(source, ends, now)
            elif telling := [each for each in failed if source.is_blamed(each[1])]:
                streak = self._streaks.get(source) or self._streaks.setdefault(source, Streak(source))
                if (cause := streak.add(telling)) is not None:
                    self._is_down(source, cause, telling[-1][1].error)
            return changes

    def _given_back(self, source: Source, ends: Sequence[End], now: datetime) -> list[Change]:
        due_at, first = now + timedelta(seconds=source.probe), self._innocent.get(source.name, {})
        return [
            excuse(first.get(item.id, item), change, due_at, is_written=False)
            if isinstance(verdict, Failed)
            else change
            for item, verdict, change in ends
        ]

    def succeeded(self, source: Source, now: datetime) -> None:
        """A try succeeded, whose change was written already."""
        with self._lock:
            self._succeeded(source, now)

    def take_back(self, unwritten: list[Change], now: datetime) -> None:
        """Take back the failures for which nobody is to blame: among these changes, or by changes of their own.

        What was given up or deactivated by then, and is written, stays so.
        """
        if not self._owed:
            return
        places = {(change.id, change.fence): place for place, change in enumerate(unwritten)}
        while self._owed:
            source, (item, blamed, _) = self._owed.popleft()
            place = places.get((blamed.id, blamed.fence))
            change = excuse(item, blamed, now + timedelta(seconds=source.probe), is_written=place is None)
            if place is not None:
                unwritten[place] = change
            elif blamed.state == "waiting":
                unwritten.append(change)

    def _succeeded(self, source: Source, now: datetime) -> None:
        self._streaks.pop(source, None)
        if source.name in self._down:
            self._is_back(source, now)

    def _is_down(self, source: Source, cause: str, error: str) -> None:
        words = error.partition("\n")[0][:200]
        message = f"{source.name} is down: nothing but {words}; asked again every {source.probe:g} s, nobody is blamed"
        self._news[source.name] = News(message, {**self._about(source), "cause": cause})
        self._down[source.name] = cause
        self._take_back(source, cause)

    def _is_back(self, source: Source, now: datetime) -> None:
        del self._down[source.name]
        self._innocent.pop(source.name, None)
        self._back_at[source.name] = now
        # If nobody was told yet, there is nothing to tell.
        if self._news.pop(source.name, None) is None:
            message = f"{source.name} is back; what had to wait for it is being made up"
            self._news[source.name] = News(message, {**self._about(source), "backAt": now.isoformat()}, is_back=True)
            self.tells()

    def _about(self, source: Source) -> dict[str, Any]:
        """What depends on this source, for workers and statements that do not know the tasks."""
        own = [task for task in self._tasks.values() if task.source is not None and task.source.name == source.name]
        return {
            "source": source.name,
            "tasks": sorted(task.name for task in own),
            "queues": sorted({task.queue for task in own}),
        }

    # -- what the watch writes and reads

    def news(self) -> list[tuple[str, News]]:
        """What is to be written, by the names of alerts."""
        with self._lock:
            return [(f"{PREFIX}{name}", news) for name, news in self._news.items()]

    def written(self, alert: str, news: News) -> None:
        """This was written; if there was other news meanwhile, that is still to be."""
        name = alert.removeprefix(PREFIX)
        with self._lock:
            if self._news.get(name) is news:
                del self._news[name]

    def learn(self, alerts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what other workers found out, from the details of the alerts that stand."""
        told = {name.removeprefix(PREFIX): details for name, details in alerts.items() if name.startswith(PREFIX)}
        with self._lock:
            for name in (told.keys() | self._down.keys()) - self._news.keys():
                details = told.get(name, {})
                if name in told and "backAt" not in details:
                    self._learn_down(name, details.get("cause", ""))
                else:
                    self._down.pop(name, None)
                    self._innocent.pop(name, None)
                    if "backAt" in details:
                        self._back_at[name] = datetime.fromisoformat(details["backAt"])

    def _learn_down(self, name: str, cause: str) -> None:
        if name not in self._down:
            self._down[name] = cause
            for source in [source for source in self._streaks if source.name == name]:
                self._take_back(source, cause)
            if self._owed:
                self.owes()

    def _take_back(self, source: Source, cause: str) -> None:
        blamed = self._streaks.pop(source).blamed_for(cause)
        self._innocent.setdefault(source.name, {}).update({each.item.id: each.item for each in blamed})
        self._owed.extend((source, each) for each in blamed)
