"""Reports that this worker is alive, and raises alerts: to the log, a webhook and the metrics.

The report is a row, so that every reader of the database can see when no worker runs.

One cause is one alert. After a time in which no worker ran, `no_tick` is open until what fell due in it is done, and
says how much that is. Other late items raise `late_items`, or `oldest_due` if they are few but old. When `no_tick` has
not changed for long, something else holds back the rest of it, which then is late like anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.json import encode

from duly.core.clock import EPOCH
from duly.core.policy.lateness import Holds
from duly.core.settings import Settings
from duly.core.shown import Alert, NewAlert
from duly.engine.alerts import Alerts, SourceAlerts, alerts_of_apps
from duly.engine.equipment import AlertFinders
from duly.engine.late_items import LateCount, LateItems, Look, Reasons
from duly.engine.outages import Outages
from duly.engine.runaways import Runaways
from duly.engine.slow_paces import SlowPaces
from duly.engine.unserved_alerts import UnservedAlerts
from duly.engine.work import Tasks
from duly.store.contract import Store
from duly.store.migrate import latest, too_old

log = logging.getLogger("duly.engine")

EVERY = timedelta(seconds=30)
# Rows of workers that have not reported for this long are deleted.
FORGOTTEN = timedelta(days=1)
TIDY_EVERY = timedelta(hours=1)
# Late items are counted up to this number, among twice as many rows, since some may be of paused queues.
COUNTED = 10_000
# The alerts that are raised here.
OURS = frozenset(("no_tick", "late_items", "oldest_due"))
# The backlog of `no_tick` makes progress while any of these changes.
PROGRESS = ("lateEvents", "oldestDueAt")
# It may stay unchanged for this long, if there is no alert about the oldest due item.
STILL = timedelta(hours=1)


@dataclass(eq=False)
class Watch:
    store: Store
    worker: str
    tasks: list[str]
    settings: Settings
    _: KW_ONLY
    post: Callable[[str, Mapping[str, Any]], object]
    summary: Callable[[], Mapping[str, Any] | None] = lambda: None
    holds: Callable[[str], Holds] = lambda _: Holds()  # what holds a queue by plan
    outages: Outages = field(default_factory=Outages)
    runaways: Runaways = field(default_factory=Runaways)
    app_alerts: AlertFinders = field(default_factory=dict)
    stop_claims: Callable[[], None] = lambda: None
    known: Tasks = field(default_factory=dict)  # with the paces

    def __post_init__(self) -> None:
        self._alerts = Alerts(self.store, self.settings, self.post)
        self._sources = SourceAlerts(self._alerts, self.outages)
        reasons = Reasons(self.store, self.holds, self.settings.alert_oldest_seconds)
        self._unserved = UnservedAlerts(self.store)
        self._late = LateItems(self.store, reasons, self._explain)
        self._paces = SlowPaces(self.store, self.known, self._explain)
        self.learn = self._sources.learn  # reads the open alerts, and learns from them which sources are down
        self._started_at: datetime | None = None
        self._is_hindered = False
        self._tidy_at = EPOCH

    def tick(self, now: datetime) -> datetime:
        self._sources.write(now)
        opened = self.learn()
        self._sources.end_abandoned(now)
        if self._late.is_complete:
            self._sources.forget_needed()
        alerts = {alert.name: alert for alert in self._find(now, opened.get("no_tick"))}
        self._sign(now)
        of_apps, over = alerts_of_apps(self.app_alerts, opened)
        of_tasks, are_served = self._unserved.look(opened, now)
        slow = list(self._paces.find(now))
        over |= self._paces.over(opened.items(), (alert.name for alert in slow))
        for alert in (*alerts.values(), *slow, *of_apps, *of_tasks):
            self._alerts.raise_(alert, now)
        self._alerts.clear(over | are_served)
        self._clear(opened, alerts.keys(), now)
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            self.store.write("forget_workers", {"before": now - FORGOTTEN})
        if summary := self.summary():
            log.info("Scheduler job completed", extra=dict(summary))
        return now + EVERY

    def leave(self, now: datetime) -> None:
        """Write that this worker has ended in good order."""
        self.store.write("gone", {"name": self.worker, "now": now})

    def _sign(self, now: datetime) -> None:
        """Write that this worker is alive, and what keeps it from claiming: it may have become too old."""
        self._started_at = self._started_at or now
        names = encode(self.tasks).decode()
        hindrance = too_old(self.store)
        if hindrance and not self._is_hindered:
            log.error("worker %s claims nothing more: %s", self.worker, hindrance)
            self.stop_claims()
            self._is_hindered = True
        life = {
            "name": self.worker, "tasks": names, "started_at": self._started_at, "now": now,
            "migration": latest(self.store), "hindrance": hindrance,
            "runaways": len(self.runaways), "ailing": self.runaways.trouble(),
        }  # fmt: skip
        self.store.write("alive", life)

    def _clear(self, opened: Mapping[str, Alert], found: Set[str], now: datetime) -> None:
        """Send what is open, and clear alerts without a reason, also those of workers that died."""
        kept = set()
        if "no_tick" in opened and opened["no_tick"].told_at is None and self.settings.alert_webhook_url:
            kept = {"no_tick"}  # the webhook gets it in any case
        if self._late.is_first_walk:
            kept = set(OURS)
        self._alerts.clear((opened.keys() & OURS) - found - kept)
        if self._late.is_complete:
            self._sources.clear_others()
        self._alerts.clear(self._alerts.send(now) & {"no_tick"} - found)

    def _explain(self, queue: str, oldest: datetime, now: datetime) -> bool:
        """Whether another alert explains that items of this queue wait."""
        return self._sources.explain(queue, oldest, now) or self._unserved.explain(queue)

    # -- what is late

    def _find(self, now: datetime, silence: Alert | None) -> Iterator[NewAlert]:
        """The reasons for alerts; `silence` is the open alert about a time without workers."""
        settings = self.settings
        fresh = self._silence(now) if self._started_at is None else None
        back_at = now if fresh is not None else silence.since if silence is not None else None
        before = now - timedelta(seconds=settings.alert_late_seconds)
        most = max(COUNTED, settings.alert_late_items + 1)
        late = self._late.find(Look(now, before, back_at, most))
        rest = late.rest
        if late.missed.oldest is not None:
            known = fresh or NewAlert("no_tick", silence.message if silence else "", silence.details if silence else {})
            alert, is_moving = self._missed(known, late.missed, late.missed.oldest, most, now, is_new=fresh is not None)
            if is_moving:
                yield alert
            else:
                rest = rest.plus(late.missed, most)
        elif fresh is not None:
            yield fresh
        if rest.oldest is None:
            return
        details = _age(rest, now)
        if rest.items > settings.alert_late_items:
            yield NewAlert("late_items", f"Recovery mode detected: {_many(rest, most)} are late", details)
        elif 0 < settings.alert_oldest_seconds < (now - rest.oldest).total_seconds():
            minutes = details["oldestEventAge"]
            yield NewAlert(
                "oldest_due", f"the oldest due item waits for {minutes:,} minutes", {"oldestEventAge": minutes}
            )

    def _missed(
        self, known: NewAlert, missed: LateCount, oldest: datetime, most: int, now: datetime, *, is_new: bool
    ) -> tuple[NewAlert, bool]:
        """The alert about what fell due while no worker ran, and whether that still makes progress."""
        facts = {**_age(missed, now), "oldestDueAt": oldest.isoformat()}
        changed_at = known.details.get("changedAt", "")
        if is_new or not changed_at or any(known.details.get(name) != facts[name] for name in PROGRESS):
            changed_at = now.isoformat()
        text = f"{known.message.partition('; ')[0]}; {_many(missed, most)} are late"
        patience = timedelta(seconds=self.settings.alert_oldest_seconds) or STILL
        is_moving = now - datetime.fromisoformat(changed_at) <= patience
        return NewAlert("no_tick", text, {**known.details, **facts, "changedAt": changed_at}), is_moving

    def _silence(self, now: datetime) -> NewAlert | None:
        """At the start, an alert if no worker had reported for long. The next tick clears it."""
        seen_at: datetime | None = self.store.read("last_seen", {})[0][0]
        silence = 0.0 if seen_at is None else (now - seen_at).total_seconds()
        if silence <= self.settings.alert_silence_seconds:
            return None
        minutes = silence / 60
        return NewAlert(
            "no_tick",
            f"Scheduler appears to have been down: no worker reported for {minutes:,.0f} minutes",
            {"lastRun": seen_at, "minutesSinceLastRun": round(minutes, 1)},
        )


def _age(late: LateCount, now: datetime) -> dict[str, Any]:
    waited = 0.0 if late.oldest is None else (now - late.oldest).total_seconds()
    return {"lateEvents": late.items, "oldestEventAge": int(waited // 60)}


def _many(late: LateCount, most: int) -> str:
    return f"{late.items:,} items" if late.items < most else f"{most:,} items or more"
