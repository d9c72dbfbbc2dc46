"""Alerts of plug-ins. They are raised and cleared like the core's own; their names begin with that of their plug-in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from duly.core.shown import NewAlert

log = logging.getLogger("duly.engine")


class AppAlerts:
    def __init__(self, finders: Mapping[str, Callable[[], Iterable[NewAlert]]]) -> None:
        self._finders = finders  # by the names of the plug-ins

    def find(self, opened: Iterable[str]) -> tuple[list[NewAlert], set[str]]:
        """The alerts that have a reason now, and which of the open ones have none any more.

        If a plug-in fails to look, that is logged and its open alerts stay as they are.
        """
        found: list[NewAlert] = []
        over: set[str] = set()
        for app, look in self._finders.items():
            try:
                ours = [replace(alert, name=f"{app}.{alert.name}") for alert in look()]
            except Exception:  # whatever is wrong with a plug-in, it must not keep the others from being watched
                log.exception("the alerts of the app %s could not be looked for", app)
                continue
            found += ours
            over |= {name for name in opened if name.startswith(f"{app}.")} - {alert.name for alert in ours}
        return found, over
