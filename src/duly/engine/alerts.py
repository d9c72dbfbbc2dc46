"""Alerts are rows: of many workers one sends an alert to the webhook, and another does if that one dies before.

The alerts of all workers are the same rows, so a worker also clears those that another one raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.json import decode, encode

from duly.core.settings import Settings
from duly.core.shown import Alert, NewAlert
from duly.store.contract import Store

log = logging.getLogger("duly.engine")

# If a worker that was about to call the webhook has not succeeded in this time, another one does.
SENDING = timedelta(seconds=60)
# Stands for "never again" in the question which alerts to send once more.
NEVER_AGAIN = timedelta(days=100_000)


class Alerts:
    def __init__(self, store: Store, settings: Settings, post: Callable[[str, Mapping[str, Any]], object]) -> None:
        self._store = store
        self._post = post
        self._url = settings.alert_webhook_url
        again = settings.alert_again_seconds
        self._again = timedelta(seconds=again) if again else NEVER_AGAIN

    def open(self) -> dict[str, Alert]:
        """The open alerts by name."""
        return {row[0]: _alert(*row) for row in self._store.read("alerts", {})}

    def raise_(self, alert: NewAlert, now: datetime) -> None:
        row = {"name": alert.name, "now": now, "message": alert.message, "details": encode(alert.details).decode()}
        if self._store.write("alert", row)[0][0]:
            log.warning(alert.message, extra={"alert": alert.name, **alert.details})

    def clear(self, names: Iterable[str], section: str = "over") -> None:
        for name in names:
            if self._store.write(section, {"name": name}):
                log.info("alert over: %s", name, extra={"alert": name})

    def send(self, now: datetime) -> set[str]:
        """Send alerts that were not sent yet, and again those that are open for long; returns their names."""
        sent = set()
        given = {"now": now, "before": now - SENDING, "again": now - self._again}
        for name, since, message, details, told_at in self._store.write("untold", given):
            body = {"alert": name, "message": message, "since": since.isoformat(), "details": decode(details)}
            try:
                if self._url:
                    self._post(self._url, body)
            except Exception as error:  # the next worker to look tries again
                log.warning("the alert webhook rejected %s: %s", name, error)
                continue
            if told_at is not None:
                log.warning("still: %s", message, extra={"alert": name, **decode(details)})
            self._store.write("told", {"name": name, "now": now})
            sent.add(name)
        return sent


def _alert(name: str, since: datetime, message: str, details: Any, told_at: datetime | None) -> Alert:
    return Alert(name, since, message, decode(details) if isinstance(details, str | bytes) else details, told_at)
