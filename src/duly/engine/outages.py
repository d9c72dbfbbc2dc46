"""Holds back what depends on a source that is down, blames nobody for it, and goes on when it is back.

That a source is down is an alert, which is a row: it outlives this process, all workers learn of it within half a
minute, and one of them tells of it. When the source is back, the row stands until what had to wait is done; then the
watch deletes it. Probes are counted by a meter, which all workers share.

What failed before anybody could know is taken back as far as this process remembers it. While the source is down, only
failures that its cause explains are given back; all others are the items' own.

A worker that has no way to the source must not hold back a fleet that has one. So whoever has just had a success of its
own does not believe the row before it has seen a failure, and if it has another success, it writes that the source is
back. Whoever was contradicted in that way needs twice as many failures the next time, until it has had a success too.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from duly.core.decide import excuse
from duly.core.model import Change, Done, Failed, Fingerprint, Item, Meter, NotFound, Outcome
from duly.core.policy.outage import (
    AWAY,
    MANIFOLD,
    MERCY,
    MIXED,
    SEVERAL,
    Failure,
    Source,
    cause_of,
    common_cause,
    explains,
    pause,
)
from duly.engine.work import nothing
from duly.tasks.task import Task

log = logging.getLogger("duly.engine")

# An item, how its try ended, and what that makes of it.
End = tuple[Item, Outcome, Change]

PREFIX = "source:"
# How many failures since the last success are remembered, for each try that a source needs to be down.
REMEMBERED = 20
# How many items that were excused are remembered, for each source that is down.
EXCUSED = 2_000
# How many times as many failures it takes at most, after other workers have contradicted this one.
DOUBT = 64
# How often the log tells that a source is still down.
TOLD_EVERY = timedelta(hours=1)
GIVEN_BACK = "throttled"  # the outcome of tries that are nobody's failure
FOREVER = datetime.max.replace(tzinfo=UTC)


class News(Struct, frozen=True):
    """What is to be written about a source: that it is down, or that it is back."""

    message: str
    details: dict[str, Any]
    is_back: bool = False


class Blamed(NamedTuple):
    """An item whose failures may be the source's, and what its last failure makes of it."""

    item: Item  # as it was in its first try that failed for this cause since the last success
    change: Change
    cause: str
    first: Item  # as it was in its first failed try since the last success


