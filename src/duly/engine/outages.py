"""Holds back items that depend on a source that is down, without counting failures, until it is back.

That a source is down is an alert, which is a row: it outlives this process, all workers learn of it within half a
minute, and one of them reports it. When the source is back, the row stays until what had to wait is done; then the
watch deletes it. Probes are counted by a meter, which all workers share.

Failures from before the outage was noticed are taken back, as far as this process remembers them. While the source is
down, only failures that its cause explains are given back. All others count against their items.

A worker that cannot reach the source must not hold back a fleet that can. So a worker that has just had an answer
ignores the row until it has seen a failure itself. If it has another answer, it writes that the source is back. The
worker that it contradicts needs twice as many failures the next time, until it has had an answer too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from duly.core.decide import excuse
from duly.core.model import Change, Failed, Item, Meter, Outcome
from duly.core.policy.outage import MIXED, Source, cause_of, is_answer, meaning
from duly.core.shown import NewAlert
from duly.engine.outage import Correction, Outage, Streak, line_of
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


@dataclass(eq=False)
class KnownSource:
    """What this process knows of one source."""

    name: str
    streak: Streak | None = None  # its failures since the last answer
    outage: Outage | None = None  # while it is down
    answered_at: datetime | None = None  # the last time that it answered here
    probe: timedelta = timedelta()  # the time between two probes
    back_at: datetime | None = None  # when it was back after it had been down
    doubt: int = 1  # how many times as many failures it takes
    notice: NewAlert | None = None  # what the watch has not written yet
    handed: NewAlert | None = None  # what the watch is about to write, or has written


STRANGER = KnownSource("")


class Outages:
    """What this process knows of the sources of its tasks. It is used by several threads."""

    def __init__(self, tasks: Tasks | None = None, *, wake_settler: Wake = nothing, wake_watch: Wake = nothing) -> None:
        self._tasks = {} if tasks is None else tasks
        self._lock = threading.Lock()
        self._sources: dict[str, KnownSource] = {}
        self._corrections: deque[Correction] = deque()
        self._wake_settler = wake_settler  # when there are failures to take back
        self._wake_watch = wake_watch  # when an alert is to be written at once

    @property
    def corrections(self) -> int:
        """How many changes are to be made besides those of verdicts."""
        return len(self._corrections)

    def _known(self, name: str) -> KnownSource:
        """Call this with the lock."""
        return self._sources.get(name) or self._sources.setdefault(name, KnownSource(name))

    # -- for claims

    def is_down(self, source: Source) -> bool:
        return self._sources.get(source.name, STRANGER).outage is not None

    def meter(self, source: Source) -> tuple[Meter, ...]:
        """What a claim needs room on: while the source is down, for one call at a time."""
        return (Meter(f"{PREFIX}{source.name}", 1, per=source.probe),) if self.is_down(source) else ()

    def held_until(self, source: Source) -> datetime | None:
        """Until when what depends on this source had to wait, as far as it is known here."""
        known = self._sources.get(source.name, STRANGER)
        return FOREVER if known.outage is not None else known.back_at

    # -- what ends of tries mean

    def judge(self, source: Source, ends: Sequence[End], now: datetime) -> list[Change]:
        """The changes that the ends of one call make. While the source is down, failed items are released."""
        with self._lock:
            known = self._known(source.name)
            meanings = [meaning(source, verdict) for _, verdict, _ in ends]
            if "answer" in meanings:
                self._answered(source, known, now)
                return [change for _, _, change in ends]
            failed = [
                (item, verdict, change)
                for (item, verdict, change), says in zip(ends, meanings, strict=True)
                if says == "failure" and isinstance(verdict, Failed)
            ]
            outage = known.outage
            if outage is not None and any(is_answer(outage.cause, cause_of(verdict)) for _, verdict, _ in failed):
                self._is_back(known, now)
                outage = None
            if outage is not None:
                if failed:
                    self._log_probe(known, outage, failed[0][1].error, now)
                return [outage.judge(source, *end, now) for end in ends]
            if failed:
                known.streak = known.streak or Streak(source, known.doubt)
                if (cause := known.streak.add(failed, now, is_young=known.answered_at is None)) is not None:
                    self._is_down(source, known, cause, failed[-1][1].error)
            return [change for _, _, change in ends]

    def _log_probe(self, known: KnownSource, outage: Outage, error: str, now: datetime) -> None:
        if known.notice is not None:
            self._wake_watch()  # a probe failed too, so it is more than a hiccup
        if outage.logged_at is None or now >= outage.logged_at + LOG_EVERY:
            outage.logged_at = now
            log.info("%s is still down: %s", known.name, line_of(error), extra={"source": known.name})

    def answered(self, source: Source, now: datetime) -> None:
        """A try ended with an answer, and its change was written already."""
        with self._lock:
            self._answered(source, self._known(source.name), now)

    def take_back(self, unwritten: list[Change], now: datetime) -> None:
        """Take back the failures that the source caused: among these changes, or by changes of their own.

        What was given up or deactivated by then, and is written, stays so.
        """
        if not self._corrections:
            return
        places = {(change.id, change.fence): place for place, change in enumerate(unwritten)}
        while self._corrections:
            item, blamed, seconds, excuses, cause = self._corrections.popleft()
            place, due_at = places.get((blamed.id, blamed.fence)), now + timedelta(seconds=seconds)
            if place is not None:
                unwritten[place] = excuse(item, blamed, due_at, is_written=False, excuses=excuses, cause=cause)
            elif blamed.outcome == GIVEN_BACK:
                if blamed.due_at > now:  # otherwise it is due anyway; later changes of its schedule are not touched
                    unwritten.append(excuse(item, replace(blamed, member=None), due_at, is_written=True))
            elif blamed.state == "waiting":
                unwritten.append(excuse(item, blamed, due_at, is_written=True, excuses=excuses, cause=cause))

    def _answered(self, source: Source, known: KnownSource, now: datetime) -> None:
        known.answered_at, known.probe = now, timedelta(seconds=source.probe)
        known.streak, known.doubt = None, 1
        if known.outage is not None:
            self._is_back(known, now)

    def _is_down(self, source: Source, known: KnownSource, cause: str, error: str) -> None:
        words = f"errors such as {line_of(error)}" if cause == MIXED else line_of(error)
        message = f"{source.name} is down: {words}; probed every {source.probe:g} s, failures do not count meanwhile"
        known.notice = self._notice(known, message, cause=cause)
        self._hold(known, Outage(cause, is_ours=True))

    def _hold(self, known: KnownSource, outage: Outage) -> None:
        """The source is down: take back the failures that this explains."""
        known.outage, streak, known.streak = outage, known.streak, None
        if streak is not None:
            self._corrections.extend(outage.take_back(streak.source, streak.blamed_for(outage.cause)))

    def _is_back(self, known: KnownSource, now: datetime) -> None:
        self._let_go(known)
        # If the outage was never reported, its end need not be.
        unwritten, known.notice = known.notice, None
        if unwritten is None or known.handed is unwritten:
            self._report_back(known, now)
        known.back_at = now

    def _let_go(self, known: KnownSource) -> Outage | None:
        """The source is no longer down: items that wait for a probe may run."""
        outage, known.outage = known.outage, None
        self._corrections.extend(outage.waiting() if outage is not None else [])
        if self._corrections:
            self._wake_settler()
        return outage

    def _report_back(self, known: KnownSource, at: datetime) -> None:
        message = f"{known.name} is back; items that waited for it are running"
        known.notice = self._notice(known, message, backAt=at.isoformat())
        known.back_at = at
        self._wake_watch()

    def _notice(self, known: KnownSource, message: str, **details: str) -> NewAlert:
        """What is to be written, with what depends on this source, for those that do not know the tasks."""
        own = [task for task in self._tasks.values() if task.source is not None and task.source.name == known.name]
        about = {"tasks": sorted(task.name for task in own), "queues": sorted({task.queue for task in own})}
        return NewAlert(f"{PREFIX}{known.name}", message, {"source": known.name, **about, **details})

    # -- for the watch

    def is_abandoned(self, details: Mapping[str, Any]) -> bool:
        """Whether nothing depends any more on a source that is down, so that no worker will find it to be back.

        Only a worker that knows all tasks that depended on it can decide this.
        """
        tasks = [self._tasks.get(name) for name in details.get("tasks", ())]
        if "backAt" in details or not tasks:
            return False
        return all(task is not None and getattr(task.source, "name", None) != details["source"] for task in tasks)

    def notices(self) -> list[NewAlert]:
        """What is to be written: which sources are down, and which are back. From now on it counts as reported."""
        with self._lock:
            for known in self._sources.values():
                known.handed = known.notice
            return [known.notice for known in self._sources.values() if known.notice is not None]

    def written(self, notice: NewAlert) -> None:
        """This was written; a newer notice about the same source is still to be written."""
        with self._lock:
            known = self._known(notice.name.removeprefix(PREFIX))
            if known.notice is notice:
                known.notice = None

    def learn(self, alerts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what other workers found out, from the details of the open alerts, and `since` when."""
        found = {name.removeprefix(PREFIX): details for name, details in alerts.items() if name.startswith(PREFIX)}
        with self._lock:
            for name in found.keys() | self._sources.keys():
                known, details = self._known(name), found.get(name, {})
                if known.notice is not None or (name not in found and known.outage is None):
                    continue
                if name in found and "backAt" not in details:
                    self._learn_down(known, details.get("cause", ""), details.get("since"))
                    continue
                outage = self._let_go(known)
                if outage is not None and outage.is_ours:  # another worker has found that it is not
                    known.doubt = min(2 * known.doubt, DOUBT)
                if "backAt" in details:
                    known.back_at = datetime.fromisoformat(details["backAt"])

    def _learn_down(self, known: KnownSource, cause: str, since: datetime | None) -> None:
        if known.outage is not None:
            return
        if known.answered_at is not None and since is not None:
            if known.answered_at >= since:
                self._report_back(known, known.answered_at)
                return
            if known.streak is None and known.answered_at + known.probe >= since:
                return  # the next end of a try decides
        self._hold(known, Outage(cause, is_ours=False))
        if self._corrections:
            self._wake_settler()
