"""Writes this worker's sign of life, and raises alerts when work is late: to the log, a webhook and the metrics.

An alert is a row, so that only one of many workers tells the webhook, and another does if that one dies before it has.
The sign of life is a row too, so that anybody who can read the database sees when no worker is running any more.
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
from duly.core.settings import Settings
from duly.store.contract import START, Store

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


class Alarm(Struct, frozen=True):
    """A reason for an alert, as it was found in this tick."""

    name: str
    message: str
    details: dict[str, Any]


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
    ) -> None:
        self._store = store
        self._worker = worker
        self._tasks = tasks
        self._settings = settings
        self._post = post
        self._summary = summary
        self._started_at: datetime | None = None
        self._tidy_at = EPOCH
        # The walk over the lines: where it stands, what it has found so far, and what the last walk found.
        self._place = START
        self._walk = LateCount()
        self._last_walk: LateCount | None = None

    def tick(self, now: datetime) -> datetime:
        alarms = {alarm.name: alarm for alarm in self._alarms(now)}
        names = encode(self._tasks).decode()
        self._started_at = self._started_at or now
        life = {"name": self._worker, "tasks": names, "started_at": self._started_at, "now": now}
        self._store.write("alive", life)
        for alarm in alarms.values():
            self._raise(alarm, now)
        # Clear alerts without a reason, also those of workers that died. `no_tick` is cleared when the webhook took it.
        kept = {"no_tick"} if self._settings.alert_webhook_url else set()
        if self._place != START and self._last_walk is None:  # only a part of the lines was looked at
            kept |= {"late_items", "oldest_due"}
        for name in {row[0] for row in self._store.read("alerts", {})} - alarms.keys() - kept:
            self._clear(name)
        if self._settings.alert_webhook_url:
            self._tell(now)
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            self._store.write("forget_workers", {"before": now - FORGOTTEN})
        if said := self._summary():
            log.info("Scheduler job completed", extra=dict(said))
        return now + EVERY

    def leave(self, now: datetime) -> None:
        """Write that this worker has ended in good order."""
        self._store.write("gone", {"name": self._worker, "now": now})

    def _alarms(self, now: datetime) -> Iterator[Alarm]:
        settings = self._settings
        if self._started_at is None:
            yield from self._was_nobody_here(now)
        before = now - timedelta(seconds=settings.alert_late_seconds)
        most = max(COUNTED, settings.alert_late_items + 1)
        late = self._late(before, most)
        if late.oldest is None:
            return
        oldest = (now - late.oldest).total_seconds()
        minutes = int(oldest // 60)
        if late.items > settings.alert_late_items:
            details = {"lateEvents": late.items, "oldestEventAge": minutes}
            many = f"{late.items:,} items" if late.items < most else f"{most:,} items or more"
            yield Alarm("late_items", f"Recovery mode detected: {many} are late", details)
        if settings.alert_oldest_seconds and oldest > settings.alert_oldest_seconds:
            yield Alarm("oldest_due", f"the oldest due item waits for {minutes:,} minutes", {"oldestEventAge": minutes})

    def _late(self, before: datetime, most: int) -> LateCount:
        """How many items of open queues were due before then, found with one look at so many rows by due time.

        If items of paused queues fill these rows, a walk from line to line passes over them, some lines in each tick.
        """
        rows = self._store.read("overdue", {"before": before, "most": 2 * most})
        are_open = self._store.open_queues(row[0] for row in rows)
        items = sum(main for queue, _, main, _ in rows if queue in are_open)
        if sum(row[1] for row in rows) < 2 * most or items >= most:
            self._place, self._walk, self._last_walk = START, LateCount(), None
            return LateCount(min(items, most), min((row[3] for row in rows if row[0] in are_open), default=None))
        heads, place = self._store.survey(self._place, LINES)
        self._walk = self._walk.and_also(
            self._counted([head for head in heads if head.due_at < before], before, most), most
        )
        self._place = place or START
        if place is None:
            self._walk, self._last_walk = LateCount(), self._walk
        return self._walk if self._last_walk is None else self._walk.or_else(self._last_walk)

    def _counted(self, heads: list[Head], before: datetime, most: int) -> LateCount:
        main = [
            {
                "queue": head.line.queue,
                "lane": "main",
                "rank": head.rank,
                "task": head.line.task,
                "owner": head.line.owner,
            }
            for head in heads
            if head.lane == "main"
        ]
        given = {"groups": encode(main).decode(), "before": before, "most": most}
        return LateCount(self._store.read("backlog", given)[0][0], min((head.due_at for head in heads), default=None))

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

    def _tell(self, now: datetime) -> None:
        for name, since, message, details in self._store.write("untold", {"now": now, "before": now - TELLING}):
            body = {"alert": name, "message": message, "since": since.isoformat(), "details": decode(details)}
            try:
                self._post(self._settings.alert_webhook_url, body)
            except Exception as error:  # the next worker to look tries again
                log.warning("the alert webhook did not take it: %s", error)
            else:
                self._store.write("told", {"name": name, "now": now})
                if name == "no_tick":  # what it tells of is over, for this worker is running
                    self._clear(name)
