"""Alerts are rows: one of the workers sends an alert to the webhook, and another does if that one dies before.

The alerts of all workers are the same rows, so a worker also clears those that another one raised. Those of plug-ins
are raised and cleared like the core's own; their names begin with that of their plug-in. An alert about a source that
is down stays open after the source is back, until what had to wait for it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.json import decode, encode
from msgspec.structs import replace

from duly.core.settings import Settings
from duly.core.shown import Alert, NewAlert
from duly.engine.equipment import AlertFinders
from duly.engine.outages import PREFIX, Outages
from duly.store.claims import family
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

# If a worker that was about to call the webhook has not succeeded in this time, another one does.
SENDING = timedelta(seconds=60)
# Stands for "never again" in the question which alerts to send once more.
NEVER_AGAIN = timedelta(days=100_000)
# For this long beyond its own length an outage may explain that items wait.
MAKING_UP = timedelta(hours=1)


@dataclass(eq=False)
class Alerts:
    store: Store
    settings: Settings
    post: Callable[[str, Mapping[str, Any]], object]

    def open(self) -> dict[str, Alert]:
        """The open alerts by name."""
        rows = self.store.read("alerts", {})
        return {name: Alert(name, since, text, decode(details), at) for name, since, text, details, at in rows}

    def write(self, section: str, alert: NewAlert, now: datetime) -> list[tuple[Any, ...]]:
        row = {"name": alert.name, "now": now, "message": alert.message, "details": encode(alert.details).decode()}
        return self.store.write(section, row)

    def raise_(self, alert: NewAlert, now: datetime) -> None:
        if self.write("alert", alert, now)[0][0]:
            log.warning(alert.message, extra={"alert": alert.name, **alert.details})

    def clear(self, names: Iterable[str], section: str = "over") -> None:
        for name in names:
            if self.store.write(section, {"name": name}):
                log.info("alert over: %s", name, extra={"alert": name})

    def send(self, now: datetime) -> set[str]:
        """Send alerts that were not sent yet, and again those that are open for long; returns their names."""
        sent = set()
        again = timedelta(seconds=self.settings.alert_again_seconds) or NEVER_AGAIN
        given = {"now": now, "before": now - SENDING, "again": now - again}
        for name, since, message, details, told_at in self.store.write("untold", given):
            body = {"alert": name, "message": message, "since": since.isoformat(), "details": decode(details)}
            try:
                if self.settings.alert_webhook_url:
                    self.post(self.settings.alert_webhook_url, body)
            except Exception as error:  # the next worker to look tries again
                log.warning("the alert webhook rejected %s: %s", name, error)
                continue
            if told_at is not None:
                log.warning("still: %s", message, extra={"alert": name, **decode(details)})
            self.store.write("told", {"name": name, "now": now})
            sent.add(name)
        return sent


def alerts_of_apps(finders: AlertFinders, opened: Iterable[str]) -> tuple[list[NewAlert], set[str]]:
    """The current alerts of plug-ins, and which of the open ones have cleared.

    If a plug-in fails to look, that is logged and its open alerts stay as they are.
    """
    found: list[NewAlert] = []
    over: set[str] = set()
    for app, look in finders.items():
        try:
            ours = [replace(alert, name=f"{app}.{alert.name}") for alert in look()]
        except Exception:  # an error in one plug-in must not stop the checks of the others
            log.exception("the alerts of the app %s could not be looked for", app)
            continue
        found += ours
        over |= {name for name in opened if name.startswith(f"{app}.")} - {alert.name for alert in ours}
    return found, over


@dataclass(eq=False)
class SourceAlerts:
    """The alerts about sources: written for this worker's outages, and read for those of other workers."""

    alerts: Alerts
    outages: Outages
    _open: dict[str, Alert] = field(default_factory=dict, init=False)
    _needed: set[str] = field(default_factory=set, init=False)  # those that explain why something still waits

    def write(self, now: datetime) -> None:
        """Write which sources are down and which are back. The first worker that writes it logs it."""
        for notice in self.outages.notices():
            section, level = (
                ("source_back", logging.INFO) if "backAt" in notice.details else ("source_down", logging.WARNING)
            )
            if self.alerts.write(section, notice, now):
                log.log(level, notice.message, extra={"alert": notice.name, **notice.details})
            self.outages.written(notice)

    def learn(self) -> dict[str, Alert]:
        """Read the open alerts, and learn from them which sources are down."""
        alerts = self.alerts.open()
        self._open = {name: alert for name, alert in alerts.items() if name.startswith(PREFIX)}
        self.outages.learn({name: {**alert.details, "since": alert.since} for name, alert in self._open.items()})
        return alerts

    def end_abandoned(self, now: datetime) -> None:
        """End the outages of sources that no task uses any longer."""
        for name, alert in self._open.items():
            if self.outages.is_abandoned(alert.details):
                details = {**alert.details, "backAt": now.isoformat()}
                self.alerts.write("source_back", NewAlert(name, f"nothing depends on {name} any more", details), now)

    def explain(self, queue: str, oldest: datetime, now: datetime) -> bool:
        """Whether an outage explains that items of this queue wait, the oldest since then.

        What falls due after the return may have to wait behind what had to wait, for as long again as the source was
        down. After that time, and an hour, the outage explains nothing any more.
        """
        for name, alert in self._open.items():
            if set(family(queue)).isdisjoint(alert.details.get("queues", ())):
                continue
            back_at = datetime.fromisoformat(alert.details.get("backAt", now.isoformat()))
            behind = max(back_at, back_at + (back_at - alert.since))
            if oldest < behind and now < behind + (behind - back_at) + MAKING_UP:
                self._needed.add(name)
                return True
        return False

    def forget_needed(self) -> None:
        """A new look at all that is overdue begins."""
        self._needed = set()

    def clear_others(self) -> None:
        """All that is overdue was seen: clear the alerts that explain nothing. Those of sources still down stay."""
        self.alerts.clear(self._open.keys() - self._needed, "source_over")
