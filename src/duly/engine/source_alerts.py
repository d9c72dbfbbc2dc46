"""The alerts about sources that are down: written for this worker's outages, and read for those of other workers.

Such an alert stays open after the source is back, until what had to wait for it is done.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from msgspec.json import encode

from duly.core.shown import Alert
from duly.engine.alerts import Alerts
from duly.engine.outages import PREFIX, Outages
from duly.store.contract import Store
from duly.store.lines import family

log = logging.getLogger("duly.engine")

# For this long beyond its own length an outage may explain that items wait.
MAKING_UP = timedelta(hours=1)


class SourceAlerts:
    def __init__(self, store: Store, alerts: Alerts, outages: Outages) -> None:
        self._store = store
        self._alerts = alerts
        self._outages = outages
        self._open: dict[str, Alert] = {}
        self._needed: set[str] = set()  # those that explain why something still waits

    def write(self, now: datetime) -> None:
        """Write which sources are down and which are back. The first worker that writes it logs it."""
        for name, notice in self._outages.notices():
            row = {"name": name, "message": notice.message, "details": encode(notice.details).decode()}
            if notice.is_back:
                if self._store.write("source_back", row):
                    log.info(notice.message, extra={"alert": name, **notice.details})
            elif self._store.write("source_down", {**row, "now": now}):
                log.warning(notice.message, extra={"alert": name, **notice.details})
            self._outages.written(name, notice)

    def read(self, now: datetime, alerts: dict[str, Alert]) -> None:
        """Learn from the open alerts which sources are down, and end those on which nothing depends any more."""
        self._open = {name: alert for name, alert in alerts.items() if name.startswith(PREFIX)}
        for alert in self._open.values():
            if self._outages.is_abandoned(alert.details):
                details = {**alert.details, "backAt": now.isoformat()}
                row = {"name": alert.name, "message": f"nothing depends on {alert.name} any more"}
                self._store.write("source_back", {**row, "details": encode(details).decode()})

    def learn(self) -> dict[str, Alert]:
        """Read the open alerts, and learn from them which sources are down."""
        alerts = self._alerts.open()
        self._outages.learn({name: {**alert.details, "since": alert.since} for name, alert in alerts.items()})
        return alerts

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
        self._alerts.clear(self._open.keys() - self._needed, "source_over")
