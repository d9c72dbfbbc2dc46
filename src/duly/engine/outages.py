"""Holds back what depends on a source that is down, without counting its failures, and goes on when it is back.

That a source is down is an alert, which is a row: it outlives this process, all workers learn of it within half a
minute, and one of them reports it. When the source is back, the row stays until what had to wait is done; then the
watch deletes it. Probes are counted by a meter, which all workers share.

Failures from before the outage was noticed are taken back, as far as this process remembers them. While the source is
down, only failures that its cause explains are given back. All others count against their items.

A worker that cannot reach the source must not hold back a fleet that can. So a worker that has just had a success
ignores the row until it has seen a failure itself. If it has another success, it writes that the source is back. The
worker that it contradicts needs twice as many failures the next time, until it has had a success too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.core.decide import excuse
from duly.core.model import Change, Done, Failed, Fingerprint, Item, Meter, NotFound, Outcome
from duly.core.policy.outage import AWAY, MIXED, Source, cause_of, explains
from duly.engine.outage import Correction, Outage
from duly.engine.streaks import Streak
from duly.engine.work import Tasks, Wake, nothing

log = logging.getLogger("duly.engine")

# An item, how its try ended, and what that makes of it.
End = tuple[Item, Outcome, Change]

PREFIX = "source:"
# How many times as many failures it takes at most, after other workers have contradicted this one.
DOUBT = 64
# How often a source that is still down is logged.
LOG_EVERY = timedelta(hours=1)
GIVEN_BACK = "throttled"  # the outcome of tries that do not count as failures
FOREVER = datetime.max.replace(tzinfo=UTC)


class SourceNotice(Struct, frozen=True):
    """What is to be written about a source: that it is down, or that it is back."""

    message: str
    details: dict[str, Any]
    is_back: bool = False


class Outages:
    """What this process knows of the sources of its tasks. It is used by several threads."""

    def __init__(self, tasks: Tasks | None = None, *, wake_settler: Wake = nothing, wake_watch: Wake = nothing) -> None:
        self._tasks = {} if tasks is None else tasks
        self._lock = threading.Lock()
        # All of these are kept by the names of sources.
        self._streaks: dict[str, Streak] = {}
        self._down: dict[str, Outage] = {}
        self._success_at: dict[str, datetime] = {}  # of the last success here
        self._well: set[str] = set()  # those that were seen to answer here: a success, or a failure of an item's own
        self._back_at: dict[str, datetime] = {}  # when those that had been down were back
        self._doubt: dict[str, int] = {}  # how many times as many failures it takes
        self._notices: dict[str, SourceNotice] = {}  # what the watch has not written yet
        self._handed: dict[str, SourceNotice] = {}  # what the watch is about to write, or has written
        self._corrections: deque[Correction] = deque()
        self._wake_settler = wake_settler  # when there are failures to take back
        self._wake_watch = wake_watch  # when an alert is to be written at once

    @property
    def corrections(self) -> int:
        """How many changes are to be made beside those of verdicts."""
        return len(self._corrections)

    # -- for claims

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
                    self._log_probe(source, outage, failed[0][1].error, now)
                return [self._while_down(source, outage, *end, now) for end in ends]
            blaming = [each for each in failed if source.is_blamed(each[1])]
            if len(blaming) < len(failed):
                self._well.add(source.name)
            if blaming:
                streak = self._streaks.get(source.name) or self._streaks.setdefault(source.name, Streak(source))
                doubt, is_young = self._doubt.get(source.name, 1), source.name not in self._well
                if (cause := streak.add(blaming, doubt, is_young=is_young)) is not None:
                    self._is_down(source, cause, blaming[-1][1].error)
            return [change for _, _, change in ends]

    def _while_down(
        self, source: Source, outage: Outage, item: Item, verdict: Outcome, change: Change, now: datetime
    ) -> Change:
        if not isinstance(verdict, Failed):
            return change
        if source.is_blamed(verdict) and explains(outage.cause, cause_of(verdict)):
            return outage.give_back(source, item, change, now)
        return outage.keep(item, change)

    def _log_probe(self, source: Source, outage: Outage, error: str, now: datetime) -> None:
        if source.name in self._notices:
            self._wake_watch()  # a probe failed too, so it is more than a hiccup
        if outage.logged_at is None or now >= outage.logged_at + LOG_EVERY:
            outage.logged_at = now
            log.info("%s is still down: %s", source.name, _line(error), extra={"source": source.name})

    def succeeded(self, source: Source, now: datetime) -> None:
        """A try succeeded, whose change was written already."""
        with self._lock:
            self._succeeded(source, now)

    def take_back(self, unwritten: list[Change], now: datetime) -> None:
        """Take back the failures that the source caused: among these changes, or by changes of their own.

        What was given up or deactivated by then, and is written, stays so.
        """
        if not self._corrections:
            return
        places = {(change.id, change.fence): place for place, change in enumerate(unwritten)}
        while self._corrections:
            item, blamed, seconds = self._corrections.popleft()
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
        words = f"errors such as {_line(error)}" if cause == MIXED else _line(error)
        message = f"{source.name} is down: {words}; probed every {source.probe:g} s, failures do not count meanwhile"
        self._notices[source.name] = SourceNotice(message, {**self._about(source.name), "cause": cause})
        self._down[source.name] = outage = Outage(cause, is_ours=True)
        self._take_back(source.name, outage)

    def _is_back(self, source: Source, now: datetime) -> None:
        self._let_go(source.name)
        # If the outage was never reported, its end need not be.
        unwritten = self._notices.pop(source.name, None)
        if unwritten is None or self._handed.get(source.name) is unwritten:
            self._report_back(source.name, now)
        self._back_at[source.name] = now

    def _let_go(self, name: str) -> Outage | None:
        """The source is not down any more: what waits for a probe may go on."""
        outage = self._down.pop(name, None)
        self._corrections.extend(outage.waiting() if outage is not None else [])
        if self._corrections:
            self._wake_settler()
        return outage

    def _report_back(self, name: str, at: datetime) -> None:
        message = f"{name} is back; items that waited for it are running"
        self._notices[name] = SourceNotice(message, {**self._about(name), "backAt": at.isoformat()}, is_back=True)
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

    # -- for the watch

    def is_abandoned(self, details: Mapping[str, Any]) -> bool:
        """Whether nothing depends any more on a source that is down, so that no worker will find it to be back.

        Only a worker that knows all tasks that depended on it can decide this.
        """
        tasks = [self._tasks.get(name) for name in details.get("tasks", ())]
        if "backAt" in details or not tasks:
            return False
        return all(task is not None and getattr(task.source, "name", None) != details["source"] for task in tasks)

    def notices(self) -> list[tuple[str, SourceNotice]]:
        """What is to be written, by the names of alerts. From now on it counts as reported."""
        with self._lock:
            self._handed = dict(self._notices)
            return [(f"{PREFIX}{name}", notice) for name, notice in self._notices.items()]

    def written(self, alert: str, notice: SourceNotice) -> None:
        """This was written; a newer notice about the same source is still to be written."""
        name = alert.removeprefix(PREFIX)
        with self._lock:
            if self._notices.get(name) is notice:
                del self._notices[name]

    def learn(self, alerts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what other workers found out, from the details of the open alerts, and `since` when."""
        known = {name.removeprefix(PREFIX): details for name, details in alerts.items() if name.startswith(PREFIX)}
        with self._lock:
            for name in (known.keys() | self._down.keys()) - self._notices.keys():
                details = known.get(name, {})
                if name in known and "backAt" not in details:
                    self._learn_down(name, details.get("cause", ""), details.get("since"))
                    continue
                outage = self._let_go(name)
                if outage is not None and outage.is_ours:  # another worker has found that it is not
                    self._doubt[name] = min(2 * self._doubt.get(name, 1), DOUBT)
                if "backAt" in details:
                    self._back_at[name] = datetime.fromisoformat(details["backAt"])

    def _learn_down(self, name: str, cause: str, since: datetime | None) -> None:
        if name in self._down:
            return
        success_at = self._success_at.get(name)
        if success_at is not None and since is not None:
            if success_at >= since:
                self._report_back(name, success_at)
                return
            if name not in self._streaks and success_at + self._probe(name) >= since:
                return  # the next end of a try decides
        self._down[name] = outage = Outage(cause, is_ours=False)
        self._take_back(name, outage)
        if self._corrections:
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
            self._corrections.extend(Correction(each.item, each.change, streak.source.probe) for each in blamed)


def _line(error: str) -> str:
    return error.partition("\n")[0][:200]