class Streak:
    """The failures of one source since its last success."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._calls: deque[list[Failure]] = deque()
        self._number = 0  # of the last call
        self._size = 0  # how many failures are remembered
        self._largest = 0  # how many of them there were in one call
        self._new: Counter[int] = Counter()  # how many of each subject that is not known for failures of its own
        self._blamed: dict[int, Blamed] = {}

    def add(
        self, failed: Sequence[tuple[Item, Failed, Change]], doubt: int = 1, *, is_young: bool = False
    ) -> str | None:
        """Take note of the failures of one call; returns the cause for which nearly everything fails, if there is.

        If this process is so young that it has not seen the source answer, it cannot know whether it was well when an
        item failed before.
        """
        self._number += 1
        call = []
        for item, verdict, change in failed:
            subject = item.id if item.schedule_id is None else -item.schedule_id
            cause = cause_of(verdict)
            is_new = is_young or not item.failures_in_a_row or subject in self._new
            call.append(Failure(subject, self._number, cause, is_new=is_new, is_last=change.state == "failed"))
            self._new.update([subject] if is_new else [])
            before, bare = self._blamed.pop(item.id, None), _bare(item)
            since = bare if before is None or before.cause != cause else before.item
            self._blamed[item.id] = Blamed(since, change, cause, bare if before is None else before.first)
        self._calls.append(call)
        self._size += len(call)
        self._largest = max(self._largest, len(call))
        self._forget(doubt)
        return common_cause(self.source, [failure for each in self._calls for failure in each], doubt)

    def _forget(self, doubt: int) -> None:
        """Forget the oldest calls, but never so many that the rest would not be enough for any finding."""
        most = max(self.source.tries * max(REMEMBERED, (MANIFOLD + 1) * doubt), SEVERAL * self._largest)
        while self._size > most:
            gone = self._calls.popleft()
            self._size -= len(gone)
            self._new -= Counter(failure.subject for failure in gone if failure.is_new)
        while len(self._blamed) > most:
            del self._blamed[next(iter(self._blamed))]

    def blamed_for(self, outage: str) -> list[Blamed]:
        """Those whom this outage explains."""
        found = [each for each in self._blamed.values() if explains(outage, each.cause)]
        return [each._replace(item=each.first) for each in found] if outage == MIXED else found


class Excused(NamedTuple):
    """How often an item was excused in this outage; and if it waits since, as what it was, and what it became."""

    times: int = 0
    item: Item | None = None
    change: Change | None = None


class Owed(NamedTuple):
    """A change that is to be made to an item: it is to wait, so many seconds from when that is written."""

    item: Item
    change: Change  # what is, or is about to be, written of it
    seconds: float


class Outage:
    """What this process knows of a source that is down."""

    def __init__(self, cause: str, *, is_ours: bool) -> None:
        self.cause = cause
        self.is_ours = is_ours  # it was found out here
        self.told_at: datetime | None = None  # when the log told last that a probe failed
        # Items whose failures were taken back, as they were before: some may have been running again by then.
        self.innocent: dict[int, Item] = {}
        self._excused: dict[int, Excused] = {}

    def give_back(self, source: Source, item: Item, change: Change, now: datetime) -> Change:
        """The change that gives this item back; or the one that blames it, if it was excused too often."""
        times = self._excused.get(item.id, Excused()).times
        if self.cause != AWAY and times >= MERCY:
            return self.keep(item, change)
        item = self.innocent.pop(item.id, item)
        seconds = pause(source, times, len(self._excused.keys() | {item.id}))
        given = excuse(item, change, now + timedelta(seconds=seconds), is_written=False)
        self._note(Excused(times + 1, _bare(item), given), item.id)
        return given

    def keep(self, item: Item, change: Change) -> Change:
        """The item is blamed for this failure, so nothing from before is taken back any more."""
        self.innocent.pop(item.id, None)
        if item.id in self._excused:
            self._note(Excused(self._excused[item.id].times), item.id)
        return change

    def take_back(self, blamed: Sequence[Blamed]) -> None:
        for each in blamed:
            self.innocent[each.item.id] = each.item
            self._note(Excused(1), each.item.id)

    def _note(self, excused: Excused, item_id: int) -> None:
        self._excused.pop(item_id, None)
        self._excused[item_id] = excused
        if len(self._excused) > EXCUSED:
            del self._excused[next(iter(self._excused))]

    def waiting(self) -> list[Owed]:
        """Those that wait for a probe; now they need not wait any longer."""
        return [
            Owed(each.item, each.change, 0.0)
            for each in self._excused.values()
            if each.item is not None and each.change is not None
        ]


class Outages:
    """What this process knows of the sources of its tasks. It is asked and told from several threads."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]] | None = None,
        *,
        wake_settler: Callable[[], None] = nothing,
        wake_watch: Callable[[], None] = nothing,
    ) -> None:
        self._tasks = {} if tasks is None else tasks
        self._lock = threading.Lock()
        # All of these are kept by the names of sources.
        self._streaks: dict[str, Streak] = {}
        self._down: dict[str, Outage] = {}
        self._success_at: dict[str, datetime] = {}  # of the last success here
        self._well: set[str] = set()  # those that were seen to answer here: a success, or a failure of an item's own
        self._back_at: dict[str, datetime] = {}  # when those that had been down were back
        self._doubt: dict[str, int] = {}  # how many times as many failures it takes
        self._news: dict[str, News] = {}  # what the watch has not written yet
        self._handed: dict[str, News] = {}  # what the watch is about to write, or has written
        self._owed: deque[Owed] = deque()
        self._wake_settler = wake_settler  # when there are failures to take back
        self._wake_watch = wake_watch  # when an alert is to be written at once

    @property
    def owed(self) -> int:
        """How many changes are to be made that are nobody's verdict."""
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
        """The changes that the ends of one call make. While the source is down, failures are given back."""
        with self._lock:
            failed = [(item, verdict, change) for item, verdict, change in ends if isinstance(verdict, Failed)]
            if any(isinstance(verdict, Done | Fingerprint | NotFound) for _, verdict, _ in ends):
                self._succeeded(source, now)
                return [change for _, _, change in ends]
            outage = self._down.get(source.name)
            if outage is not None and outage.cause == AWAY and any(cause_of(each[1]) != AWAY for each in failed):
                self._is_back(source, now)  # whatever it answers, it does answer
                outage = None
            if outage is not None:
                if failed:
                    self._tell_probe(source, outage, failed[0][1].error, now)
                return [self._while_down(source, outage, *end, now) for end in ends]
            telling = [each for each in failed if source.is_blamed(each[1])]
            if len(telling) < len(failed):
                self._well.add(source.name)
            if telling:
                streak = self._streaks.get(source.name) or self._streaks.setdefault(source.name, Streak(source))
                doubt, is_young = self._doubt.get(source.name, 1), source.name not in self._well
                if (cause := streak.add(telling, doubt, is_young=is_young)) is not None:
                    self._is_down(source, cause, telling[-1][1].error)
            return [change for _, _, change in ends]

    def _while_down(
        self, source: Source, outage: Outage, item: Item, verdict: Outcome, change: Change, now: datetime
    ) -> Change:
        if not isinstance(verdict, Failed):
            return change
        if source.is_blamed(verdict) and explains(outage.cause, cause_of(verdict)):
            return outage.give_back(source, item, change, now)
        return outage.keep(item, change)

    def _tell_probe(self, source: Source, outage: Outage, error: str, now: datetime) -> None:
        if source.name in self._news:
            self._wake_watch()  # a probe failed too, so it is more than a hiccup
        if outage.told_at is None or now >= outage.told_at + TOLD_EVERY:
            outage.told_at = now
            log.info("%s is still down: %s", source.name, _line(error), extra={"source": source.name})

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
            item, blamed, seconds = self._owed.popleft()
            place, due_at = places.get((blamed.id, blamed.fence)), now + timedelta(seconds=seconds)
            if place is not None:
                unwritten[place] = excuse(item, blamed, due_at, is_written=False)
            elif blamed.outcome == GIVEN_BACK:
                if blamed.due_at > now:  # or else it goes on by itself; what its schedule has seen since is not touched
                    unwritten.append(excuse(item, replace(blamed, member=None), due_at, is_written=True))
            elif blamed.state == "waiting":
                unwritten.append(excuse(item, blamed, due_at, is_written=True))

    def _succeeded(self, source: Source, now: datetime) -> None:
        self._success_at[source.name] = now
        self._well.add(source.name)
        self._streaks.pop(source.name, None)
        self._doubt.pop(source.name, None)
        if source.name in self._down:
            self._is_back(source, now)

    def _is_down(self, source: Source, cause: str, error: str) -> None:
        words = f"failures, such as {_line(error)}" if cause == MIXED else _line(error)
        message = f"{source.name} is down: nothing but {words}; asked again every {source.probe:g} s, nobody is blamed"
        self._news[source.name] = News(message, {**self._about(source.name), "cause": cause})
        self._down[source.name] = outage = Outage(cause, is_ours=True)
        self._take_back(source.name, outage)

    def _is_back(self, source: Source, now: datetime) -> None:
        self._let_go(source.name)
        # If nobody was told yet, there is nothing to tell.
        untold = self._news.pop(source.name, None)
        if untold is None or self._handed.get(source.name) is untold:
            self._tell_back(source.name, now)
        self._back_at[source.name] = now

    def _let_go(self, name: str) -> Outage | None:
        """The source is not down any more: what waits for a probe may go on."""
        outage = self._down.pop(name, None)
        self._owed.extend(outage.waiting() if outage is not None else [])
        if self._owed:
            self._wake_settler()
        return outage

    def _tell_back(self, name: str, at: datetime) -> None:
        message = f"{name} is back; what had to wait for it is being made up"
        self._news[name] = News(message, {**self._about(name), "backAt": at.isoformat()}, is_back=True)
        self._back_at[name] = at
        self._wake_watch()

    def _about(self, name: str) -> dict[str, Any]:
        """What depends on this source, for workers and statements that do not know the tasks."""
        own = [task for task in self._tasks.values() if task.source is not None and task.source.name == name]
        return {
            "source": name,
            "tasks": sorted(task.name for task in own),
            "queues": sorted({task.queue for task in own}),
        }

    # -- what the watch writes and reads

    def is_abandoned(self, details: Mapping[str, Any]) -> bool:
        """Whether nothing depends any more on a source that is down, so that nobody will find it to be back.

        Only who knows all tasks that depended on it can tell.
        """
        tasks = [self._tasks.get(name) for name in details.get("tasks", ())]
        if "backAt" in details or not tasks:
            return False
        return all(task is not None and getattr(task.source, "name", None) != details["source"] for task in tasks)

    def news(self) -> list[tuple[str, News]]:
        """What is to be written, by the names of alerts. From now on it counts as told."""
        with self._lock:
            self._handed = dict(self._news)
            return [(f"{PREFIX}{name}", news) for name, news in self._news.items()]

    def written(self, alert: str, news: News) -> None:
        """This was written; if there was other news meanwhile, that is still to be."""
        name = alert.removeprefix(PREFIX)
        with self._lock:
            if self._news.get(name) is news:
                del self._news[name]

    def learn(self, alerts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what other workers found out, from the details of the alerts that stand, and `since` when."""
        told = {name.removeprefix(PREFIX): details for name, details in alerts.items() if name.startswith(PREFIX)}
        with self._lock:
            for name in (told.keys() | self._down.keys()) - self._news.keys():
                details = told.get(name, {})
                if name in told and "backAt" not in details:
                    self._learn_down(name, details.get("cause", ""), details.get("since"))
                    continue
                outage = self._let_go(name)
                if outage is not None and outage.is_ours:  # somebody else has found that it is not
                    self._doubt[name] = min(2 * self._doubt.get(name, 1), DOUBT)
                if "backAt" in details:
                    self._back_at[name] = datetime.fromisoformat(details["backAt"])

    def _learn_down(self, name: str, cause: str, since: datetime | None) -> None:
        if name in self._down:
            return
        success_at = self._success_at.get(name)
        if success_at is not None and since is not None:
            if success_at >= since:
                self._tell_back(name, success_at)
                return
            if name not in self._streaks and success_at + self._probe(name) >= since:
                return  # the next end of a try decides
        self._down[name] = outage = Outage(cause, is_ours=False)
        self._take_back(name, outage)
        if self._owed:
            self._wake_settler()

    def _probe(self, name: str) -> timedelta:
        """How long a source of this name waits between two probes."""
        sources = (task.source for task in self._tasks.values() if task.source is not None)
        return timedelta(seconds=max((source.probe for source in sources if source.name == name), default=0))

    def _take_back(self, name: str, outage: Outage) -> None:
        streak = self._streaks.pop(name, None)
        if streak is not None:
            blamed = streak.blamed_for(outage.cause)
            outage.take_back(blamed)
            self._owed.extend(Owed(each.item, each.change, streak.source.probe) for each in blamed)


def _line(error: str) -> str:
    return error.partition("\n")[0][:200]


def _bare(item: Item) -> Item:
    """The item without its arguments: many are remembered, and arguments may be large."""
    return replace(item, args=b"")
