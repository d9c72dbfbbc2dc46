"""Writes this worker's sign of life, and raises alerts when work is late: to the log, a webhook and the metrics.

An alert is a row, so that only one of many workers tells the webhook, and another does if that one dies before it has.
The sign of life is a row too, so that anybody who can read the database sees when no worker is running any more.

One cause is one alert. After a time in which no worker ran, `no_tick` stands until what fell due in it is done, and
says how much that is; what is late otherwise is `late_items`, or `oldest_due` if it is few but old. When `no_tick` has
not changed for long, something else holds back the rest of it, which then is late as anything. What a pause, a limit or
a window holds back by plan is not late. What waits for a source that is down has the alert about that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

from duly.core.clock import EPOCH
from duly.core.model import Head
from duly.core.policy.lateness import Holds
from duly.core.settings import Settings
from duly.engine.outages import PREFIX, Outages
from duly.engine.reasons import Overdue, Reasons
from duly.store.contract import START, Store
from duly.store.lines import family

log = logging.getLogger("duly.engine")

EVERY = timedelta(seconds=30)
# If a worker that was about to tell the webhook has not succeeded in this time, another one does.
TELLING = timedelta(seconds=60)
# Rows of workers without a sign of life for so long are deleted.
FORGOTTEN = timedelta(days=1)
TIDY_EVERY = timedelta(hours=1)
# Late items are counted up to this number, among twice as many rows, since some may be of paused queues.
COUNTED = 10_000
# If paused queues fill those rows, so many lines are looked at in each tick instead.
LINES = 10_000
# The alerts that are raised here.
OURS = frozenset(("no_tick", "late_items", "oldest_due"))
# What `no_tick` tells of makes progress while any of these changes.
PROGRESS = ("lateEvents", "oldestDueAt")
# For so long that may stay as it is, if nobody wants to be told of the oldest due item.
MOVES = timedelta(hours=1)
# So long before now no alert was told, for those that are told once.
NEVER_AGAIN = timedelta(days=100_000)


class Alarm(Struct, frozen=True):
    """A reason for an alert, as it was found in this tick."""

    name: str
    message: str
    details: dict[str, Any]


class Standing(Struct, frozen=True):
    """An alert that stands, as a row."""

    name: str
    since: datetime
    message: str
    details: dict[str, Any]
    told_at: datetime | None


class LateCount(Struct, frozen=True):
    """How many items are late, and since when the oldest is due."""

    items: int = 0
    oldest: datetime | None = None

    def and_also(self, more: LateCount, most: int) -> LateCount:
        return LateCount(min(self.items + more.items, most), self._older(more))

    def or_else(self, other: LateCount) -> LateCount:
        return LateCount(max(self.items, other.items), self._older(other))

    def _older(self, other: LateCount) -> datetime | None:
        return min((time for time in (self.oldest, other.oldest) if time is not None), default=None)


class Late(Struct, frozen=True):
    """What is late: what fell due while no worker ran, and the rest."""

    missed: LateCount = LateCount()
    rest: LateCount = LateCount()

    def and_also(self, more: Late, most: int) -> Late:
        return Late(self.missed.and_also(more.missed, most), self.rest.and_also(more.rest, most))

    def or_else(self, other: Late) -> Late:
        return Late(self.missed.or_else(other.missed), self.rest.or_else(other.rest))


class Watch:
    def __init__(
        self,
        store: Store,
        worker: str,
        tasks: list[str],
        settings: Settings,
        *,
        post: Callable[[str, Mapping[str, Any]], object],
        summary: Callable[[], Mapping[str, Any] | None] = lambda: None,
        holds: Callable[[str], Holds] = lambda _: Holds(),
        outages: Outages | None = None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._tasks = tasks
        self._settings = settings
        self._post = post
        self._summary = summary
        self._reasons = Reasons(store, holds, settings.alert_oldest_seconds)  # `holds`: what holds a queue by plan
        self._outages = outages or Outages()
        self._sources: dict[str, Standing] = {}  # the alerts about sources
        self._behind: set[str] = set()  # those of them that explain something which still waits
        self._is_whole = True  # whether the last look, or the last walk over the lines, has seen all that is overdue
        self._started_at: datetime | None = None
        self._tidy_at = EPOCH
        # The walk over the lines: where it stands, what it has found so far, and what the last walk found.
        self._place = START
        self._walk = Late()
        self._last_walk: Late | None = None

    def tick(self, now: datetime) -> datetime:
        self._write_news(now)
        standing = self.learn()
        self._sources = {name: alert for name, alert in standing.items() if name.startswith(PREFIX)}
        for alert in [alert for alert in self._sources.values() if self._outages.is_abandoned(alert.details)]:
            details = {**alert.details, "backAt": now.isoformat()}
            row = {"name": alert.name, "message": f"nothing depends on {alert.name} any more"}
            self._store.write("source_back", {**row, "details": encode(details).decode()})
        if self._is_whole:
            self._behind = set()
        alarms = {alarm.name: alarm for alarm in self._alarms(now, standing.get("no_tick"))}
        names = encode(self._tasks).decode()
        self._started_at = self._started_at or now
        life = {"name": self._worker, "tasks": names, "started_at": self._started_at, "now": now}
        self._store.write("alive", life)
        for alarm in alarms.values():
            self._raise(alarm, now)
        # Clear alerts without a reason, also those of workers that died. A webhook hears of `no_tick` in any case.
        kept = {name for name, alert in standing.items() if name == "no_tick" and alert.told_at is None}
        kept = kept if self._settings.alert_webhook_url else set()
        if self._place != START and self._last_walk is None:  # only a part of the lines was looked at
            kept |= {"late_items", "oldest_due", "no_tick"}
        for name in (standing.keys() & OURS) - alarms.keys() - kept:
            self._clear(name)
        if self._is_whole:  # nothing waits any more for those that are back
            for name in self._sources.keys() - self._behind:
                self._clear_source(name)
        for name in self._tell(now) & {"no_tick"} - alarms.keys():  # what it tells of is over
            self._clear(name)
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            self._store.write("forget_workers", {"before": now - FORGOTTEN})
        if said := self._summary():
            log.info("Scheduler job completed", extra=dict(said))
        return now + EVERY

    def learn(self) -> dict[str, Standing]:
        """Read the alerts that stand, and learn from them which sources are down."""
        standing = {alert.name: alert for alert in map(_standing, self._store.read("alerts", {}))}
        self._outages.learn({name: {**alert.details, "since": alert.since} for name, alert in standing.items()})
        return standing

    def _write_news(self, now: datetime) -> None:
        """Write which sources are down and which are back. Whoever is first to write it has it in the log."""
        for name, news in self._outages.news():
            row = {"name": name, "message": news.message, "details": encode(news.details).decode()}
            if news.is_back:
                if self._store.write("source_back", row):
                    log.info(news.message, extra={"alert": name, **news.details})
            elif self._store.write("source_down", {**row, "now": now}):
                log.warning(news.message, extra={"alert": name, **news.details})
            self._outages.written(name, news)

    def _clear_source(self, name: str) -> None:
        if self._store.write("source_over", {"name": name}):
            log.info("alert over: %s", name, extra={"alert": name})

    def leave(self, now: datetime) -> None:
        """Write that this worker has ended in good order."""
        self._store.write("gone", {"name": self._worker, "now": now})

    def _alarms(self, now: datetime, silence: Standing | None) -> Iterator[Alarm]:
        """The reasons for alerts; `silence` is the alert about a time without workers, if it stands."""
        settings = self._settings
        fresh = next(self._was_nobody_here(now), None) if self._started_at is None else None
        back_at = now if fresh is not None else silence.since if silence is not None else None
        before = now - timedelta(seconds=settings.alert_late_seconds)
        most = max(COUNTED, settings.alert_late_items + 1)
        late = self._late(before, most, now, back_at)
        missed, rest = late.missed, late.rest
        if missed.oldest is not None:
            known = fresh or Alarm("no_tick", silence.message if silence else "", silence.details if silence else {})
            facts = {**_age(missed, now), "oldestDueAt": missed.oldest.isoformat()}
            changed_at = known.details.get("changedAt", "")
            if fresh is not None or not changed_at or any(known.details.get(name) != facts[name] for name in PROGRESS):
                changed_at = now.isoformat()
            if now - datetime.fromisoformat(changed_at) > (timedelta(seconds=settings.alert_oldest_seconds) or MOVES):
                rest = rest.and_also(missed, most)
            else:
                text = f"{known.message.partition('; ')[0]}; {_many(missed, most)} are late"
                yield Alarm("no_tick", text, {**known.details, **facts, "changedAt": changed_at})
        elif fresh is not None:
            yield fresh
        if rest.oldest is None:
            return
        details = _age(rest, now)
        if rest.items > settings.alert_late_items:
            yield Alarm("late_items", f"Recovery mode detected: {_many(rest, most)} are late", details)
        elif 0 < settings.alert_oldest_seconds < (now - rest.oldest).total_seconds():
            minutes = details["oldestEventAge"]
            yield Alarm("oldest_due", f"the oldest due item waits for {minutes:,} minutes", {"oldestEventAge": minutes})

    def _late(self, before: datetime, most: int, now: datetime, back_at: datetime | None) -> Late:
        """What of open queues was due before then and is late, found with one look at so many rows by due time.

        If items that are not late fill these rows, such as those of paused queues, a walk from line to line passes over
        them, some lines in each tick.
        """
        rows = self._store.read("overdue", {"before": before, "most": 2 * most, "back_at": back_at or EPOCH})
        are_open = self._store.open_queues({row[0] for row in rows})
        overdue = [Overdue(*row) for row in rows]
        is_all = sum(each.items for each in overdue) < 2 * most
        overdue = [each for each in overdue if each.queue in are_open]
        self._reasons.begin(now)
        self._reasons.look(overdue, now)
        late = Late()
        for each in overdue:
            late = late.and_also(self._unexplained(each, now, back_at), most)
        if is_all or late.missed.items + late.rest.items >= most:
            self._place, self._walk, self._last_walk = START, Late(), None
            self._is_whole = is_all
            return late
        heads, place = self._store.survey(self._place, LINES)
        found = self._counted([head for head in heads if head.due_at < before], before, most, now, back_at)
        self._walk = self._walk.and_also(found, most)
        self._place = place or START
        self._is_whole = place is None
        if place is None:
            self._walk, self._last_walk = Late(), self._walk
        return self._walk if self._last_walk is None else self._walk.or_else(self._last_walk)

    def _unexplained(self, each: Overdue, now: datetime, back_at: datetime | None) -> Late:
        """What is late of this: the main lane by number, unless a limit holds it, and retries by their age alone."""
        if self._waits_for_source(each, now):
            return Late()
        is_missed = back_at is not None and each.oldest < back_at
        late = LateCount(each.items if each.lane == "main" else 0, each.oldest)
        if is_missed and each.lane == "main":  # what a limit holds back waits because no worker ran
            return Late(missed=late)
        if self._reasons.explain(each, now):
            return Late()
        if each.lane == "main" and self._reasons.is_held(each.queue):
            # That many wait is the plan; that one waits for longer than the limit explains, is not.
            late = LateCount(0, each.oldest)
        return Late(missed=late) if is_missed else Late(rest=late)

    def _waits_for_source(self, each: Overdue, now: datetime) -> bool:
        """Whether there is an alert about what these depend on: one is enough, until what had to wait is done.

        What falls due after the return may have to wait behind that, for as long again as the source was down. After
        that time, and an hour, the outage explains nothing any more.
        """
        for name, alert in self._sources.items():
            if set(family(each.queue)).isdisjoint(alert.details.get("queues", ())):
                continue
            back_at = datetime.fromisoformat(alert.details.get("backAt", now.isoformat()))
            behind = max(back_at, back_at + (back_at - alert.since))
            if each.oldest < behind and now < behind + (behind - back_at) + MOVES:
                self._behind.add(name)
                return True
        return False

    def _counted(self, heads: list[Head], before: datetime, most: int, now: datetime, back_at: datetime | None) -> Late:
        """What is late in these lines. A line with something that fell due while no worker ran is all about that."""
        overdue = [Overdue(head.line.queue, head.lane, 1, head.due_at) for head in heads]
        self._reasons.look(overdue, now)
        late = Late()
        missed: list[Head] = []
        rest: list[Head] = []
        for head, each in zip(heads, overdue, strict=True):
            found = self._unexplained(each, now, back_at)
            late = late.and_also(found, most)
            missed += [head] if found.missed.items else []
            rest += [head] if found.rest.items else []
        return Late(
            LateCount(self._backlog(missed, min(before, back_at or before), most), late.missed.oldest),
            LateCount(self._backlog(rest, before, most), late.rest.oldest),
        )

    def _backlog(self, heads: list[Head], before: datetime, most: int) -> int:
        """How many items of these lines were due before then."""
        groups = [
            {
                "queue": head.line.queue,
                "lane": "main",
                "rank": head.rank,
                "task": head.line.task,
                "owner": head.line.owner,
            }
            for head in heads
        ]
        given = {"groups": encode(groups).decode(), "before": before, "most": most}
        count: int = self._store.read("backlog", given)[0][0] if groups else 0
        return count

    def _was_nobody_here(self, now: datetime) -> Iterator[Alarm]:
        """At the start, raise an alert if no worker had given a sign of life for long. The next tick clears it."""
        seen_at: datetime | None = self._store.read("last_seen", {})[0][0]
        silence = 0.0 if seen_at is None else (now - seen_at).total_seconds()
        if silence > self._settings.alert_silence_seconds:
            minutes = silence / 60
            yield Alarm(
                "no_tick",
                f"Scheduler appears to have been down: no worker gave a sign of life for {minutes:,.0f} minutes",
                {"lastRun": seen_at, "minutesSinceLastRun": round(minutes, 1)},
            )

    def _raise(self, alarm: Alarm, now: datetime) -> None:
        row = {"name": alarm.name, "now": now, "message": alarm.message, "details": encode(alarm.details).decode()}
        if self._store.write("alert", row)[0][0]:
            log.warning(alarm.message, extra={"alert": alarm.name, **alarm.details})

    def _clear(self, name: str) -> None:
        if self._store.write("over", {"name": name}):
            log.info("alert over: %s", name, extra={"alert": name})

    def _tell(self, now: datetime) -> set[str]:
        """Tell alerts that nobody was told of, and again those that still stand after a while; returns their names."""
        again = self._settings.alert_again_seconds
        given = {
            "now": now, "before": now - TELLING,
            "again": now - (timedelta(seconds=again) if again else NEVER_AGAIN),
        }  # fmt: skip
        told = set()
        for name, since, message, details, told_at in self._store.write("untold", given):
            body = {"alert": name, "message": message, "since": since.isoformat(), "details": decode(details)}
            try:
                if self._settings.alert_webhook_url:
                    self._post(self._settings.alert_webhook_url, body)
            except Exception as error:  # the next worker to look tries again
                log.warning("the alert webhook did not take it: %s", error)
                continue
            if told_at is not None:
                log.warning("still: %s", message, extra={"alert": name, **decode(details)})
            self._store.write("told", {"name": name, "now": now})
            told.add(name)
        return told


def _age(late: LateCount, now: datetime) -> dict[str, Any]:
    waited = 0.0 if late.oldest is None else (now - late.oldest).total_seconds()
    return {"lateEvents": late.items, "oldestEventAge": int(waited // 60)}


def _many(late: LateCount, most: int) -> str:
    return f"{late.items:,} items" if late.items < most else f"{most:,} items or more"


def _standing(row: tuple[Any, ...]) -> Standing:
    name, since, message, details, told_at = row
    return Standing(name, since, message, decode(details) if isinstance(details, str | bytes) else details, told_at)
